//! `ringmark` with virtual GPUs on two hosts (network namespaces of this machine): the doctor, a sweep with known
//! results, a slow GPU, and failures of a rank or a GPU.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{BackendName, Bytes, DeviceKind};
use ringmark_core::number_text::{four_digits, three_digits};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::{self, FaultOutcome, Sweep};
use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::runs::rows_by_case;
use crate::support::sandbox::{ringmark, run, wait_until, words};
use crate::support::virtual_gpu::{assert_near, libraries, program_path, variables};
use crate::support::virtual_time::{AFTER_SUMS, compute, wire};
use crate::support::worker;
use crate::support::worker_run::checksum;

struct Hosts {
    cluster: Cluster,
    folder: TempDir,
}

impl Hosts {
    fn up() -> Option<Hosts> {
        let hosts = Hosts { cluster: Cluster::start(2)?, folder: tempfile::tempdir().expect("a folder") };
        // In a folder that is on every shell's PATH, visible only on this host.
        let program = libraries().join("nvidia-smi").display().to_string();
        let line = format!("mount -t tmpfs none /usr/local/sbin && ln -s {program} /usr/local/sbin/");
        (1..=2).for_each(|number| hosts.on(number, &line));
        Some(hosts)
    }

    fn on(&self, number: usize, line: &str) {
        succeed(&self.cluster.call(&["on", &number.to_string(), "sh", "-euc", line]));
    }

    /// Sets the properties of a host's GPUs, as `NAME=VALUE NAME=VALUE`.
    fn set(&self, number: usize, settings: &str) {
        self.on(number, &format!("printf 'VIRTUAL_CUDA_%s\\n' {settings} >/dev/shm/virtual_cuda"));
    }

    fn host(&self, number: usize) -> String {
        self.cluster.host(number)
    }

    /// Returns the option for `ranks` ranks on each host.
    fn slots(&self, ranks: u32) -> String {
        format!("--hosts {}:{ranks},{}:{ranks}", self.host(1), self.host(2))
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Runs a sweep of `cases` and returns the record of each.
    fn sweep(&self, cases: &str, ranks: u32, options: &str) -> Vec<RunRecord> {
        let options = format!("{} --device cuda {options}", self.slots(ranks));
        succeed(&cluster_sweep::command(&self.cluster, cases, &self.out(), &options).output().expect("starts"));
        let record = |case| {
            let file = fs::read(self.out().join(case).join("resnet18_b2_fp32_1.jsonl")).expect(case);
            let record = RunRecord::read(&file[..]).expect("a record");
            assert_eq!(record.failure(), None, "{case}");
            assert!(record.header.ranks.iter().all(|rank| rank.device == DeviceKind::Cuda), "{case}");
            checksum(&record);
            record
        };
        cases.split(',').map(record).collect()
    }

    /// Returns the output of `ringmark COMMAND` for the sweep.
    fn read(&self, command: &str) -> String {
        let (_, stdout, stderr) = run(ringmark(command).current_dir(self.folder.path()).arg("out"));
        stdout + &stderr
    }
}

// --- doctor
// -------------------------------------------------------------------------------------------------------------

/// Runs the doctor by `command`; returns exit status and output.
fn doctor(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        command.args(words("--device cuda --worker")).arg(worker()).envs(variables()).output().expect("starts");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// Returns the lines of the findings, except those caused by this machine's load.
fn findings(text: &str) -> Vec<&str> {
    let is_finding = |line: &&str| line.starts_with("error: ") || line.starts_with("warning: ");
    let is_summary = |line: &str| line.ends_with(" would fail");
    let by_load = |line: &&str| line.contains(", slowest link: ") || line.contains(", load: ") || is_summary(line);
    text.lines().filter(is_finding).filter(|line| !by_load(line)).collect()
}

#[test]
fn doctor_accepts_virtual_gpus() {
    let _tokens = take_cores(1);
    let (status, text) = doctor(ringmark("doctor --quick --hosts localhost:8").env("PATH", program_path()));
    assert_eq!((status, findings(&text)), (Some(0), Vec::new()), "{text}");
    assert!(text.contains("8 x Virtual GPU"), "{text}");
    let (status, text) = doctor(ringmark("doctor --quick --hosts localhost:9").env("PATH", program_path()));
    assert_eq!((status, findings(&text).len()), (Some(1), 1), "{text}");
    assert!(text.contains("GPUs: 9 ranks planned, but only 8 GPUs found"), "{text}");
}

#[test]
fn doctor_names_the_faulty_gpu_and_host() {
    let Some(hosts) = Hosts::up() else { return };
    let _tokens = take_cores(1);
    let examine = |options: &str| {
        let line = format!("doctor {} {options}", hosts.slots(8));
        let line: Vec<&str> = ["run", env!("CARGO_BIN_EXE_ringmark")].into_iter().chain(words(&line)).collect();
        doctor(&mut hosts.cluster.command(&line))
    };
    let (status, text) = examine("");
    assert_eq!((status, findings(&text)), (Some(0), Vec::new()), "{text}");
    for number in 1..=2 {
        let row = text.lines().find(|line| line.starts_with(&hosts.host(number))).expect("a row");
        assert!(row.contains("  8 x Virtual GPU  ok "), "{text}");
    }
    for (settings, exit, words) in [
        ("FAULTY_DEVICE=3 ECC_ERRORS=2", 0, "GPU state: GPU 3: 2 uncorrected ECC errors"),
        (
            "FAULTY_DEVICE=5 CLOCK_REASONS=0x40 CLOCK_MHZ=1200",
            0,
            "GPU state: GPU 5: clock is throttled: hardware thermal slowdown (1200 of 1980 MHz)",
        ),
        (
            "FAULTY_DEVICE=0 CLOCK_REASONS=0x0 CLOCK_MHZ=600",
            0,
            "GPU state: GPU 0: clock is 600 of 1980 MHz for no reported reason",
        ),
        (
            "FAULTY_DEVICE=7 MEMORY_USED=70000",
            0,
            "GPU state: GPU 7: 73.4 GB of 85.5 GB in use, but nvidia-smi shows no process",
        ),
        ("DRIVER=570.1", 0, "versions: NVIDIA driver is 570.1; 1 of 2 hosts have 580.95.05"),
        ("NCCL=22703", 1, "versions: NCCL is 2.27.3"),
        ("NAME=Other", 0, "GPUs: GPUs are 8 x Other; 1 of 2 hosts have 8 x Virtual GPU"),
        ("DEVICES=7", 1, "GPUs: 8 ranks planned, but only 7 GPUs found"),
    ] {
        hosts.set(2, settings);
        let (status, text) = examine("--quick");
        let found = findings(&text);
        assert_eq!(status, Some(exit), "{settings}: {text}");
        let line = found.first().copied().unwrap_or_default();
        assert!(line.contains(&format!(": {}, {words}", hosts.host(2))), "{settings}: {text}");
        // A host with fewer GPUs also has different lists of GPUs.
        assert!(found.len() == 1 || settings == "DEVICES=7", "{settings}: {text}");
        assert!(!found.iter().any(|line| line.contains(&format!(": {}, ", hosts.host(1)))), "{settings}: {text}");
    }
}

/// Simulates a port as the kernel presents it, also to containers, and its device, which only programs on the first
/// host can open.
#[test]
fn doctor_reports_inaccessible_infiniband_and_memlock_limit() {
    let Some(hosts) = Hosts::up() else { return };
    let _tokens = take_cores(1);
    let class = hosts.folder.path().join("class");
    for (file, text) in [
        ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE"),
        ("infiniband/mlx5_0/ports/1/phys_state", "5: LinkUp"),
        ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"),
        ("infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)"),
        ("infiniband_verbs/uverbs0/ibdev", "mlx5_0"),
    ] {
        let file = class.join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, format!("{text}\n")).expect("written");
    }
    // All hosts share this machine's /dev; the mount is visible only on its host.
    let devices = "/dev/infiniband";
    let is_made = fs::create_dir(devices).is_ok();
    let mounts = format!("mount -t tmpfs none {devices} && mount --bind {} /sys/class", class.display());
    (1..=2).for_each(|number| hosts.on(number, &mounts));
    hosts.on(1, &format!("ln -s /dev/null {devices}/uverbs0"));

    let examine = |starter: &str| {
        let line = format!("run {starter} {} doctor --quick {}", env!("CARGO_BIN_EXE_ringmark"), hosts.slots(8));
        doctor(&mut hosts.cluster.command(&words(&line).collect::<Vec<_>>()))
    };
    let closed = format!(
        "warning: {}, IB: InfiniBand and RoCE ports cannot be opened (mlx5_0:1 ACTIVE): NCCL will use TCP",
        hosts.host(2)
    );
    let (status, text) = examine("");
    assert_eq!((status, findings(&text)), (Some(0), vec![closed.as_str()]), "{text}");
    // The check created no file.
    hosts.on(2, &format!("! test -e {devices}/uverbs0"));

    // Root's CAP_IPC_LOCK overrides any limit; ssh restores it on the other host.
    let limit = "prlimit --memlock=4194304:4194304";
    assert_eq!(findings(&examine(limit).1), [closed.as_str()]);
    let (status, text) = examine(&format!("setpriv --bounding-set -ipc_lock {limit}"));
    let limited =
        format!("warning: {}, memlock: locked memory is limited to 4 MB; InfiniBand needs it unlimited", hosts.host(1));
    let found = findings(&text);
    assert!(status == Some(0) && found.len() == 2 && found.contains(&limited.as_str()), "{text}");
    if is_made {
        fs::remove_dir(devices).expect("empty");
    }
}

// --- a sweep
// ------------------------------------------------------------------------------------------------------------

const KERNEL_NS: u64 = 10_000;
const WIRE_NS: u64 = 1000;
const WIRE_NS_PER_BYTE: f64 = 0.01;

fn set_times(hosts: &Hosts, more_on_second: &str) {
    let times = format!("KERNEL_NS={KERNEL_NS} WIRE_NS={WIRE_NS} WIRE_NS_PER_BYTE={WIRE_NS_PER_BYTE}");
    hosts.set(1, &times);
    hosts.set(2, &format!("{times} {more_on_second}"));
}

fn seconds(kernels: u64) -> f64 {
    (kernels * KERNEL_NS) as f64 / 1e9
}

#[test]
fn sweep_over_two_gpu_hosts_matches_hand_computed_figures() {
    let Some(hosts) = Hosts::up() else { return };
    let _tokens = take_all_cores();
    set_times(&hosts, "");
    let cases = [("1n1g", 1), ("1n2g", 2), ("2n1g", 2), ("2n2g", 4)];
    let names = cases.map(|(case, _)| case).join(",");
    let records = hosts.sweep(&names, 2, "--overlap off --iters 3 --warmup 1");
    let figures: Value = {
        let (_, json, problems) = run(ringmark("extract --json -").arg(hosts.out()));
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}{problems}"))
    };
    let rows = &rows_by_case(&figures)["resnet18"];
    let table = hosts.read("extract");
    for ((case, ranks), record) in cases.into_iter().zip(&records) {
        assert_eq!(
            (record.header.ranks.len(), record.header.backend),
            (ranks, if ranks == 1 { BackendName::Solo } else { BackendName::Nccl })
        );
        let base = seconds(compute(record) + AFTER_SUMS);
        let wire = |bytes: &Bytes| wire(*bytes, WIRE_NS, WIRE_NS_PER_BYTE);
        let sums: f64 = if ranks == 1 { 0.0 } else { record.header.buckets.iter().map(wire).sum() };
        let (speed, efficiency) = (2.0 * ranks as f64 / (base + sums), base / (base + sums));
        let row = &rows[case];
        let figure = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert_near(figure("units_per_second"), speed, 1e-9, case);
        assert_near(figure("speedup_over_base"), ranks as f64 * efficiency, 1e-9, case);
        assert_near(figure("efficiency"), efficiency, 1e-9, case);
        for part in row["scaling_loss"]["parts"].as_array().into_iter().flatten() {
            let expected = if part["part"] == "transfer" { sums } else { 0.0 };
            let lost = part["seconds"].as_f64().expect("seconds");
            assert!((lost - expected).abs() < 1e-12, "{case}: {part}, not {expected}");
        }
        let line = table.lines().find(|line| line.starts_with(case)).expect(case);
        let cells: Vec<&str> = words(line).map(|cell| cell.trim_matches(['(', ')'])).collect();
        let expected = [
            four_digits(speed),
            four_digits(speed / ranks as f64),
            format!("{:.2}", ranks as f64 * efficiency),
            format!("{:.1}", 100.0 * efficiency),
        ];
        assert_eq!([cells[3], cells[4], cells[5], cells[6]], expected.each_ref().map(String::as_str), "{table}");
    }
}

/// The ranks of a host have a communicator of NCCL, and so have the owners of the same part.
#[test]
fn hybrid_shards_over_two_gpu_hosts_match_all_reduce() {
    let Some(hosts) = Hosts::up() else { return };
    let _tokens = take_all_cores();
    let options =
        "--device cuda --iters 4 --warmup 1 --lr-warmup-iters 0 --freeze-batch-norm --strategies all-reduce,hsdp";
    let options = format!("{} {options}", hosts.slots(2));
    succeed(&cluster_sweep::command(&hosts.cluster, "2n2g", &hosts.out(), &options).output().expect("starts"));
    let files = fs::read_dir(hosts.out().join("2n2g")).expect("results").map(|file| file.expect("a file").path());
    let records = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let records = records.map(|path| RunRecord::read(&fs::read(path).expect("read")[..]).expect("a record"));
    let losses: Vec<f64> = records
        .map(|record| {
            assert_eq!((record.failure(), record.header.backend), (None, BackendName::Nccl));
            checksum(&record);
            record.iterations[3].loss.iter().sum()
        })
        .collect();
    let [one, other] = losses[..] else { panic!("{losses:?}") };
    assert_near(one, other, 1e-5, "loss of the fourth iteration");
}

#[test]
fn slow_gpu_of_second_host_is_named_in_all_outputs() {
    let Some(hosts) = Hosts::up() else { return };
    let _tokens = take_all_cores();
    set_times(&hosts, "FAULTY_DEVICE=1 SLOW_FACTOR=2");
    let records = hosts.sweep("2n2g", 2, "--overlap off --iters 14 --warmup 2");
    let waited = seconds(compute(&records[0]) + AFTER_SUMS);
    let named = format!("rank 3 on host {} is a straggler", hosts.host(2));
    let described = format!(
        "{named}: in 100.0 % of the iterations, 2.00 times the others' compute time; the others waited {} ms for \
         it in each",
        three_digits(1e3 * waited)
    );
    let log = fs::read_to_string(hosts.out().join("2n2g/resnet18_b2_fp32_1.log")).expect("a log");
    for (place, text) in [("log", log), ("extract", hosts.read("extract")), ("report", hosts.read("report"))] {
        // On one line, because a table may wrap anywhere.
        let text = words(&text).collect::<Vec<_>>().join(" ");
        assert!(text.contains(&described), "{place}: {text}");
        assert_eq!(text.matches(" is a straggler").count(), text.matches(&named).count(), "{place}: {text}");
    }
}

// --- hangs and kills
// -----------------------------------------------------------------------------------------------------

/// Returns the outcome of a sweep of 2n2g whose last rank gets `signal`, or whose GPU fails by itself. Checks that no
/// process is left.
fn failed_sweep(hosts: &Hosts, fault: &str, signal: Option<Signal>) -> FaultOutcome {
    let tokens = take_all_cores();
    let folder = hosts.folder.path().join(words(fault).collect::<String>());
    fs::create_dir(&folder).expect("made");
    let options = format!("{} --device cuda --iters 100000 --stall-timeout 10", hosts.slots(2));
    let mut sweep = Sweep::start(&hosts.cluster, &folder, "2n2g", &options);
    match signal {
        Some(signal) => {
            sweep.reach();
            kill(cluster_sweep::rank_on(&hosts.cluster, 2), signal).expect("it runs");
        }
        None => wait_until("it trains", || sweep.has_trained()),
    }
    // From here on the test only waits for the timeout.
    drop(tokens);
    let outcome = sweep.end(Instant::now());
    cluster_sweep::print(fault, &outcome);
    cluster_sweep::until_empty(&hosts.cluster);
    assert_eq!(outcome.status, Some(1), "{outcome:?}");
    outcome
}

#[test]
fn failed_rank_or_gpu_is_named_with_its_host() {
    let Some(hosts) = Hosts::up() else { return };
    let rank = format!("rank 3 of 4 on host {}", hosts.host(2));

    // With sockets the other ranks detect the end before mpirun does, and must not be blamed.
    hosts.set(1, "SOCKETS=1");
    hosts.set(2, "SOCKETS=1");
    let killed = failed_sweep(&hosts, "rank of a GPU killed", Some(Signal::SIGKILL)).last_line;
    // Only mpirun knows the signal, and does not always report it.
    let ends = ["was killed by signal 9 (SIGKILL) in iteration ", "exited without an error message in iteration "];
    assert!(ends.iter().any(|end| killed.contains(&format!("failed: {rank} {end}"))), "{killed}");

    let stopped = failed_sweep(&hosts, "rank of a GPU stopped", Some(Signal::SIGSTOP)).last_line;
    let words = format!("failed: no progress for 10 s: {rank} (process ");
    assert!(stopped.contains(&words) && stopped.contains(") has not reported for "), "{stopped}");
    assert!(stopped.contains("; ranks 0-2 wait for it in iteration "), "{stopped}");

    hosts.set(2, "FAULTY_DEVICE=1 HANGING_SUM=20");
    let hung = failed_sweep(&hosts, "sum of NCCL without an end", None).last_line;
    let words =
        format!("all 4 ranks wait for each other in iteration 7, all-reduce of bucket 1, {rank} furthest behind: ");
    assert!(hung.contains(&words) && hung.contains(&format!("(dmesg on {})", hosts.host(2))), "{hung}");
    assert!(hung.contains("; ranks 0-2 wait for it in iteration 7, all-reduce of bucket 2"), "{hung}");

    hosts.set(2, "FAULTY_DEVICE=1 FAILING_KERNEL=3000");
    let lost = failed_sweep(&hosts, "GPU lost", None).last_line;
    let words =
        format!("failed: {rank}: libtorch: CUDA error: unspecified launch failure: check dmesg for Xid errors, ");
    assert!(lost.contains(&words), "{lost}");
}
