//! Servers and workers of `ringmark sweep --kv-store` that die or stop, with the real worker: who is named, and what goes on.

use std::fs;
use std::process::{Child, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};

use crate::sandbox::{Sandbox, ringmark, run, wait_for_heartbeats, wait_until};
use crate::turn_of;
use crate::worker::process_of_rank;

/// The one run of these sweeps.
const LOG: &str = "1n2g/resnet18_b2_fp32_1.log";

/// A sweep of one run of two ranks, which has done two iterations.
fn started(sandbox: &Sandbox, options: &str) -> Child {
    let training = "--device cpu --model resnet18 --batch-size 2 --image-size 32 --warmup 1 --threads 1";
    let sweep = "sweep --no-doctor --cases 1n2g --runs 1 --hosts localhost:2 --stall-timeout 30";
    let mut sweep = ringmark(&format!("{sweep} {training} {options}"));
    sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    let sweep = sweep.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let log = sandbox.path("out").join(format!("{LOG}.part"));
    wait_until("iterations are done", || fs::read_to_string(&log).is_ok_and(|log| log.contains("Batch[2]")));
    sweep
}

/// Why the run of a sweep failed whose process `number` of MPI got `signal`.
fn disturbed(sandbox: &Sandbox, options: &str, number: u32, signal: Signal) -> String {
    let turn = turn_of(3);
    let mut sweep = started(sandbox, options);
    wait_for_heartbeats();
    kill(process_of_rank(sandbox.folder.path(), number), signal).expect("it runs");
    if signal == Signal::SIGSTOP {
        // What is left is to wait for the time-out.
        drop(turn);
    }
    assert_eq!(sweep.wait().expect("ended").code(), Some(1));
    assert_eq!(sandbox.left(), Vec::<String>::new());
    sandbox.failure(LOG)
}

#[test]
fn a_server_that_dies_or_stops_is_named_with_its_place() {
    thread::scope(|scope| {
        for (options, number, signal, expected) in [
            // mpirun tells of a signal, or a rank, which may be faster, of its connection: both name the server.
            ("--kv-store dist_sync --servers 1", 2, Signal::SIGKILL, ["server 0 of 1 on host ", "", ""]),
            ("--kv-store dist_async --servers 1", 2, Signal::SIGKILL, ["server 0 of 1 on host ", "", ""]),
            (
                "--kv-store dist_sync --servers 2",
                3,
                Signal::SIGSTOP,
                [
                    "no progress for 30 s: server 1 of 2 on host ",
                    "it is stopped",
                    "; ranks 0-1 and server 0 wait for it in",
                ],
            ),
        ] {
            scope.spawn(move || {
                let sandbox = Sandbox::real();
                let options = format!("--iters 100000 {options}");
                let reason = disturbed(&sandbox, &options, number, signal);
                assert!(expected.iter().all(|words| reason.contains(words)), "{options}: {reason}");
            });
        }
    });
}

#[test]
fn a_sweep_s_asynchronous_run_goes_on_without_a_worker_and_does_not_count() {
    let sandbox = Sandbox::real();
    let reason = disturbed(&sandbox, "--iters 40 --kv-store dist_async --servers 1", 1, Signal::SIGKILL);
    assert!(reason.starts_with("rank 1 on host ") && reason.contains("the others went on without it"), "{reason}");
    assert!(sandbox.log(LOG).contains("Batch[40]"), "rank 0 did all that it was asked for");
    let (status, stdout, _) = run(ringmark("extract").arg(sandbox.path("out")));
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("no run counts"), "{stdout}");
}
