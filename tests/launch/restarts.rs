//! Runs that are started again after a loss (`--restarts`).

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{Interruption, RunRecord};
use ringmark_core::dimension::Seconds;
use ringmark_core::manifest::RunState;

use crate::support::core_tokens::take_all_cores;
use crate::support::interrupted_sweep::{resume_command, succeeds_silently};
use crate::support::processes_of;
use crate::support::sandbox::{Sandbox, SmallDisk, compile_library, fails, refused, ringmark, run, wait_until, words};
use crate::support::worker_run::checksum;

/// A slow rank computes the same results and leaves time to kill it.
const SLOW: &str = "--inject slow:0:1000";

const RUN: &str = "1n2g/mxnet-lenet_b4_fp32_1";

fn sweep(sandbox: &Sandbox, out: &str, options: &str) -> Command {
    let mut command = ringmark(
        "sweep --no-doctor --device cpu --model mxnet-lenet --batch-size 4 --image-size 28 --warmup 2 --threads 1 \
         --iters 60 --lr-warmup-iters 0 --hosts localhost:2 --cases 1n2g --runs 1",
    );
    if !options.contains("--lr ") {
        command.args(["--lr", "0.03125"]);
    }
    command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path(out));
    command
}

fn file(sandbox: &Sandbox, out: &str, ending: &str) -> PathBuf {
    sandbox.path(out).join(format!("{RUN}.{ending}"))
}

fn record(sandbox: &Sandbox, out: &str) -> RunRecord {
    RunRecord::read(&fs::read(file(sandbox, out, "jsonl")).expect("a record")[..]).expect("whole")
}

fn workers(sandbox: &Sandbox) -> Vec<Pid> {
    let program = sandbox.worker().display().to_string();
    let of_worker = |(_, line): &(Pid, String)| line.starts_with(&program);
    processes_of(sandbox.folder.path()).into_iter().filter(of_worker).map(|(process, _)| process).collect()
}

fn start(sandbox: &Sandbox, options: &str) -> Child {
    let output = |name| File::create(sandbox.path(name)).expect("created");
    let mut command = sweep(sandbox, "out", &format!("{options} {SLOW}"));
    command.stdout(output("stdout")).stderr(output("stderr")).stdin(Stdio::null()).spawn().expect("starts")
}

/// Waits for a sweep that must succeed, and returns its standard output.
fn end(sandbox: &Sandbox, mut sweep: Child) -> String {
    let status = sweep.wait().expect("ended");
    let text = |name| fs::read_to_string(sandbox.path(name)).expect("UTF-8");
    assert_eq!(status.code(), Some(0), "{}{}", text("stdout"), text("stderr"));
    assert_eq!(sandbox.states(), [RunState::Finished]);
    text("stdout")
}

/// Checks that the run in `out` has the results of an undisturbed one, and returns its interruptions with the
/// iterations before each.
fn interruptions(sandbox: &Sandbox) -> Vec<(u32, Interruption)> {
    let all = all_interruptions(sandbox);
    for (behind, interruption) in &all {
        let [start, load] = [interruption.start, interruption.load].map(|time| time.expect("training continued"));
        assert!(start.0 > 0.0, "{interruption:?}");
        assert_eq!(load.0 > 0.0, *behind > 0, "{interruption:?}");
    }
    all
}

/// Same as [`interruptions`], also of attempts that did not continue.
fn all_interruptions(sandbox: &Sandbox) -> Vec<(u32, Interruption)> {
    succeeds_silently(&mut sweep(sandbox, "whole", SLOW));
    let (whole, restarted) = (record(sandbox, "whole"), record(sandbox, "out"));
    assert_eq!(checksum(&restarted), checksum(&whole));
    let losses = |record: &RunRecord| -> Vec<Vec<f64>> {
        record.iterations.iter().map(|iteration| iteration.loss.clone()).collect()
    };
    assert_eq!(losses(&restarted), losses(&whole));
    let mut before = restarted.header.started;
    let each = restarted.header.resumptions.iter().map(|resumption| {
        let interruption = resumption.interruption.clone().expect("started again by the launcher");
        let Interruption { cause, iteration, redone, stopped, detection, stop, start, load, .. } = &interruption;
        assert!(cause.starts_with("rank ") && cause.contains(" of 2 on host "), "{cause}");
        // An attempt that did not continue has printed no iteration.
        assert_eq!(*redone, iteration.saturating_sub(resumption.behind));
        assert!(detection.0 >= 0.0 && stop.0 >= 0.0, "{interruption:?}");
        assert!(before.0 < stopped.0 && *stopped <= resumption.started, "{before}, {resumption:?}");
        let again = start.map_or(0.0, |time| time.0) + load.map_or(0.0, |time| time.0);
        assert!((stopped.0 + again - resumption.started.0).abs() < 0.01, "{resumption:?}");
        before = resumption.started;
        (resumption.behind, interruption)
    });
    each.collect()
}

/// Kills a rank after the first checkpoint, and another one after the first checkpoint of the second attempt.
fn restarts_from_checkpoints(mode: &str) {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let checkpoint = file(&sandbox, "out", "safetensors");
    let run = start(&sandbox, &format!("--restarts 3 --checkpoint-every 7 --checkpoint-mode {mode}"));
    let mut before = Vec::new();
    for victim in [0, 1] {
        wait_until("a checkpoint is written", || fs::read(&checkpoint).is_ok_and(|written| written != before));
        let mut ranks = workers(&sandbox);
        ranks.sort();
        kill(ranks[victim.min(ranks.len() - 1)], Signal::SIGKILL).expect("running process");
        wait_until("the rank has ended", || !workers(&sandbox).contains(&ranks[victim]));
        before = fs::read(&checkpoint).expect("kept");
    }
    let stdout = end(&sandbox, run);
    for number in [1, 2] {
        let words = format!("\n1n2g run 1 of 1: restart {number} of 3 from checkpoint {}: rank ", checkpoint.display());
        assert!(stdout.contains(&words), "{stdout}");
    }
    let name = |ending: &str| format!("mxnet-lenet_b4_fp32_1.{ending}");
    assert_eq!(sandbox.files("1n2g"), ["jsonl", "log", "log.1", "log.2"].map(name).into());
    let interruptions = interruptions(&sandbox);
    let behind: Vec<u32> = interruptions.iter().map(|(behind, _)| *behind).collect();
    assert!(behind.len() == 2 && behind[0] <= behind[1] && behind.iter().all(|at| at % 7 == 0), "{behind:?}");
}

#[test]
fn killed_rank_restarts_from_the_last_checkpoint() {
    restarts_from_checkpoints("sync");
}

#[test]
fn killed_rank_restarts_from_a_checkpoint_written_beside_the_steps() {
    restarts_from_checkpoints("async");
}

#[test]
fn killed_rank_without_a_checkpoint_restarts_from_the_start() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let run = start(&sandbox, "--restarts 1");
    let log = file(&sandbox, "out", "log.part");
    wait_until("the run trains", || fs::read_to_string(&log).is_ok_and(|log| log.contains("Batch[5]")));
    kill(workers(&sandbox)[0], Signal::SIGKILL).expect("running process");
    let stdout = end(&sandbox, run);
    assert!(stdout.contains("\n1n2g run 1 of 1: restart 1 of 1 from the start: rank "), "{stdout}");
    let interruptions = interruptions(&sandbox);
    let [(behind, interruption)] = interruptions.as_slice() else { panic!("{interruptions:?}") };
    assert_eq!((*behind, interruption.load), (0, Some(Seconds(0.0))));
    assert!(interruption.redone >= 5, "{interruption:?}");
}

/// Kills the rank that reads the checkpoint of a restarted run, and in the next attempt the other one meanwhile.
#[test]
fn kill_while_a_checkpoint_is_read_is_followed_by_the_next_restart() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let [real, library, mark] = ["worker.real", "slow_disk.so", "reader"].map(|name| sandbox.path(name));
    fs::rename(sandbox.worker(), &real).expect("a link");
    compile_library("slow_disk.c", &library, &[]);
    let variables = format!("LD_PRELOAD={} SLOW_NAME=.safetensors SLOW_MARK={}", library.display(), mark.display());
    sandbox.write_program("worker", &format!("#!/bin/sh\nexport {variables}\nexec {} \"$@\"\n", real.display()));
    let run = start(&sandbox, "--restarts 3 --checkpoint-every 7");
    let checkpoint = file(&sandbox, "out", "safetensors");
    wait_until("a checkpoint is written", || checkpoint.exists());
    kill(workers(&sandbox)[0], Signal::SIGKILL).expect("running process");
    let reader = || Some(Pid::from_raw(fs::read_to_string(&mark).ok()?.trim().parse().ok()?));
    for is_reader_killed in [true, false] {
        wait_until("the checkpoint is read", || reader().is_some());
        let reader = reader().expect("marked");
        let victim = workers(&sandbox).into_iter().find(|process| (*process == reader) == is_reader_killed);
        if is_reader_killed {
            // The next attempt is slow as well.
            fs::remove_file(&mark).expect("marked");
        }
        kill(victim.expect("two ranks"), Signal::SIGKILL).expect("running process");
    }
    let stdout = end(&sandbox, run);
    assert_eq!(
        stdout.matches(&format!(" of 3 from checkpoint {}: rank ", checkpoint.display())).count(),
        3,
        "{stdout}"
    );
    let interruptions = all_interruptions(&sandbox);
    let continued: Vec<bool> = interruptions.iter().map(|(_, one)| one.start.is_some() && one.load.is_some()).collect();
    assert_eq!(continued, [false, false, true]);
    assert!(interruptions.iter().all(|(behind, _)| *behind == interruptions[0].0 && behind % 7 == 0));
}

/// Kills a rank of a restarted run before it trains.
#[test]
fn kill_while_a_restart_begins_is_followed_by_the_next_restart() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let run = start(&sandbox, "--restarts 4 --checkpoint-every 7 --checkpoint-mode async");
    let checkpoint = file(&sandbox, "out", "safetensors");
    wait_until("a checkpoint is written", || checkpoint.exists());
    let mut seen = workers(&sandbox);
    kill(seen[0], Signal::SIGKILL).expect("running process");
    for (rank, delay) in [(0, 0), (1, 100), (1, 500)] {
        let new = || workers(&sandbox).into_iter().filter(|process| !seen.contains(process)).collect::<Vec<_>>();
        wait_until("both ranks start", || new().len() == 2);
        let started = new();
        thread::sleep(Duration::from_millis(delay));
        kill(started[rank], Signal::SIGKILL).expect("running process");
        seen.extend(started);
    }
    let stdout = end(&sandbox, run);
    assert_eq!(stdout.matches(" of 4 from checkpoint ").count(), 4, "{stdout}");
    assert_eq!(all_interruptions(&sandbox).len(), 4);
}

/// The disk has space for one checkpoint: each attempt fails at the second one, and the run continues once there is space.
#[test]
fn full_disk_keeps_the_checkpoint_for_a_later_attempt() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let Some(disk) = SmallDisk::with_size(&sandbox.path("out"), "5m") else { return };
    let options = format!("--restarts 1 --checkpoint-every 7 --checkpoint-mode async {SLOW}");
    let (status, stdout, stderr) = run(&mut sweep(&sandbox, "out", &options));
    assert_eq!(status, Some(1), "{stdout}{stderr}");
    let checkpoint = file(&sandbox, "out", "safetensors");
    let restart =
        format!("\n1n2g run 1 of 1: restart 1 of 1 from checkpoint {}: rank 0 of 2 on host ", checkpoint.display());
    assert!(stdout.contains(&restart), "{stdout}");
    let words =
        format!("checkpoint: {} cannot be written: No space left on device (os error 28): ", checkpoint.display());
    assert!(
        stderr.contains(&words) && stderr.contains(" MB beside the previous checkpoint, which is kept"),
        "{stderr}"
    );
    disk.remount("size=16m");
    let stdout = succeeds_silently(&mut resume_command(&stderr));
    assert!(stdout.contains(": resuming from checkpoint "), "{stdout}");
    succeeds_silently(&mut sweep(&sandbox, "whole", SLOW));
    let [whole, resumed] = ["whole", "out"].map(|out| record(&sandbox, out));
    assert_eq!(checksum(&resumed), checksum(&whole));
    assert_eq!(resumed.header.iterations_before(), 7);
}

/// Damages the checkpoint after both ranks have died, before the launcher starts them again.
fn begins_again_after(damage: fn(&mut Vec<u8>), reason: &str) {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let run = start(&sandbox, "--restarts 1 --checkpoint-every 7");
    let checkpoint = file(&sandbox, "out", "safetensors");
    wait_until("a checkpoint is written", || checkpoint.exists());
    let launcher = Pid::from_raw(run.id().cast_signed());
    kill(launcher, Signal::SIGSTOP).expect("running process");
    for rank in workers(&sandbox) {
        // mpirun may have ended the second one already.
        let _ = kill(rank, Signal::SIGKILL);
    }
    wait_until("the ranks have ended", || workers(&sandbox).is_empty());
    let mut bytes = fs::read(&checkpoint).expect("kept");
    damage(&mut bytes);
    fs::write(&checkpoint, bytes).expect("written");
    kill(launcher, Signal::SIGCONT).expect("stopped process");
    let stdout = end(&sandbox, run);
    assert!(stdout.contains("\n1n2g run 1 of 1: restart 1 of 1 from the start: rank "), "{stdout}");
    let stderr = fs::read_to_string(sandbox.path("stderr")).expect("UTF-8");
    let shown = checkpoint.display();
    let warning = format!("warning: the checkpoint {shown} is damaged, so the run begins again: {reason}");
    assert!(stderr.contains(&warning), "{stderr}");
    let interruptions = interruptions(&sandbox);
    let [(behind, _)] = interruptions.as_slice() else { panic!("{interruptions:?}") };
    assert_eq!(*behind, 0);
}

#[test]
fn run_with_a_truncated_checkpoint_begins_again() {
    begins_again_after(|bytes| bytes.truncate(bytes.len() / 2), "the header describes ");
}

#[test]
fn run_with_a_changed_checkpoint_begins_again() {
    let flip_bit = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    };
    begins_again_after(flip_bit, "tensor \"");
}

/// The stopped rank may still finish the run when it is ended: then the run counts; else it continues from its checkpoint.
#[test]
fn rank_that_stops_in_the_last_iteration_does_not_fail_the_run() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let options = "--restarts 2 --inject stop:60:1 --checkpoint-every 30 --stall-timeout 6";
    let (status, stdout, stderr) = run(&mut sweep(&sandbox, "out", options));
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let is_complete = stderr.contains("warning: the run was complete when its ranks were stopped: no progress for 6 s");
    assert_ne!(is_complete, stdout.contains(": restart 1 of 2"), "{stdout}{stderr}");
    assert_eq!(record(&sandbox, "out").iterations.len(), 60);
}

#[test]
fn restarts_are_limited_and_only_for_losses() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let ended = |out: &str, options: &str| {
        let (status, stdout, stderr) = run(&mut sweep(&sandbox, out, &format!("--restarts 2 {options}")));
        assert_eq!(status, Some(1), "{stdout}{stderr}");
        (stdout.matches(": restart ").count(), stderr)
    };
    // The fault is in the same iteration of every attempt.
    let (restarts, stderr) = ended("failing", "--inject fail:3:1");
    assert_eq!(restarts, 2, "{stderr}");
    assert!(stderr.starts_with("1n2g run 1 of 1: no restart: --restarts 2 are used up\n"), "{stderr}");
    // A loss that is not finite, and weights that cannot be read.
    assert_eq!(ended("infinite", "--lr 1000000").0, 0);
    let weights = sandbox.path("weights.safetensors");
    fs::write(&weights, "no weights").expect("written");
    assert_eq!(ended("refused", &format!("--init {}", weights.display())).0, 0);
    // Without the option, nothing is started again.
    let stderr = fails(&mut sweep(&sandbox, "once", "--inject fail:3:1"));
    assert!(!stderr.contains(": no restart"), "{stderr}");
    let refusal = |options: &str| refused(&mut sweep(&sandbox, "usage", options), 2);
    expect![[r#"
        error: --spare-hosts needs restarts: add --restarts N
    "#]]
    .assert_eq(&refusal("--spare-hosts b"));
    expect![[r#"
        error: --spare-hosts localhost: the host is in --hosts already: remove it from one of them
    "#]]
    .assert_eq(&refusal("--restarts 1 --spare-hosts localhost:2"));
}
