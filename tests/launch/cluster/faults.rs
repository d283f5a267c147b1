//! Real faults on four hosts, the time until each is reported, and the message. Afterwards no process is left on any
//! host, and finished results can still be read.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::Phase;
use ringmark_core::stats::summary::median;

use crate::support::cluster::{Cluster, succeed};
use crate::support::cluster_sweep::{FaultOutcome, Sweep, command, print, rank_on, until_empty};
use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{run, succeeds, wait_until};

/// Causes a fault in the iterations of `4n1g`, after `1n1g` has finished. If `folder` has a sweep from an earlier
/// fault, the sweep is resumed and does not run `1n1g` again.
fn inject_fault(cluster: &Cluster, folder: &Path, fault: &str, fault_action: impl FnOnce(&Sweep)) -> FaultOutcome {
    let tokens = take_all_cores();
    let options = if folder.join("out").exists() { "--resume" } else { "" };
    let mut sweep = Sweep::start(cluster, folder, "1n1g,4n1g", options);
    sweep.reach();
    // From here on the test only waits for the fault to be detected.
    drop(tokens);
    let since = Instant::now();
    fault_action(&sweep);
    let outcome = sweep.end(since);
    print(fault, &outcome);
    until_empty(cluster);
    // Finished results exist, and the unfinished run does not.
    let finished = fs::read(sweep.out.join("1n1g/resnet18_b2_fp32_1.jsonl")).expect("finished run");
    assert_eq!(RunRecord::read(&finished[..]).expect("whole").failure(), None);
    let (_, table, _) = run(Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(&sweep.out));
    assert!(table.lines().any(|line| line.starts_with("1n1g ") && line.contains(" 1/1")), "{table}");
    outcome
}

/// One fault after the other on the same hosts and in the same folder: the sweep is resumed after each.
#[test]
fn killed_or_stopped_processes_are_reported_and_cleaned_up() {
    let Some(cluster) = Cluster::start(4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    check_killed_rank(&cluster, folder.path());
    check_stopped_rank(&cluster, folder.path());
    check_interrupted_launcher(&cluster, folder.path());
    check_killed_launcher(&cluster, folder.path());
}

fn check_killed_rank(cluster: &Cluster, folder: &Path) {
    let kill = |_: &Sweep| kill(rank_on(cluster, 3), Signal::SIGKILL).expect("running process");
    let outcome = inject_fault(cluster, folder, "rank killed by SIGKILL", kill);
    // Only mpirun knows the signal; it does not report it if the rank's neighbors exit before it notices.
    let is_known = outcome.log.contains("mpirun noticed that process rank 2 ");
    let end = if is_known { "was killed by signal 9 (SIGKILL)" } else { "exited without an error message" };
    let words = &format!("failed: rank 2 of 4 on host {} {end} in iteration ", cluster.host(3));
    assert!(outcome.last_line.contains(words), "{}\n{}", outcome.last_line, outcome.log);
    assert_eq!(outcome.status, Some(1));
}

fn check_stopped_rank(cluster: &Cluster, folder: &Path) {
    let stop = |_: &Sweep| kill(rank_on(cluster, 3), Signal::SIGSTOP).expect("running process");
    let outcome = inject_fault(cluster, folder, "rank stopped by SIGSTOP", stop);
    let words = &format!("failed: no progress for 10 s: rank 2 of 4 on host {} (process ", cluster.host(3));
    assert!(outcome.last_line.contains(words), "{}", outcome.last_line);
    assert!(outcome.last_line.contains(") has not reported for "), "{}", outcome.last_line);
    assert!(outcome.last_line.contains("; ranks 0-1, 3 wait for it in iteration "), "{}", outcome.last_line);
    assert_eq!(outcome.status, Some(1));
}

fn check_interrupted_launcher(cluster: &Cluster, folder: &Path) {
    for (fault, signal) in [("launcher: Ctrl-C", Signal::SIGINT), ("launcher: SIGTERM", Signal::SIGTERM)] {
        let outcome = inject_fault(cluster, folder, fault, |sweep| sweep.signal(signal));
        assert!(outcome.last_line.contains("interrupted"), "{}", outcome.last_line);
        assert_eq!(outcome.status, Some(128 + signal as i32));
    }
}

fn check_killed_launcher(cluster: &Cluster, folder: &Path) {
    let kill = |sweep: &Sweep| {
        sweep.signal(Signal::SIGKILL);
        until_empty(cluster);
    };
    let outcome = inject_fault(cluster, folder, "launcher: kill -9", kill);
    assert_eq!(outcome.status, None);
}

#[test]
fn host_with_a_failed_link_is_reported() {
    let Some(cluster) = Cluster::start(4) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cut = |_: &Sweep| succeed(&cluster.call(&["on", "3", "ip", "link", "set", "eth0", "down"]));
    let outcome = inject_fault(&cluster, folder.path(), "link of a host down", cut);
    let host = format!("host {} (process ", cluster.host(3));
    assert!(outcome.last_line.contains(&host), "{}", outcome.last_line);
    assert!(outcome.last_line.contains("its host or link is down; ranks 0-1, 3 wait for it"), "{}", outcome.last_line);
    assert_eq!(outcome.status, Some(1));
}

#[test]
fn run_continues_when_a_link_recovers() {
    let Some(cluster) = Cluster::start(4) else { return };
    let tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let mut sweep = Sweep::start(&cluster, folder.path(), "4n1g", "--stall-timeout 30 --iters 100000");
    sweep.reach();
    // From here on the sweep waits for the network.
    succeed(&cluster.call(&["limit", "200mbit"]));
    drop(tokens);
    // A rank tries to reach the launcher for this long after it lost the connection, regardless of the connection's
    // age.
    thread::sleep(Duration::from_secs(30));
    let link = |state| succeed(&cluster.call(&["on", "3", "ip", "link", "set", "eth0", state]));
    let since = Instant::now();
    link("down");
    // Longer than the rank's TCP timeout: it loses the connection.
    thread::sleep(Duration::from_secs(10));
    link("up");
    let iterations = || sweep.log().matches("Epoch[0] Batch[").count();
    let before = iterations();
    // One iteration may have been in progress.
    wait_until("the run continues", || iterations() > before + 2);
    println!("{:<34} {:>5.1} s  the run goes on", "link of a host down for 10 s", since.elapsed().as_secs_f64());
    assert!(!sweep.log().contains("lost the connection to the launcher"), "{}", sweep.log());
    sweep.signal(Signal::SIGINT);
    sweep.end(Instant::now());
    until_empty(&cluster);
}

#[test]
fn slow_link_increases_the_exposed_all_reduce() {
    let Some(cluster) = Cluster::start(4) else { return };
    let tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let exposed = |out: &str| {
        let since = Instant::now();
        // Without overlap: on a loaded machine backward may take as long as the transfer and hide it.
        let mut command = command(&cluster, "4n1g", &folder.path().join(out), "--iters 3 --warmup 1 --overlap off");
        succeed(&command.output().expect("starts"));
        let record = fs::read(folder.path().join(out).join("4n1g/resnet18_b2_fp32_1.jsonl")).expect("written");
        let record = RunRecord::read(&record[..]).expect("whole");
        // The first rank to arrive is exposed to the whole transfer.
        let longest = |iteration: &Iteration| {
            let exposed = &iteration.phases[Phase::ExposedAllreduce];
            exposed.iter().map(|time| time.0).fold(0.0, f64::max)
        };
        let exposed: Vec<f64> = record.iterations[1..].iter().map(longest).collect();
        let gradients: u64 = record.header.buckets.iter().map(|bucket| bucket.0).sum();
        (median(&exposed).expect("iterations"), gradients as f64, since.elapsed())
    };
    let (free, ..) = exposed("free");
    let limit = "tc qdisc replace dev eth0 root tbf rate 100mbit burst 256k latency 50ms";
    succeed(&cluster.call(&[&["on", "3"], &limit.split(' ').collect::<Vec<_>>()[..]].concat()));
    // The sweep waits for the network.
    drop(tokens);
    let (narrow, gradients, time) = exposed("narrow");
    let words = format!("exposed all-reduce {narrow:.1} s an iteration, {free:.1} s without the limit");
    println!("{:<34} {:>5.1} s  {words}", "link of a host at 100 Mbit/s", time.as_secs_f64());
    // Host 3 sends 3/4 of the gradients and 3/4 of the sums at 12.5 MB/s. Part of the first half may be sent before
    // the last rank arrives.
    let least = 0.5 * 1.5 * gradients / 12.5e6;
    // Other load may have made the ranks wait for each other as long without the limit.
    assert!(narrow > least && (narrow > free || free > least), "{words}");
    until_empty(&cluster);
}

#[test]
fn only_the_slowed_host_is_reported() {
    let Some(cluster) = Cluster::start(4) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    succeed(&cluster.call(&["quota", "2", "50"]));
    let since = Instant::now();
    // Two of the four hosts: more ranks than cores would share cores and be indistinguishable. An iteration takes
    // longer than the tenth of a second over which the quota applies.
    let mut command = command(&cluster, "2n1g", &out, "--iters 24 --warmup 4 --image-size 112");
    succeed(&command.output().expect("starts"));
    let time = since.elapsed();
    let record = fs::read(out.join("2n1g/resnet18_b2_fp32_1.jsonl")).expect("written");
    let record = RunRecord::read(&record[..]).expect("whole");
    let warnings = &record.end.as_ref().expect("an end").warnings;
    let warned = |kind: WarningKind| -> Vec<&str> {
        warnings.iter().filter(|warning| warning.kind == kind).map(|warning| warning.text.as_str()).collect()
    };
    let slow = warned(WarningKind::Straggler);
    println!("{:<34} {:>5.1} s  {}", "half a processor on a host", time.as_secs_f64(), slow.join("; "));
    // If other load may be the reason, no rank is called slow because of its host.
    let is_disturbed = [WarningKind::OtherLoad, WarningKind::Steal].into_iter().any(|kind| !warned(kind).is_empty());
    let counted = &record.iterations[4..];
    let is_first_slower = |iteration: &&Iteration| iteration.before_allreduce[0] > iteration.before_allreduce[1];
    let first_slower = counted.iter().filter(is_first_slower).count();
    let is_second = |text: &&str| text.starts_with(&format!("rank 1 on host {} is a straggler", cluster.host(2)));
    assert!(slow.iter().any(is_second) || is_disturbed, "{first_slower} of 20 iterations: {warnings:?}");
    // The first rank is named only if it was the slower one.
    assert!(
        slow.iter().all(is_second) || 2 * first_slower > counted.len(),
        "{first_slower} of 20 iterations: {slow:?}"
    );
    until_empty(&cluster);
}

#[test]
fn sweep_resumes_after_a_full_disk() {
    let Some(cluster) = Cluster::start(4) else { return };
    let _tokens = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    fs::create_dir(&out).expect("made");
    let mounted = out.display().to_string();
    // Mounted only on the first host, which runs the launcher and rank 0.
    let line = format!("mount -t tmpfs -o size=32m none {mounted}");
    // Leaves little space to fill while the run continues.
    let most = format!("{line}; dd if=/dev/zero of={mounted}/most bs=1M count=26");
    succeed(&cluster.call(&["on", "1", "sh", "-euc", &most]));
    let filled = folder.path().join("filled");
    let options = "--iters 12 --warmup 2";
    let mut sweep = Sweep::start(&cluster, folder.path(), "1n1g,4n1g", options);
    // Waits for the second case, before its ranks start; then its log or its record does not fit.
    let log = format!("{mounted}/4n1g/resnet18_b2_fp32_1.log.part");
    let launcher = sweep.launcher.id();
    let fill = format!(
        "while kill -0 {launcher} && ! test -s {log}; do sleep 0.05; done; dd if=/dev/zero of={mounted}/filler bs=4k"
    );
    let since = Instant::now();
    let filler = cluster.call(&["on", "1", "sh", "-uc", &format!("{fill}; touch {}", filled.display())]);
    assert!(filled.exists(), "{filler:?}");
    let since = since.max(Instant::now());
    let outcome = sweep.end(since);
    let output_text = sweep.errors();
    let words = output_text.lines().find(|line| line.contains("No space left")).unwrap_or_default().to_owned();
    println!("{:<34} {:>5.1} s  {words}", "full disk at the results", outcome.time.as_secs_f64());
    assert_eq!(outcome.status, Some(1), "{output_text}");
    assert!(!words.is_empty() && output_text.contains("resume with: "), "{output_text}");
    until_empty(&cluster);

    succeed(&cluster.call(&["on", "1", "rm", &format!("{mounted}/filler"), &format!("{mounted}/most")]));
    let again = command(&cluster, "1n1g,4n1g", &out, &format!("{options} --resume")).output().expect("starts");
    succeed(&again);
    let output_text = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(output_text.contains("1 of 2 runs are finished"), "{output_text}");
    let tables = folder.path().join("tables").display().to_string();
    succeed(&cluster.call(&["on", "1", env!("CARGO_BIN_EXE_ringmark"), "extract", &mounted, "--out", &tables]));
}

#[test]
fn interrupted_sweep_resumes_and_locks_its_folder() {
    let Some(cluster) = Cluster::start(4) else { return };
    let first_turn = take_all_cores();
    let folder = tempfile::tempdir().expect("a folder");
    let options = "--iters 20 --warmup 4 --stall-timeout 300";
    let mut sweep = Sweep::start(&cluster, folder.path(), "1n1g,4n1g", options);
    wait_until("the second run is under way", || sweep.has_trained());
    // Prevents it from ending before the signal, on a machine of any speed.
    kill(rank_on(&cluster, 3), Signal::SIGSTOP).expect("running process");
    drop(first_turn);

    let since = Instant::now();
    let second = command(&cluster, "1n1g,4n1g", &sweep.out, &format!("{options} --resume")).output().expect("starts");
    let output_text = String::from_utf8_lossy(&second.stderr).into_owned();
    println!("{:<34} {:>5.1} s  {}", "two sweeps into one folder", since.elapsed().as_secs_f64(), output_text.trim());
    assert_eq!(second.status.code(), Some(2), "{output_text}");
    assert!(output_text.contains("is in use by"), "{output_text}");

    sweep.signal(Signal::SIGINT);
    let outcome = sweep.end(Instant::now());
    print("interrupted in the middle of a run", &outcome);
    assert!(outcome.last_line.contains("resume with: ") && outcome.last_line.ends_with("--resume"), "{outcome:?}");
    let first = fs::read(sweep.out.join("1n1g/resnet18_b2_fp32_1.jsonl")).expect("finished run");
    let _tokens = take_all_cores();
    let since = Instant::now();
    let again = command(&cluster, "1n1g,4n1g", &sweep.out, &format!("{options} --resume")).output().expect("starts");
    succeed(&again);
    println!("{:<34} {:>5.1} s  1 of 2 runs are finished", "resumed", since.elapsed().as_secs_f64());
    assert!(String::from_utf8_lossy(&again.stdout).contains("1 of 2 runs are finished"), "{again:?}");
    assert_eq!(fs::read(sweep.out.join("1n1g/resnet18_b2_fp32_1.jsonl")).expect("still there"), first);
    succeeds(Command::new(env!("CARGO_BIN_EXE_ringmark")).arg("extract").arg(&sweep.out));
    until_empty(&cluster);
}
