//! Runs that are started again after a loss (`--restarts`).

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use expect_test::expect;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{Interruption, RunRecord};
use ringmark_core::dimension::Seconds;
use ringmark_core::manifest::RunState;

use crate::support::core_tokens::take_all_cores;
use crate::support::interrupted_sweep::succeeds_silently;
use crate::support::processes_of;
use crate::support::sandbox::{Sandbox, fails, refused, ringmark, run, wait_until, words};
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
        assert_eq!(*redone, iteration - resumption.behind);
        let [start, load] = [start, load].map(|time| time.expect("training continued"));
        assert!(detection.0 >= 0.0 && stop.0 >= 0.0 && start.0 > 0.0, "{interruption:?}");
        assert_eq!(load.0 > 0.0, resumption.behind > 0, "{interruption:?}");
        assert!(before.0 < stopped.0 && *stopped < resumption.started, "{before}, {resumption:?}");
        assert!((stopped.0 + start.0 + load.0 - resumption.started.0).abs() < 0.01, "{resumption:?}");
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
