//! Tests of the telemetry of hosts and GPUs in real runs, and of its readers. Power of processors is read from
//! simulated kernel files, because virtual machines have none; GPUs are virtual.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Seconds;
use ringmark_core::host::{Quantity, Series, Telemetry};
use serde_json::Value;

use crate::support::core_tokens::take_cores;
use crate::support::sandbox::{Sandbox, ringmark, run, succeeds};
use crate::support::virtual_gpu::{RATE, SMALL, Virtual};
use crate::support::worker_run::Run;

fn telemetry(record: &RunRecord) -> &Telemetry {
    let end = record.end.as_ref().expect("an end");
    end.host_use[0].telemetry.as_ref().expect("readings")
}

fn series<'a>(read: &'a Telemetry, quantity: Quantity, of: &str) -> &'a Series {
    let all: Vec<&Series> = read.series_of(quantity).collect();
    all.iter().find(|series| series.of == of).unwrap_or_else(|| panic!("{quantity} of {of} is not among {all:?}"))
}

/// Integrates a rate over all readings.
fn integral(read: &Telemetry, series: &Series) -> f64 {
    let each = (1..read.at.len()).map(|index| {
        let Seconds(time) = Seconds(read.at[index].0 - read.at[index - 1].0);
        series.values[index].unwrap_or_default() * time
    });
    each.sum()
}

fn assert_near(actual: f64, expected: f64, what: &str) {
    assert!((actual - expected).abs() <= 1e-6 * expected.abs(), "{what}: {actual} instead of {expected}");
}

#[test]
fn telemetry_covers_all_iterations() {
    let record = Run::ranks(2, "--model resnet18 --iters 6").finish().valid_record();
    let read = telemetry(&record);
    assert!(read.at.len() >= 2 && read.at.is_sorted(), "{:?}", read.at);
    assert_eq!((read.iteration[0], *read.iteration.last().expect("two")), (0, 6));
    assert!(read.series.iter().all(|series| series.values.len() == read.at.len()), "{read:?}");
    let used = series(read, Quantity::Memory, "host");
    assert!(used.values.iter().flatten().all(|bytes| *bytes > 1e7), "{used:?}");
    let segments = series(read, Quantity::Segments, "TCP");
    assert!(segments.values[1].is_some_and(|rate| rate >= 0.0), "{segments:?}");
    // Either the kernel exposes the power of the processors, or the record contains the reason.
    let has_power = read.series_of(Quantity::Power).count() > 0;
    assert!(has_power != read.missing.iter().any(|what| what.starts_with("processor power: ")), "{read:?}");
}

/// A simulated energy counter in a folder like /sys/class/powercap, which runs until it is dropped.
struct PowerMeter<'a> {
    stop: &'a AtomicBool,
}

impl Drop for PowerMeter<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn processor_energy_is_in_all_outputs() {
    let sandbox = Sandbox::real();
    let classes = sandbox.path("class");
    fs::create_dir(&classes).expect("a folder");
    // The relative links out of the folder remain valid under the mount point.
    let copied = Command::new("cp").args(["-a", "/sys/class/net"]).arg(&classes).status().expect("cp");
    assert!(copied.success());
    let zone = classes.join("powercap/intel-rapl:0");
    fs::create_dir_all(&zone).expect("a folder");
    fs::write(zone.join("name"), "package-0\n").expect("a file");
    let energy = zone.join("energy_uj");
    // Replaced atomically, because the kernel's file always contains a number.
    let count = |joules: u64| {
        let next = zone.join("next");
        fs::write(&next, format!("{}\n", joules * 1_000_000))
            .and_then(|()| fs::rename(&next, &energy))
            .expect("a file");
    };
    count(1);
    let stop = AtomicBool::new(false);
    // Adds power to the kernel's folder in a separate mount namespace.
    let mounted = format!("mount --bind {} /sys/class && exec \"$@\"", classes.display());
    let first = sandbox.path("first");
    let mut sweep = Command::new("unshare");
    sweep.args(["-m", "sh", "-c", &mounted, "sh", env!("CARGO_BIN_EXE_ringmark"), "sweep"]);
    // Each run lasts long enough for at least a hundred joules, of which a busy machine counts fewer.
    sweep.args("--cases 1n1g,1n2g --runs 2 --model mxnet-lenet --batch-size 2 --iters 300 --warmup 2".split(' '));
    sweep.args("--device cpu --threads 1 --dtype fp32 --no-doctor --worker".split(' ')).arg(sandbox.worker());
    sweep.arg("--out").arg(&first);
    let (status, output, error) = thread::scope(|scope| {
        let _tokens = take_cores(2);
        scope.spawn(|| {
            for joules in 2.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                count(joules);
                thread::sleep(Duration::from_millis(5));
            }
        });
        let _meter = PowerMeter { stop: &stop };
        run(&mut sweep)
    });
    assert_eq!(status, Some(0), "{output}{error}");

    let record = fs::File::open(first.join("1n2g/mxnet-lenet_b2_fp32_1.jsonl")).expect("a record");
    let record = RunRecord::read(std::io::BufReader::new(record)).expect("a record");
    let read = telemetry(&record);
    assert_eq!(read.energy.len(), 1, "{read:?}");
    assert!(read.energy[0].of == "package-0" && read.energy[0].joules > 0.0, "{:?}", read.energy);
    let power = series(read, Quantity::Power, "package-0");
    assert_near(integral(read, power), read.energy[0].joules, "power over time");
    assert!(!read.missing.iter().any(|what| what.starts_with("processor power")), "{:?}", read.missing);

    let table = succeeds(ringmark("extract --price 36/host-hour").arg(&first));
    for expected in ["Power and cost (an epoch: 1,281,167 images of ImageNet)", "J/image", "90 epochs"] {
        assert!(table.contains(expected), "{expected} is not in:\n{table}");
    }
    let (_, json, _) = run(ringmark("extract --price 36/host-hour").arg(&first).arg("--json"));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    for row in json["rows"].as_array().expect("rows") {
        let number = |pointer: &str| row.pointer(pointer).and_then(Value::as_f64).expect(pointer);
        let speed = number("/units_per_second");
        // 36 per hour is 0.01 per second for any number of ranks: the price is per host.
        assert_near(number("/cost/of_epoch"), 0.01 * 1_281_167.0 / speed, "an epoch");
        assert_near(number("/cost/of_90_epochs"), 90.0 * number("/cost/of_epoch"), "90 epochs");
        assert_near(number("/energy/joules_per_unit") * number("/energy/units_per_second_per_watt"), 1.0, "W");
        assert_eq!(row["energy"]["of"], serde_json::json!(["package-0"]));
    }
    // The files contain measurements but no prices.
    let written = fs::read_to_string(first.join("first_result.json")).expect("written");
    assert!(written.contains("joules_per_unit") && !written.contains("of_90_epochs"), "{written}");
    let (_, checked, _) = run(ringmark("check").arg(&first));
    assert!(checked.lines().any(|line| line.starts_with("PASS") && line.contains("unedited")), "{checked}");

    let page = page(&first, "--price 36/host-hour");
    for expected in ["Telemetry of", "Energy of 1n2g", "90 epochs of ImageNet on 1n2g", "package-0"] {
        assert!(page.contains(expected), "{expected} is not on the page");
    }
    let mut diff = ringmark("diff --price 2/gpu-hour");
    let compared = succeeds(diff.arg(&first).arg(&first));
    assert!(compared.contains("J/image") && compared.contains("epoch cost"), "{compared}");
    assert_eq!(sandbox.left(), [""; 0]);
}

fn page(folder: &Path, options: &str) -> String {
    let path = folder.join("page.html");
    succeeds(ringmark(&format!("report {options} -o {}", path.display())).arg(folder));
    fs::read_to_string(path).expect("written")
}

#[test]
fn gpus_and_links_are_read_by_nvml() {
    let run = Virtual::ranks(2, &format!("{SMALL} {RATE} --iters 3")).set("FAULTY_DEVICE", 1);
    let record = run.set("CLOCK_MHZ", 1410).set("CLOCK_REASONS", "0x24").valid_record();
    let read = telemetry(&record);
    let steps = (read.at.len() - 1) as f64;
    assert_eq!(read.missing.iter().filter(|what| what.starts_with("GPU")).count(), 0, "{:?}", read.missing);
    for (gpu, clock, reasons) in [("GPU 0", 1980.0, 0.0), ("GPU 1", 1410.0, 36.0)] {
        let values = |quantity: Quantity, of: &str| series(read, quantity, of).values.clone();
        assert!(values(Quantity::Clock, gpu).iter().all(|value| *value == Some(clock)), "{read:?}");
        assert!(values(Quantity::ThrottleReasons, gpu).iter().all(|value| *value == Some(reasons)), "{read:?}");
        assert!(values(Quantity::Temperature, gpu).iter().all(|value| *value == Some(41.0)), "{read:?}");
        assert!(values(Quantity::Utilization, gpu).iter().all(|value| *value == Some(0.97)), "{read:?}");
        // One joule, and one mebibyte over all links, per reading.
        let energy = read.energy.iter().find(|energy| energy.of == gpu).expect("counted");
        assert_near(energy.joules, steps, "joules");
        let link = format!("{gpu} NVLink");
        for quantity in [Quantity::Sent, Quantity::Received] {
            assert_near(integral(read, series(read, quantity, &link)), steps * f64::from(1 << 20), "NVLink");
        }
        // The 32-bit counters are not used, but the driver's own throughput of the slot.
        let slot = format!("{gpu} PCIe");
        assert!(values(Quantity::Sent, &slot).iter().all(|value| *value == Some(1e9)), "{read:?}");
        assert!(values(Quantity::Received, &slot).iter().all(|value| *value == Some(2e9)), "{read:?}");
    }
    // Only GPUs in use by ranks are read.
    assert_eq!(read.series_of(Quantity::Clock).filter(|series| series.of.starts_with("GPU")).count(), 2);
}

#[test]
fn invalid_price_is_rejected() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/suite-2-cores");
    let errors = ["extract", "report", "diff"].map(|command| {
        let mut refused = ringmark(&format!("{command} --price 2.49"));
        refused.arg(&folder).args((command == "diff").then_some(&folder));
        let (status, _, error) = run(&mut refused);
        assert_eq!(status, Some(2), "{error}");
        error
    });
    expect![[r#"
        error: invalid value '2.49' for '--price <PRICE>': "2.49" is not a price: write a number above 0 and gpu-hour or host-hour, such as 2.49/gpu-hour or $98.32/host-hour

        For more information, try '--help'.
        error: invalid value '2.49' for '--price <PRICE>': "2.49" is not a price: write a number above 0 and gpu-hour or host-hour, such as 2.49/gpu-hour or $98.32/host-hour

        For more information, try '--help'.
        error: invalid value '2.49' for '--price <PRICE>': "2.49" is not a price: write a number above 0 and gpu-hour or host-hour, such as 2.49/gpu-hour or $98.32/host-hour

        For more information, try '--help'.
    "#]].assert_eq(&errors.concat());
}
