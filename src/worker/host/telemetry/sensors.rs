//! Temperature and power of processors from the kernel's hwmon and powercap (RAPL) interfaces.

use std::path::{Path, PathBuf};

use ringmark_core::host::Quantity;
use ringmark_core::host::kernel_file::first_line;

use crate::host::counters::number_in;
use crate::host::telemetry::kernel::names_in;
use crate::host::telemetry::reading::{Reading, Source, Value};

/// Drivers whose sensors are in processors.
const PROCESSORS: [&str; 6] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "apm_xgene", "scpi_sensors"];

pub struct Sensors {
    /// Chips, each with the files of its sensors.
    chips: Vec<(String, Vec<PathBuf>)>,
    domains: Vec<Domain>,
}

struct Domain {
    name: String,
    /// File with the energy in microjoules since an arbitrary time.
    energy: PathBuf,
    /// Value at which the counter wraps.
    range: u64,
    last: Option<u64>,
    /// Total in microjoules, corrected for wraparound.
    sum: u64,
}

impl Sensors {
    /// Finds the sensors in the folder `classes`, normally /sys/class; also returns the reason if power cannot be read.
    pub fn find(classes: &Path) -> (Sensors, Option<String>) {
        let (domains, why) = match domains(&classes.join("powercap")) {
            Ok(domains) => (domains, None),
            Err(why) => (Vec::new(), Some(format!("processor power: {why}"))),
        };
        (Sensors { chips: chips(&classes.join("hwmon")), domains }, why)
    }
}

/// Returns the chips, named `coretemp 0`, `coretemp 1` in the kernel's order.
fn chips(folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let mut chips: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for entry in names_in(folder) {
        let chip = folder.join(entry);
        let driver = first_line(chip.join("name"));
        if !PROCESSORS.contains(&driver.as_str()) {
            continue;
        }
        let inputs = names_in(&chip).into_iter().filter(|name| name.starts_with("temp") && name.ends_with("_input"));
        let number = chips.iter().filter(|(name, _)| name.starts_with(&driver)).count();
        chips.push((format!("{driver} {number}"), inputs.map(|input| chip.join(input)).collect()));
    }
    chips
}

/// Returns the packages and the memory domains that their energy excludes, or the whole machine if nothing else is
/// counted. Cores and other subdomains are part of a package.
fn domains(folder: &Path) -> Result<Vec<Domain>, String> {
    let name = |zone: &str| first_line(folder.join(zone).join("name"));
    let zones: Vec<(String, String)> = names_in(folder).into_iter().map(|zone| (name(&zone), zone)).collect();
    let mut zones: Vec<(String, String)> = zones.into_iter().filter(|(_, zone)| zone.contains(':')).collect();
    // The driver intel-rapl-mmio has the same counters; intel-rapl is preferred.
    zones.sort_by_key(|(_, zone)| !zone.starts_with("intel-rapl:"));
    let package = |zone: &str| {
        let (parent, _) = zone.rsplit_once(':')?;
        Some(name(parent)).filter(|name| name.starts_with("package"))
    };
    let mut found: Vec<(String, String)> = Vec::new();
    for (name, zone) in &zones {
        let name = match package(zone) {
            Some(package) if name == "dram" => format!("{package} dram"),
            None if name.starts_with("package") || name == "dram" => name.clone(),
            _ => continue,
        };
        if found.iter().all(|(known, _)| *known != name) {
            found.push((name, zone.clone()));
        }
    }
    if found.is_empty() {
        found.extend(zones.iter().find(|(name, _)| name == "psys").cloned());
    }
    if found.is_empty() {
        return Err(format!("no RAPL zone in {}, as in most virtual machines", folder.display()));
    }
    let domain = |(name, zone): (String, String)| {
        let zone = folder.join(zone);
        let energy = zone.join("energy_uj");
        // Readable only by root since 2020 (CVE-2020-8694).
        std::fs::read_to_string(&energy).map_err(|error| {
            format!("{}: {error}; as root: chmod a+r {}", energy.display(), folder.join("*/energy_uj").display())
        })?;
        let range = number_in(&zone.join("max_energy_range_uj")).unwrap_or(0);
        Ok(Domain { name, energy, range, last: None, sum: 0 })
    };
    found.into_iter().map(domain).collect()
}

impl Domain {
    /// Returns the energy in joules since the first reading.
    fn read(&mut self) -> Option<f64> {
        let now = number_in(&self.energy)?;
        let last = self.last.replace(now).unwrap_or(now);
        self.sum += match now >= last {
            true => now - last,
            false => (self.range.saturating_sub(last)).saturating_add(now),
        };
        Some(self.sum as f64 / 1e6)
    }
}

impl Source for Sensors {
    fn read(&mut self, readings: &mut Vec<Reading>) {
        for (instance, sensors) in &self.chips {
            let hottest = sensors.iter().filter_map(|sensor| number_in(sensor)).max();
            if let Some(thousandths) = hottest {
                let value = Value::Gauge(thousandths as f64 / 1e3);
                readings.push(Reading { quantity: Quantity::Temperature, instance: instance.clone(), value });
            }
        }
        for domain in &mut self.domains {
            if let Some(joules) = domain.read() {
                let value = Value::Joules(joules);
                readings.push(Reading { quantity: Quantity::Power, instance: domain.name.clone(), value });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;

    use super::*;
    use crate::temporary_folder::without_folder;

    /// Creates a tree like /sys/class with these files.
    fn classes(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        folder
    }

    fn read(sensors: &mut Sensors) -> Vec<(Quantity, String, Value)> {
        let mut readings = Vec::new();
        sensors.read(&mut readings);
        readings.into_iter().map(|Reading { quantity, instance, value }| (quantity, instance, value)).collect()
    }

    /// Uses the layout of a server with two sockets.
    #[test]
    fn packages_and_dram_are_counted_once() {
        let folder = classes(&[
            ("powercap/intel-rapl/enabled", "1"),
            ("powercap/intel-rapl:0/name", "package-0"),
            ("powercap/intel-rapl:0/energy_uj", "999000000"),
            ("powercap/intel-rapl:0/max_energy_range_uj", "1000000000"),
            ("powercap/intel-rapl:0:0/name", "core"),
            ("powercap/intel-rapl:0:0/energy_uj", "5"),
            ("powercap/intel-rapl:0:1/name", "dram"),
            ("powercap/intel-rapl:0:1/energy_uj", "2000000"),
            ("powercap/intel-rapl:1/name", "package-1"),
            ("powercap/intel-rapl:1/energy_uj", "0"),
            ("powercap/intel-rapl:2/name", "psys"),
            ("powercap/intel-rapl:2/energy_uj", "0"),
            ("powercap/intel-rapl-mmio:0/name", "package-0"),
            ("powercap/intel-rapl-mmio:0/energy_uj", "7"),
            ("hwmon/hwmon0/name", "nvme"),
            ("hwmon/hwmon0/temp1_input", "90000"),
            ("hwmon/hwmon1/name", "coretemp"),
            ("hwmon/hwmon1/temp1_input", "61000"),
            ("hwmon/hwmon1/temp2_input", "64500"),
            ("hwmon/hwmon1/temp2_max", "99000"),
        ]);
        let (mut sensors, why) = Sensors::find(folder.path());
        assert_eq!(why, None);
        let all = read(&mut sensors);
        let names: Vec<&str> = all.iter().map(|(_, instance, _)| instance.as_str()).collect();
        assert_eq!(names, ["coretemp 0", "package-0", "package-0 dram", "package-1"]);
        assert_eq!(all[0], (Quantity::Temperature, "coretemp 0".to_owned(), Value::Gauge(64.5)));
        assert_eq!(all[1].2, Value::Joules(0.0));
        // The counter wraps after 1000 J: 1 J before and 3 J after it.
        fs::write(folder.path().join("powercap/intel-rapl:0/energy_uj"), "3000000\n").expect("a file");
        assert_eq!(read(&mut sensors)[1].2, Value::Joules(4.0));
    }

    #[test]
    fn psys_is_used_without_packages() {
        let folder = classes(&[("powercap/intel-rapl:0/name", "psys"), ("powercap/intel-rapl:0/energy_uj", "0")]);
        let names: Vec<String> =
            read(&mut Sensors::find(folder.path()).0).into_iter().map(|(_, instance, _)| instance).collect();
        assert_eq!(names, ["psys"]);
    }

    #[test]
    fn unreadable_sensors_are_reported() {
        let folder = classes(&[("powercap/dtpm/enabled", "1")]);
        let (mut sensors, why) = Sensors::find(folder.path());
        expect!["processor power: no RAPL zone in DIR/powercap, as in most virtual machines"]
            .assert_eq(&without_folder(&why.expect("a reason")));
        assert_eq!(read(&mut sensors), []);
        let folder = classes(&[("powercap/intel-rapl:0/name", "package-0")]);
        fs::create_dir(folder.path().join("powercap/intel-rapl:0/energy_uj")).expect("a folder in the file's place");
        let (_, why) = Sensors::find(folder.path());
        expect!["processor power: DIR/powercap/intel-rapl:0/energy_uj: Is a directory (os error 21); as root: chmod a+r DIR/powercap/*/energy_uj"].assert_eq(&without_folder(&why.expect("a reason")));
    }
}
