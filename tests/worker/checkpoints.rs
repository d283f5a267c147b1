//! Checkpoints of the real worker: their times in the record, writes beside the steps, and kills during a write.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use expect_test::expect;
use ringmark_core::benchmark::train::{CheckpointWrite, RunRecord};
use ringmark_core::file::atomic_file;
use ringmark_core::file::safetensors::HASHES;
use ringmark_core::stats::summary::median;
use serde_json::Value;

use crate::support::core_tokens::take_cores;
use crate::support::safetensors::{self, Tensors};
use crate::support::sandbox::{PATIENCE, SmallDisk};
use crate::support::worker_run::{Run, checksum};

/// Tensor with the progress of a run, as JSON in bytes.
const PROGRESS: &str = "ringmark.place";

fn mlp(ranks: u32, options: &str) -> Run {
    Run::ranks(ranks, &format!("--model mxnet-mlp --image-size 28 --lr 0.03125 --lr-warmup-iters 0 {options}"))
}

fn checkpoints(record: &RunRecord) -> &[CheckpointWrite] {
    &record.end.as_ref().expect("an end").checkpoints
}

#[test]
fn checkpoints_are_measured_in_both_modes() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |mode: &str, more: &str| {
        let options = format!("--iters 9 --checkpoint-every 3 --checkpoint-mode {mode} {more}");
        let path = folder.path().join(mode);
        (mlp(2, &options).file("--checkpoint", &path), path)
    };
    let written = |record: &RunRecord| checkpoints(record).iter().map(|write| write.iteration).collect::<Vec<_>>();
    let [sync, async_] = ["sync", "async"].map(|mode| {
        let (whole, path) = run(mode, "");
        let finished = whole.finish();
        let output = finished.stdout.clone();
        assert_eq!(output.matches("\n# checkpoint after iteration ").count(), 3, "{output}");
        assert!(output.contains("\n# checkpoints: 3, 0.00"), "{output}");
        let record = finished.valid_record();
        assert_eq!(written(&record), [3, 6, 9]);
        for write in checkpoints(&record) {
            let CheckpointWrite { bytes, stall, collect, write, sync, .. } = *write;
            assert!(collect.0 > 0.0 && write.0 > 0.0 && sync.0 > 0.0 && bytes.0 > 800_000, "{write:?}");
            assert!(stall.0 >= if mode == "sync" { write.0 + sync.0 } else { collect.0 }, "{mode}: {write:?}");
        }
        assert_eq!(checkpoints(&record)[2].bytes.0, fs::metadata(&path).expect("a file").len());
        let weights = safetensors::read(&path);
        // Resumed after iteration 6: its own times cannot be in the file.
        run(mode, "--inject fail:8:1").0.refused(1);
        let resumed = run(mode, "").0.file("--from-checkpoint", &path).finish().valid_record();
        assert_eq!((written(&resumed), resumed.header.iterations_before()), (vec![3, 9], 6));
        assert!(checkpoints(&resumed)[0].stall.0 > 0.0 && checkpoints(&resumed)[0].bytes.0 > 800_000);
        assert_eq!(checksum(&resumed), checksum(&record));
        (checksum(&record).to_owned(), without_progress(weights))
    });
    assert!(sync == async_, "the same weights and state in both modes");
}

fn without_progress(mut tensors: Tensors) -> Tensors {
    for of_file in [PROGRESS, HASHES] {
        tensors.remove(of_file).expect(of_file);
    }
    tensors
}

#[test]
fn failed_write_ends_the_run_with_its_reason() {
    for mode in ["sync", "async"] {
        let options = format!("--iters 1000000 --checkpoint-every 2 --checkpoint-mode {mode}");
        let error = mlp(2, &options).file("--checkpoint", Path::new("/dev/full")).refusal(1);
        let (reason, space) = error.split_once(" (os error 28): ").expect(&error);
        expect!["checkpoint: /dev/full cannot be written: No space left on device"].assert_eq(reason);
        assert!(space.contains(" MB are free and it needs 0.9 MB beside the previous checkpoint"), "{space}");
    }
    let error = mlp(1, "--iters 2 --checkpoint-mode async").refusal(2);
    expect![[r#"
        error: --checkpoint-mode async needs checkpoints: add --checkpoint-every N
    "#]]
    .assert_eq(&error);
}

/// The disk has space for one checkpoint, but not for the next one beside it.
#[test]
fn full_disk_keeps_the_previous_checkpoint() {
    for mode in ["sync", "async"] {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(disk) = SmallDisk::with_size(&folder.path().join("disk"), "1200k") else { return };
        let saved = folder.path().join("disk/checkpoint.safetensors");
        let run = |iterations: usize| {
            let options =
                format!("--iters {iterations} --momentum 0.875 --checkpoint-every 3 --checkpoint-mode {mode}");
            mlp(2, &options).file("--checkpoint", &saved)
        };
        let error = run(1_000_000).refusal(1);
        let (reason, space) = error.split_once(" (os error 28): ").expect(&error);
        expect!["checkpoint: DIR/disk/checkpoint.safetensors cannot be written: No space left on device"]
            .assert_eq(reason);
        expect!["0.3 MB are free and it needs 0.9 MB beside the previous checkpoint, which is kept: free some space"]
            .assert_eq(space);
        assert!(iterations_in(&saved) == 3 && !has_part(&folder.path().join("disk")), "{mode}");
        disk.remount("size=4m");
        let resumed = run(9).file("--from-checkpoint", &saved).finish().valid_record();
        assert_eq!(resumed.header.iterations_before(), 3);
        let whole = run(9).finish().valid_record();
        assert_eq!(checksum(&resumed), checksum(&whole), "{mode}");
    }
}

/// Replaces numbers of bytes, which depend on the length of times.
fn without_sizes(text: &str) -> String {
    let is_size = |word: &str| word.len() > 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    text.split(' ').map(|word| if is_size(word) { ".." } else { word }).collect::<Vec<_>>().join(" ")
}

#[test]
fn damaged_checkpoint_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("checkpoint.safetensors");
    let run = || mlp(1, "--iters 4 --checkpoint-every 4").file("--checkpoint", &saved);
    run().finish().valid_record();
    let whole = fs::read(&saved).expect("written");
    let at = |place: usize| {
        let mut bytes = whole.clone();
        bytes[place] ^= 1;
        bytes
    };
    let damaged = [whole[..whole.len() / 2].to_vec(), at(whole.len() / 2), at(9), whole[..3].to_vec()];
    let errors = damaged.map(|bytes| {
        fs::write(&saved, bytes).expect("written");
        run().file("--from-checkpoint", &saved).refusal(1)
    });
    expect![[r#"
        error: --from-checkpoint DIR/checkpoint.safetensors: the header describes .. bytes of tensors, but .. follow, so the file is truncated or damaged: copy the file again, or remove it to begin again
        error: --from-checkpoint DIR/checkpoint.safetensors: tensor "ringmark.momenta" differs from its hash: copy the file again, or remove it to begin again
        error: --from-checkpoint DIR/checkpoint.safetensors: the header is not JSON: the file is damaged or not a safetensors file: key must be a string at line 1 column 2: copy the file again, or remove it to begin again
        error: --from-checkpoint DIR/checkpoint.safetensors: the file is shorter than the 8 bytes that begin a safetensors file: failed to fill whole buffer: copy the file again, or remove it to begin again
    "#]].assert_eq(&without_sizes(&errors.concat()));
    fs::write(&saved, &whole).expect("written");
    run().file("--from-checkpoint", &saved).finish().valid_record();
}

/// Kills for each mode, at moments that are spread over the time of a write.
const KILLS: u32 = 25;

/// Returns the completed iterations in a checkpoint, which must be whole.
fn iterations_in(path: &Path) -> usize {
    let progress: Value = serde_json::from_slice(&safetensors::read(path)[PROGRESS].bytes).expect("progress");
    progress["iterations"].as_array().expect("a list").len()
}

fn has_part(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").flatten().any(|file| atomic_file::is_part(&file.path()))
}

/// Polls faster than a checkpoint is written.
fn poll_until(mut has_happened: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !has_happened() {
        assert!(Instant::now() < end, "timed out");
        thread::sleep(Duration::from_micros(100));
    }
}

/// Kills a run during a write, continues from its checkpoint, and repeats: each file that a kill leaves is loaded by the
/// next run, and the last run has the weights of an undisturbed one.
fn survives_kills(mode: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let saved = folder.path().join("checkpoint.safetensors");
    let run = |iterations: usize| {
        let options = format!("--iters {iterations} --momentum 0.875 --checkpoint-every 1 --checkpoint-mode {mode}");
        mlp(1, &options).file("--checkpoint", &saved)
    };
    let timed = run(20).finish().valid_record();
    let times: Vec<f64> = checkpoints(&timed).iter().map(|write| write.write.0 + write.sync.0).collect();
    let write = median(&times).expect("20 checkpoints");
    fs::remove_file(&saved).expect("written");
    let identity = || fs::metadata(&saved).ok().map(|found| (found.ino(), found.mtime_nsec()));
    let (mut before, mut interrupted) = (0, 0);
    for kill in 0..KILLS {
        let mut run = run(1_000_000);
        if before > 0 {
            run = run.file("--from-checkpoint", &saved);
        }
        let _tokens = take_cores(1);
        let first = identity();
        let mut child = run.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        let exited = |child: &mut std::process::Child| child.try_wait().expect("a child");
        // At least one checkpoint of this process is complete.
        poll_until(|| {
            assert_eq!(exited(&mut child), None, "kill {kill}");
            identity() != first
        });
        poll_until(|| has_part(folder.path()));
        thread::sleep(Duration::from_secs_f64(write * f64::from(kill) / f64::from(KILLS)));
        child.kill().expect("running");
        child.wait().expect("a child");
        let after = iterations_in(&saved);
        assert!(after > before, "kill {kill}: {after} iterations after {before}");
        before = after;
        interrupted += u32::from(has_part(folder.path()));
    }
    assert!(interrupted >= KILLS / 5, "{interrupted} of {KILLS} kills were during a write of {write} s");
    let iterations = before + 3;
    let resumed = run(iterations).file("--from-checkpoint", &saved).finish().valid_record();
    assert_eq!(resumed.header.resumptions.len(), KILLS as usize);
    assert!(!has_part(folder.path()), "partial files of killed writers are removed");
    let whole = run(iterations).finish().valid_record();
    assert_eq!(checksum(&resumed), checksum(&whole));
    eprintln!("{mode}: {interrupted} of {KILLS} kills left a partial file; a write takes {write:.4} s");
}

#[test]
fn kill_during_a_write_keeps_the_last_checkpoint() {
    survives_kills("sync");
}

#[test]
fn kill_during_a_write_beside_the_steps_keeps_the_last_checkpoint() {
    survives_kills("async");
}
