//! Checks the governor of the processors' frequency.

use crate::launch::doctor::checks::finding::{Check, Findings, Outlier, outliers, values};

/// Governor with which most drivers keep the lowest frequency.
const LOWEST: &str = "powersave";

/// Drivers with which it also reaches the highest frequency, the last in older kernels. `amd-pstate` without `epp` is not
/// one of them.
const DRIVERS: [&str; 3] = ["intel_pstate", "amd-pstate-epp", "amd_pstate_epp"];

/// Checks that the processors reach their highest frequency, and that all hosts have the same governor.
pub fn check_governor(findings: &mut Findings) {
    let governors = values(findings.hosts, |host| {
        let probe = host.probe.as_ref().filter(|_| host.has_ranks())?;
        let is_slow = probe.governors.iter().any(|governor| governor == LOWEST)
            && !DRIVERS.contains(&probe.frequency_driver.as_str());
        (!probe.governors.is_empty()).then(|| (probe.governors.join(" and "), is_slow))
    });
    const FIX: &str = "set the governor on all hosts: cpupower frequency-set --governor performance";
    for (number, (_, is_slow)) in &governors {
        if *is_slow {
            let driver = findings.hosts[*number].probe.as_ref().map_or("", |probe| &probe.frequency_driver);
            let what =
                format!("governor {LOWEST} of the driver {driver} keeps the processors at their lowest frequency");
            findings.warning(*number, Check::Governor, what, FIX);
        }
    }
    for Outlier { number, value: (governor, is_slow), usual: (usual, _), most } in outliers(&governors) {
        if !is_slow {
            let what = format!("governor of the processors is {governor}; {most} have {usual}");
            findings.warning(number, Check::Governor, what, FIX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    fn hosts_with(governors: [&str; 3], driver: &str) -> Vec<HostFacts> {
        let mut hosts = hosts(3);
        for (number, governor) in governors.into_iter().enumerate() {
            let probe = probe(&mut hosts, number);
            (probe.governors, probe.frequency_driver) = (vec![governor.to_owned()], driver.to_owned());
        }
        hosts
    }

    #[test]
    fn low_frequency_or_different_governor_is_reported() {
        for driver in DRIVERS {
            assert_eq!(findings_for(&hosts_with([LOWEST; 3], driver), DeviceChoice::Auto), []);
        }
        let text = "governor powersave of the driver acpi-cpufreq keeps the processors at their lowest frequency";
        let hosts = hosts_with(["performance", "performance", LOWEST], "acpi-cpufreq");
        assert_finding(&hosts, "c", Check::Governor, Severity::Warning, text);
        let text = "governor of the processors is schedutil; 2 of 3 hosts have performance";
        let hosts = hosts_with(["performance", "schedutil", "performance"], "acpi-cpufreq");
        assert_finding(&hosts, "b", Check::Governor, Severity::Warning, text);
    }
}
