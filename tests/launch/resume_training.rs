//! Resumed sweeps of the real worker.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{EpochEnd, RunRecord};
use ringmark_core::manifest::{Manifest, RunState};

use crate::support::core_tokens::take_all_cores;
use crate::support::images::digits;
use crate::support::interrupted_sweep::{names, resume_command, succeeds_silently};
use crate::support::processes_of;
use crate::support::sandbox::{Sandbox, SmallDisk, fails, ringmark, run, succeeds, wait_until, words};

/// Returns `ringmark sweep` of one case with the real worker and results in the folder `out`.
fn real_sweep(sandbox: &Sandbox, out: &str, options: &str) -> Command {
    let mut command =
        ringmark("sweep --no-doctor --device cpu --model mxnet-lenet --batch-size 2 --warmup 2 --threads 1");
    command.args(words("--hosts localhost:2 --cases 1n2g")).args(words(options));
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path(out));
    command
}

#[test]
fn resumed_sweep_equals_an_uninterrupted_one() {
    let first_turn = take_all_cores();
    let sandbox = Sandbox::real();
    let part = sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_2.log.part");
    let begins = || fs::read_to_string(&part).is_ok_and(|log| log.contains("Batch[1]"));
    let options = "--iters 400 --runs 2";
    let mut sweep =
        real_sweep(&sandbox, "out", options).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    wait_until("the first run ends", || sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_1.log").exists());
    wait_until("the second run begins", begins);
    // Prevents the run from ending before the signal, on a machine of any speed.
    for (process, line) in processes_of(sandbox.folder.path()) {
        if line.starts_with(&sandbox.worker().display().to_string()) {
            kill(process, Signal::SIGSTOP).expect("running process");
        }
    }
    drop(first_turn);
    kill(Pid::from_raw(sweep.id().cast_signed()), Signal::SIGINT).expect("running process");
    assert_eq!(sweep.wait().expect("ended").code(), Some(130));
    assert_eq!(sandbox.left(), Vec::<String>::new());
    let _tokens = take_all_cores();
    let stdout = succeeds(real_sweep(&sandbox, "out", options).arg("--resume"));
    assert!(stdout.contains("\n1 of 2 runs are finished\n"), "{stdout}");
    let (status, ..) = run(&mut real_sweep(&sandbox, "whole", options));
    assert_eq!(status, Some(0));

    let files = |out: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(sandbox.path(out).join("1n2g")).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name")).collect()
    };
    let mut expected = files("whole");
    expected.insert("mxnet-lenet_b2_fp32_2.log.1".to_owned());
    assert_eq!(files("out"), expected);
    let checksums = |out: &str| -> Vec<Vec<String>> {
        let record = |number: u32| {
            let text =
                fs::read(sandbox.path(out).join(format!("1n2g/mxnet-lenet_b2_fp32_{number}.jsonl"))).expect("read");
            RunRecord::read(&text[..]).expect("a record").end.expect("an end").parameter_checksums
        };
        (1..=2).map(record).collect()
    };
    assert_eq!(checksums("out"), checksums("whole"));
    let ran_on = |out: &str| Manifest::find(&sandbox.path(out)).expect("readable").expect("present").ran_on;
    assert_eq!(ran_on("out"), ran_on("whole"));
    assert_eq!(ran_on("out").hosts[0].devices.len(), 2);
    assert_eq!(sandbox.extract().0, Some(0), "complete without 1n1g, which was not planned");
}

/// A rank is killed, then the sweep is interrupted: every loss, weight and epoch is identical to those of an
/// uninterrupted sweep, and record and log are complete.
#[test]
fn resume_from_checkpoint_is_bitwise_identical() {
    let sandbox = Sandbox::real();
    let data = sandbox.path("digits");
    fs::create_dir(&data).expect("made");
    digits(&data, 40);
    // A slow rank computes the same results and leaves time to kill it. Five steps per epoch.
    let sweep = |out: &str| {
        let mut command = ringmark(
            "sweep --no-doctor --device cpu --model mxnet-lenet --batch-size 4 --image-size 28 --warmup 2 --threads 1 --epochs 30 \
             --lr 0.03125 --lr-warmup-iters 0 --lr-schedule cosine --checkpoint-every 7 --inject slow:0:1000 --hosts localhost:2 \
             --cases 1n2g --runs 1",
        );
        command.arg("--data").arg(&data).arg("--validate").arg(&data);
        command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path(out));
        command
    };
    let checkpoint = sandbox.path("out/1n2g/mxnet-lenet_b4_fp32_1.safetensors");
    let workers = || {
        let of_worker = |(_, line): &(Pid, String)| line.starts_with(&sandbox.worker().display().to_string());
        processes_of(sandbox.folder.path()).into_iter().filter(of_worker).map(|(process, _)| process)
    };
    // Stops the sweep once the checkpoint differs from `before`, and checks its exit status.
    let stopped = |mut command: Command, before: &[u8], status: i32, stop: &dyn Fn(u32)| {
        let tokens = take_all_cores();
        let error = File::create(sandbox.path("stderr")).expect("created");
        let mut child = command.stdout(Stdio::null()).stderr(error).spawn().expect("starts");
        wait_until("a checkpoint is written", || fs::read(&checkpoint).is_ok_and(|written| written != before));
        stop(child.id());
        // No rank computes any more.
        drop(tokens);
        assert_eq!(child.wait().expect("ended").code(), Some(status));
        fs::read_to_string(sandbox.path("stderr")).expect("read")
    };
    let after_kill = stopped(sweep("out"), &[], 1, &|_| {
        workers().take(1).for_each(|process| kill(process, Signal::SIGKILL).expect("running process"));
    });
    let first = fs::read(&checkpoint).expect("kept");
    let after_interrupt = stopped(resume_command(&after_kill), &first, 130, &|sweep| {
        workers().for_each(|process| kill(process, Signal::SIGSTOP).expect("running process"));
        kill(Pid::from_raw(sweep.cast_signed()), Signal::SIGINT).expect("running process");
    });
    assert!(matches!(sandbox.states()[..], [RunState::Failed { .. }]));
    // Partial checkpoint of a rank that was killed while writing it.
    fs::write(sandbox.path("out/1n2g/.mxnet-lenet_b4_fp32_1.safetensors.77.part"), "half").expect("written");
    let _tokens = take_all_cores();
    let stdout = succeeds_silently(&mut resume_command(&after_interrupt));
    let announced = format!("\n1n2g run 1 of 1: resuming from checkpoint {}\n", checkpoint.display());
    assert!(stdout.contains(&announced), "{stdout}");
    // A finished run needs no checkpoint. The logs of both earlier parts are kept.
    let name = |ending: &str| format!("mxnet-lenet_b4_fp32_1.{ending}");
    assert_eq!(sandbox.files("1n2g"), ["jsonl", "log", "log.1", "log.2"].map(name).into());

    succeeds_silently(&mut sweep("whole"));
    let record = |out: &str| {
        let text = fs::read(sandbox.path(out).join("1n2g").join(name("jsonl"))).expect("read");
        RunRecord::read(&text[..]).expect("a record")
    };
    let (whole, resumed) = (record("whole"), record("out"));
    let learned = |record: &RunRecord| {
        let end = record.end.as_ref().expect("an end");
        let losses: Vec<Vec<f64>> = record.iterations.iter().map(|iteration| iteration.loss.clone()).collect();
        let validated = |epoch: &EpochEnd| epoch.validation.map(|of| (of.samples, of.loss, of.top_1, of.top_5));
        let epochs: Vec<_> = end.epochs.iter().map(|epoch| (epoch.epoch, epoch.loss, validated(epoch))).collect();
        (losses, epochs, end.parameter_checksums.clone())
    };
    assert_eq!(learned(&resumed), learned(&whole));
    assert_eq!((resumed.iterations.len(), learned(&whole).1.len()), (150, 30));
    let behind: Vec<u32> = resumed.header.resumptions.iter().map(|part| part.behind).collect();
    assert!(behind.len() == 2 && behind[0] < behind[1] && behind.iter().all(|at| at % 7 == 0), "{behind:?}");
    assert!(whole.header.resumptions.is_empty());
    assert_eq!(sandbox.log(&format!("1n2g/{}", name("log"))).matches("] Batch[").count(), 150);
    let (_, stdout, stderr) = run(ringmark("check").arg(sandbox.path("out")));
    assert!(
        stdout.contains("PASS    unedited  2 files compared with their SHA-256") && stdout.contains("PASS    rules "),
        "{stdout}{stderr}"
    );
    assert!(succeeds_silently(sweep("out").arg("--resume")).contains("\n1 of 1 runs are finished\n"));
    let written = |record: &RunRecord| record.end.as_ref().expect("an end").checkpoints.clone();
    let numbers = |record: &RunRecord| written(record).iter().map(|write| write.iteration).collect::<Vec<_>>();
    let due: Vec<u32> = (1..=21).map(|number| 7 * number).collect();
    assert_eq!(numbers(&whole), due);
    // A file does not contain its own times.
    assert_eq!(numbers(&resumed), due.into_iter().filter(|at| !behind.contains(at)).collect::<Vec<_>>());
    let (_, text, _) = run(ringmark("extract").arg(sandbox.path("whole")));
    let row = text.split_once("\nCheckpoints (--checkpoint-every), median run\n").expect(&text).1;
    let row = row.lines().find(|line| line.starts_with("1n2g ")).expect(row);
    assert_eq!(row.split_whitespace().nth(1), Some("21"), "{row}");
    let (_, json, _) = run(ringmark("extract --json -").arg(sandbox.path("whole")));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let (cost, writes) = (&json["rows"][0]["checkpoints"], written(&whole));
    assert_eq!(cost["checkpoints"], 21);
    assert_eq!(cost["bytes"], writes.iter().map(|write| write.bytes.0).sum::<u64>());
    let stall: f64 = writes.iter().map(|write| write.stall.0).sum();
    let share = stall / (stall + whole.end.as_ref().expect("an end").wall.0);
    assert!((cost["share_of_training"].as_f64().expect("a share") - share).abs() < 1e-9, "{cost}");
}

#[test]
fn rank_reports_a_record_that_does_not_fit_on_disk() {
    let _tokens = take_all_cores();
    let sandbox = Sandbox::real();
    let Some(disk) = SmallDisk::mount(&sandbox.path("out")) else { return };
    // One block each for the lock, manifest, progress and their part files, and three for a log with all warnings of
    // a busy machine. Without part files at least four blocks are left; the record needs seven.
    disk.fill_except(8 * 4096);
    let stderr = fails(&mut real_sweep(&sandbox, "out", "--iters 60 --runs 1"));
    let record = sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_1.jsonl");
    let words = format!("{} cannot be written: No space left on device", record.display());
    let line = stderr.lines().find(|line| line.contains(&words)).expect(&stderr);
    assert!(line.contains("rank 0"), "{line}");
    assert!(stderr.contains("error: 1n2g run 1 of 1 failed: rank 0 of 2 on host "), "{stderr}");
    let reason = sandbox.failure("1n2g/mxnet-lenet_b2_fp32_1.log");
    assert!(reason.starts_with("rank 0 of 2 on host ") && reason.contains(&words), "{reason}");
    assert_eq!(sandbox.files("1n2g"), names("mxnet-lenet_b2_fp32_1.log"));
    assert_eq!(sandbox.left(), Vec::<String>::new());
    disk.make_room();
    succeeds(&mut resume_command(&stderr));
    assert_eq!(sandbox.states(), [RunState::Finished]);
}
