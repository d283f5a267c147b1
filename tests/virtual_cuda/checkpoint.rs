//! Tests `ringmark-worker checkpoint` on virtual GPUs: copies to pinned memory and back.

use std::fs::{self, File};
use std::io::BufReader;
use std::process::Command;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::checkpoint::{CheckpointRecord, WriteMode};
use ringmark_core::dimension::{Bytes, DeviceKind};
use serde_json::Value;

use crate::support::core_tokens::take_cores;
use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{run, words};
use crate::support::virtual_gpu::variables;
use crate::support::worker;

/// The worker compares the bytes on the device with those that it read, and ends with an error if they differ.
#[test]
fn checkpoint_is_copied_from_the_device_and_back() {
    let _tokens = take_cores(1);
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("ckpt")).expect("made");
    let mut command = Command::new(worker());
    command.args(words(
        "checkpoint --device cuda --threads 1 --size 4M --writers shards --mode blocking,beside --iters 2",
    ));
    command.arg("--folder").arg(path("ckpt")).arg("--record").arg(path("record.json")).env("OMP_NUM_THREADS", "1");
    command.envs(variables()).env("VIRTUAL_CUDA_REPORT", path("report"));
    let (status, stdout, stderr) = run(&mut command);
    if stderr.contains("is in memory") {
        return not_tested("the build is on a file system in memory");
    }
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    let record = CheckpointRecord::read(BufReader::new(File::open(path("record.json")).expect("written")));
    let record = record.expect("a record");
    assert_eq!(record.ranks[0].device, DeviceKind::Cuda);
    for result in &record.results {
        for rank in result.checkpoints.iter().flatten() {
            assert!(rank.bytes == Bytes(4 << 20) && rank.copy.0 > 0.0 && rank.restore.0 > rank.read.0, "{rank:?}");
            assert_eq!(rank.products.is_some(), result.combination.mode == WriteMode::Beside);
        }
    }
    assert_eq!(record.results.len(), 2);
    let report: Value =
        serde_json::from_str(fs::read_to_string(path("report")).expect("written").trim()).expect("JSON");
    assert_eq!(report["races"], 0, "{report}");
    assert_eq!(fs::read_dir(path("ckpt")).expect("a folder").count(), 0);
}
