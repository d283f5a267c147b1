//! The real worker with a driver that is present but unusable: an error message, and no training on the CPU.
//! `scripts/dev/load_check.sh` covers the cases that need all CUDA libraries.

use std::process::Command;

use crate::support::core_tokens::take_cores;
use crate::support::sandbox::{run, words};
use crate::support::stub_driver;
use crate::support::worker;

fn train(options: &str, stub: &str) -> (Option<i32>, String, String) {
    let record = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(worker());
    command.args(words("train --batch-size 2 --image-size 32 --iters 1 --warmup 0 --threads 1")).args(words(options));
    command.arg("--record").arg(record.path().join("record.jsonl"));
    command.env("LD_LIBRARY_PATH", stub_driver::folder());
    command.envs(words(stub).filter_map(|variable| variable.split_once('=')));
    let _tokens = take_cores(1);
    run(&mut command)
}

#[test]
fn unusable_gpu_is_an_error_for_any_device() {
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
fn driver_without_gpu_fails_only_with_cuda() {
    let (status, _, stderr) = train("--device auto", "STUB_INIT=100");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    let (status, _, stderr) = train("--device cuda", "STUB_INIT=100");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(stderr.contains("cannot use --device cuda"), "{stderr}");
}

#[test]
fn unusable_libtorch_is_an_error_with_the_fix() {
    // The CPU build lacks CUDA's libraries; with all of them, the runtime rejects the stub.
    let (status, _, stderr) = train("--device auto", "STUB_CAPABILITIES=90");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(["error: ", "GPU"].iter().all(|reason| stderr.contains(reason)), "{stderr}");
}

#[test]
fn cpu_device_does_not_query_the_driver() {
    let (status, _, stderr) = train("--device cpu", "STUB_INIT=999");
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
}
