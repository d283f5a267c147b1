//! Faults of servers and workers of `ringmark sweep --strategy`, with the real worker: the message, and whether the
//! run continues. Link failures between hosts are in `cluster::servers`.

use std::fs;
use std::process::{Child, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Uid;

use crate::support::core_tokens::take_cores;
use crate::support::memory_group::MemoryGroup;
use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{Sandbox, compile_library, fails, has_pushed, ringmark, run, wait_until, words};
use crate::support::worker;
use crate::support::worker_run::process_of_rank;

const SWEEP: &str = "sweep --no-doctor --cases 1n2g --runs 1 --hosts localhost:2 --device cpu --threads 1 --warmup 1";

/// Returns the log name of the only run, LeNet with this strategy.
fn log_name(strategy: &str) -> String {
    format!("1n2g/mxnet-lenet_b2_fp32_{}_1.log", strategy.replace('_', "-"))
}

fn sweep(sandbox: &Sandbox, strategy: &str, options: &str) -> Child {
    let training = "--model mxnet-lenet --batch-size 2";
    let mut sweep = ringmark(&format!("{SWEEP} {training} --strategy {strategy} {options}"));
    sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    let errors = fs::File::create(sandbox.path("errors")).expect("created");
    sweep.stdout(Stdio::null()).stderr(errors).spawn().expect("starts")
}

/// Starts a sweep and waits until rank 1 has pushed.
fn sweep_after_push(sandbox: &Sandbox, strategy: &str, options: &str) -> Child {
    let mut sweep = sweep(sandbox, strategy, &format!("{options} --stall-timeout 10"));
    wait_until("rank 1 has pushed", || {
        let is_over = sweep.try_wait().expect("a child").is_some();
        assert!(!is_over, "{}", fs::read_to_string(sandbox.path("errors")).unwrap_or_default());
        has_pushed(&sandbox.path("out"), 1)
    });
    sweep
}

/// Sends `signal` to MPI's process `number` and returns the failure of the run.
fn failure_after_signal(sandbox: &Sandbox, strategy: &str, options: &str, (number, signal): (u32, Signal)) -> String {
    let tokens = take_cores(3);
    let mut sweep = sweep_after_push(sandbox, strategy, options);
    kill(process_of_rank(sandbox.folder.path(), number), signal).expect("running process");
    let since = Instant::now();
    if signal == Signal::SIGSTOP {
        // From here on the test only waits for the timeout.
        drop(tokens);
    }
    assert_eq!(sweep.wait().expect("ended").code(), Some(1));
    let time = since.elapsed();
    assert_eq!(sandbox.left(), Vec::<String>::new());
    let reason = sandbox.failure(&log_name(strategy));
    println!("{:<34} {:>5.1} s  {reason}", format!("{strategy}, process {number}: {signal}"), time.as_secs_f64());
    reason
}

/// Returns true if `reason` names the process killed by SIGKILL. Only mpirun knows the signal; peers that lost the
/// connection may report it first.
fn is_killed(reason: &str, name: &str, peer_message: &str) -> bool {
    let by_mpirun = reason.starts_with(&format!("{name} on host "))
        && (reason.contains(" was killed by signal 9 (SIGKILL)")
            || reason.contains(" exited without an error message"));
    by_mpirun || (reason.contains(peer_message) && reason.contains(": the process exited, or its host or link is down"))
}

#[test]
fn killed_server_is_reported() {
    for strategy in ["dist_sync", "dist_async"] {
        let sandbox = Sandbox::real();
        let reason = failure_after_signal(&sandbox, strategy, "--iters 100000 --servers 1", (2, Signal::SIGKILL));
        assert!(
            is_killed(&reason, "server 0 of 1", "the connection to server 0 of 1 on host "),
            "{strategy}: {reason}"
        );
    }
}

#[test]
fn stopped_server_is_reported_with_the_waiting_ranks() {
    let sandbox = Sandbox::real();
    let reason = failure_after_signal(&sandbox, "dist_sync", "--iters 100000 --servers 2", (3, Signal::SIGSTOP));
    assert!(reason.starts_with("no progress for 10 s: server 1 of 2 on host "), "{reason}");
    assert!(
        reason.contains(": the process is stopped, or its host or link is down; ranks 0-1 and server 0 wait for it in"),
        "{reason}"
    );
}

#[test]
fn killed_worker_ends_a_synchronous_run() {
    let sandbox = Sandbox::real();
    let reason = failure_after_signal(&sandbox, "dist_sync", "--iters 100000 --servers 1", (1, Signal::SIGKILL));
    assert!(is_killed(&reason, "rank 1 of 2", "lost the connection to rank 1 on host "), "{reason}");
}

#[test]
fn asynchronous_run_with_a_lost_worker_does_not_count() {
    let sandbox = Sandbox::real();
    // Rank 0 waits for no other rank, and rank 1 has not finished before it is killed.
    let options = "--iters 1000 --servers 1 --inject slow:1:5000";
    let reason = failure_after_signal(&sandbox, "dist_async", options, (1, Signal::SIGKILL));
    assert!(reason.starts_with("rank 1 on host ") && reason.contains("the others continued without it"), "{reason}");
    assert!(sandbox.log(&log_name("dist_async")).contains("Batch[1000]"), "rank 0 did all that it was asked for");
    let (status, stdout, _) = run(ringmark("extract").arg(sandbox.path("out")));
    assert_eq!(status, Some(1), "{stdout}");
    assert!(stdout.contains("no run counts"), "{stdout}");
}

/// Makes MPI's process `number` send a faulty frame (see `faulty_peer.c`) and returns the failure of the run.
fn failure_after_frame(number: u32, frame: &str, fault: &str) -> String {
    let tokens = take_cores(3);
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("faulty_peer.so");
    compile_library("faulty_peer.c", &library, &[]);
    let script = format!(
        "[ $rank = {number} ] && export LD_PRELOAD={} FAULTY_FRAME='{frame}' FAULT={fault}\nexec {} $words",
        library.display(),
        worker().display()
    );
    let sandbox = Sandbox::new(&script);
    // Long enough for the incomplete frame to be reported before the stalled job, even on a busy machine.
    let mut sweep = sweep(&sandbox, "dist_sync", "--iters 100000 --servers 1 --stall-timeout 40");
    let log = sandbox.path("out").join(log_name("dist_sync") + ".part");
    let is_sent = || fs::read_to_string(&log).is_ok_and(|log| log.contains("the faulty frame is sent"));
    wait_until("it sends the frame", || is_sent() || sweep.try_wait().expect("a child").is_some());
    // From here on the test only waits.
    drop(tokens);
    assert_eq!(sweep.wait().expect("ended").code(), Some(1));
    assert_eq!(sandbox.left(), Vec::<String>::new());
    let reason = sandbox.failure(&log_name("dist_sync"));
    println!("process {number}, frame {frame}, {fault}: {reason}");
    reason
}

/// The 20th push: the ninth of LeNet's eleven parts in the second iteration. Rank 0 pushes the sum of its host.
const PUSH: &str = "5 20";

#[test]
fn worker_that_stops_within_a_frame_is_reported() {
    let reason = failure_after_frame(0, PUSH, "half");
    assert!(reason.starts_with("server 0 of 1 on host "), "{reason}");
    let after = " is out of sync after its pushes of iteration 2 (read timed out after ";
    assert!(reason.contains(": rank 0 on host ") && reason.contains(after), "{reason}");
    assert!(reason.contains(" bytes of the Push frame of part "), "{reason}");
}

#[test]
fn worker_that_sends_an_unexpected_frame_is_reported() {
    for (kind, what) in
        [("7", "End frame after 8 of 11 parts of an iteration"), ("3", "unexpected initial weights of part 0")]
    {
        let reason = failure_after_frame(0, PUSH, kind);
        assert!(reason.starts_with("server 0 of 1 on host "), "{reason}");
        let after = format!(" is out of sync after its pushes of iteration 2 ({what}");
        assert!(reason.contains(": rank 0 on host ") && reason.contains(&after), "{reason}");
    }
}

#[test]
fn server_that_stops_within_a_frame_is_reported() {
    let reason = failure_after_frame(2, "6 20", "half");
    assert!(reason.contains("server 0 of 1 on host ") && reason.contains("read timed out after "), "{reason}");
    assert!(reason.contains(" bytes of the Answer frame of part "), "{reason}");
}

/// At its start the server would have enough memory, but not in addition to what the rank on its host has allocated
/// by then.
#[test]
fn server_checks_memory_after_the_ranks_have_allocated() {
    let group = MemoryGroup::new("ringmark-server-and-rank-test", 1800 << 20).filter(|_| Uid::effective().is_root());
    let Some(group) = group else {
        not_tested("cannot create a memory control group");
        return;
    };
    let _tokens = take_cores(2);
    let sandbox =
        Sandbox::new(&format!("echo $$ >{}\nexec {} $words", group.processes().display(), worker().display()));
    let mut sweep = ringmark(&SWEEP.replace("1n2g", "1n1g"));
    sweep.args(words("--model alexnet --image-size 64 --batch-size 1 --iters 2 --strategy dist_sync --servers 1"));
    fails(sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")));
    let reason = sandbox.failure("1n1g/alexnet_b1_fp32_dist-sync_1.log");
    println!("{reason}");
    assert!(reason.starts_with("server 0 of 1 on host "), "{reason}");
    assert!(reason.contains(": this server's parts of the weights need 1.22 GB of memory for "), "{reason}");
    wait_until("no process is left", || sandbox.left().is_empty());
}

#[test]
fn server_without_memory_is_reported_before_allocating() {
    // AlexNet's 61.1 million weights: four arrays, and one push for both ranks of the host.
    let needed = "this server's parts of the weights need 1.22 GB of memory for weights, momenta, sums and 1 worker's \
                  pushes, 0.";
    let group = MemoryGroup::new("ringmark-server-test", 600 << 20).filter(|_| Uid::effective().is_root());
    let in_group = group.as_ref().map(|group| format!("echo $$ >{}", group.processes().display()));
    if in_group.is_none() {
        not_tested("cannot create a memory control group");
    }
    // The server is the third process. Its own limit is in kB; that of the kernel would kill it without an error
    // message.
    for limit in ["ulimit -d 1000000".to_owned()].into_iter().chain(in_group) {
        let _tokens = take_cores(3);
        let sandbox = Sandbox::new(&format!("[ $rank = 2 ] && {limit}\nexec {} $words", worker().display()));
        let mut sweep = ringmark(SWEEP);
        sweep.args(words("--model alexnet --image-size 64 --batch-size 1 --iters 2 --strategy dist_sync --servers 1"));
        let since = Instant::now();
        let (status, _, stderr) =
            run(sweep.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")));
        let time = since.elapsed();
        assert_eq!(status, Some(1), "{limit}: {stderr}");
        let reason = sandbox.failure("1n2g/alexnet_b1_fp32_dist-sync_1.log");
        println!("{:<34} {:>5.1} s  {reason}; {limit}", "server without memory", time.as_secs_f64());
        let (name, output_text) = reason.split_once(": ").expect("who, and what");
        assert!(name.starts_with("server 0 of 1 on host ") && output_text.starts_with(needed), "{limit}: {reason}");
        assert!(
            output_text.contains(" GB is available: use more --servers, or hosts with more memory"),
            "{limit}: {reason}"
        );
        wait_until("no process is left", || sandbox.left().is_empty());
    }
}
