//! The real worker with a driver that is present but unusable: an error message, and no training on the CPU.
//! `scripts/load_check.sh` covers the cases that need all CUDA libraries.

use std::process::Command;

use crate::support::sandbox::{run, words};
use crate::support::stub_driver;
use crate::support::turn::turn_of;
use crate::support::worker;

fn train(options: &str, stub: &str) -> (Option<i32>, String, String) {
    let record = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(worker());
    command.args(words("train --batch-size 2 --image-size 32 --iters 1 --warmup 0 --threads 1")).args(words(options));
    command.arg("--record").arg(record.path().join("record.jsonl"));
    command.env("LD_LIBRARY_PATH", stub_driver::folder());
    command.envs(words(stub).filter_map(|variable| variable.split_once('=')));
    let _turn = turn_of(1);
    run(&mut command)
}

#[test]
fn a_gpu_that_cannot_be_used_is_an_error_whatever_device_was_asked_for() {
    for (stub, reasons) in [
        // The driver's version is too old for CUDA 13.0, and for 12.6.
        ("STUB_VERSION=11080", ["11.8", "driver"]),
        ("STUB_INIT=999", ["999", "driver"]),
        // No CUDA build of libtorch has kernels for it.
        ("STUB_CAPABILITIES=35", ["3.5", "capability"]),
    ] {
        for device in ["auto", "cuda"] {
            let (status, _, stderr) = train(&format!("--device {device}"), stub);
            assert_eq!(status, Some(1), "{stub}, {device}: {stderr}");
            assert!(reasons.iter().all(|reason| stderr.contains(reason)), "{stub}, {device}: {stderr}");
        }
    }
}

#[test]
fn a_driver_without_a_gpu_is_no_error_until_cuda_is_asked_for() {
    let (status, _, stderr) = train("--device auto", "STUB_INIT=100");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let (status, _, stderr) = train("--device cuda", "STUB_INIT=100");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("--device cuda cannot be met"), "{stderr}");
}

#[test]
fn a_good_driver_and_a_libtorch_that_cannot_use_it_are_an_error_with_the_fix() {
    // The CPU build lacks CUDA's libraries; with all of them, the runtime rejects the stub.
    let (status, _, stderr) = train("--device auto", "STUB_CAPABILITIES=90");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(["ringmark-worker: ", "GPU"].iter().all(|reason| stderr.contains(reason)), "{stderr}");
}

#[test]
fn the_cpu_asks_no_driver() {
    let (status, _, stderr) = train("--device cpu", "STUB_INIT=999");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
}
