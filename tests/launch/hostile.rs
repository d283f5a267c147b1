//! Hostile conditions: unauthenticated connections to the launcher's port, ranks that print endlessly or exceed a
//! memory limit.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::host::heartbeat::LAUNCHER_VARIABLE;
use ringmark_core::host::{LauncherAddress, Message, OutOfMemory};

use crate::support::core_tokens::take_all_cores;
use crate::support::memory_group::MemoryGroup;
use crate::support::prerequisite::not_tested;
use crate::support::sandbox::{Sandbox, fails, ringmark, wait_until, words};
use crate::support::{processes_of, worker};

const SMALL: &str = "--no-doctor --device cpu --model mxnet-lenet --batch-size 2 --warmup 1 --threads 1 --runs 1";

/// Returns `ringmark sweep` with this sandbox's worker and results in the folder `out`.
fn sweep(sandbox: &Sandbox, options: &str) -> Command {
    let mut command = ringmark("sweep");
    command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
    command
}

/// Returns a numeric field of `/proc/PID/status`.
fn status_of(process: u32, key: &str) -> Option<u64> {
    let table = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// Waits for the process to exit. Returns its exit status and its observed peak memory, in kB.
fn peak_of(child: &mut Child) -> (Option<i32>, u64) {
    let mut peak = 0;
    loop {
        peak = peak.max(status_of(child.id(), "VmHWM").unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a child") {
            return (status.code(), peak);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn variable(process: Pid, name: &str) -> Option<String> {
    let variables = fs::read(format!("/proc/{process}/environ")).ok()?;
    let mut variables = variables.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
}

/// Returns the answer to a connection with this first line.
fn answer(address: SocketAddr, hello: &Message) -> String {
    let mut stream = TcpStream::connect(address).expect("the launcher listens");
    stream.write_all(hello.line().as_bytes()).expect("sent");
    let mut answer = String::new();
    // The connection may also be closed with unread bytes.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn unknown_connections_do_not_affect_the_job() {
    let sandbox = Sandbox::real();
    // Long enough for all the connections and for the next core tokens.
    let options = format!("{SMALL} --hosts localhost:2 --cases 1n2g --iters 1000 --stall-timeout 3600");
    let first_turn = take_all_cores();
    let launcher = sweep(&sandbox, &options);
    // A limit as low as on most systems.
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=1024:1024").arg(launcher.get_program()).args(launcher.get_args());
    let launcher = limited.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let log = sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_1.log.part");
    wait_until("iterations are done", || fs::read_to_string(&log).is_ok_and(|log| log.contains("Batch[3]")));

    let own = sandbox.worker().display().to_string();
    let ranks: Vec<(Pid, String)> =
        processes_of(sandbox.folder.path()).into_iter().filter(|(_, line)| line.starts_with(&own)).collect();
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    // The run continues after the attack.
    kill(ranks[0].0, Signal::SIGSTOP).expect("a rank");
    drop(first_turn);

    // The token is visible in a rank's environment, but not in the process list, the log or the record.
    let text = variable(ranks[0].0, LAUNCHER_VARIABLE).expect("the launcher's address");
    let LauncherAddress { token, addresses, .. } = text.parse().expect("an address");
    let shows_token = |text: &[u8]| text.windows(token.len()).any(|part| part == token.as_bytes());
    for entry in fs::read_dir("/proc").expect("Linux").flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        assert!(!shows_token(&line), "{}", String::from_utf8_lossy(&line));
    }

    let (threads, memory) = (status_of(launcher.id(), "Threads"), status_of(launcher.id(), "VmRSS"));
    let address = addresses[0];
    let mut silent: Vec<TcpStream> = (0..2000).map_while(|_| TcpStream::connect(address).ok()).collect();
    for stream in silent.iter_mut().rev().take(20) {
        let _ = stream.write_all(b"{\"kind\":");
    }
    let mut endless = TcpStream::connect(address).expect("the launcher listens");
    endless.set_write_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let sent = (0..100_000).take_while(|_| endless.write_all(&[b'['; 1 << 12]).is_ok()).count();
    assert!(sent < 100_000, "400 MB were taken");
    let out_of_memory = OutOfMemory::default();
    let hello = |token: &str, rank, process| Message::Hello {
        token: token.to_owned(),
        rank,
        host: "stranger".to_owned(),
        process,
        out_of_memory: out_of_memory.clone(),
    };
    // A guessed token; then the right token with a rank that does not exist, and with one that is already connected.
    for (token, rank) in [("00", 0), (&token, 2), (&token, 1)] {
        assert_eq!(answer(address, &hello(token, rank, 1)), "", "{rank}");
    }
    let count = |key| status_of(launcher.id(), key);
    println!("memory {memory:?} -> {:?} kB, threads {threads:?} -> {:?}", count("VmRSS"), count("Threads"));
    assert_eq!(count("Threads"), threads);
    assert!(count("VmRSS") < memory.map(|memory| memory + 20_000));

    let _tokens = take_all_cores();
    kill(ranks[0].0, Signal::SIGCONT).expect("a rank");
    let output = launcher.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    drop(silent);
    for file in ["mxnet-lenet_b2_fp32_1.log", "mxnet-lenet_b2_fp32_1.jsonl"] {
        let file = fs::read(sandbox.path("out/1n2g").join(file)).expect("written");
        assert!(!shows_token(&file));
    }
    let record = fs::read(sandbox.path("out/1n2g/mxnet-lenet_b2_fp32_1.jsonl")).expect("written");
    let record = RunRecord::read(&record[..]).expect("whole");
    assert_eq!((record.failure(), record.iterations.len()), (None, 1000));
}

#[test]
fn endless_rank_output_uses_little_memory() {
    let megabytes = 80;
    // Memory of the program itself: most of it is the executable, which is larger in a debug build.
    let (mut short_sweep, mut short_extract) = (0, 0);
    for (what, text) in [
        ("nothing", String::new()),
        ("a line", format!("head -c {megabytes}M /dev/zero")),
        ("lines", format!("yes some words of a rank that says no more than this | head -c {megabytes}M")),
    ] {
        let sandbox = Sandbox::new(&format!("{text}\nexit 7"));
        let mut launcher = sweep(&sandbox, &format!("{SMALL} --hosts localhost:1 --cases 1n1g --iters 4"));
        let launcher = launcher.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut launcher = launcher.expect("starts");
        let (status, peak) = peak_of(&mut launcher);
        let mut errors = String::new();
        launcher.stderr.take().expect("a pipe").read_to_string(&mut errors).expect("UTF-8");
        println!("output of {what}: at most {peak} kB");
        assert_eq!(status, Some(1), "{errors}");
        assert!(errors.contains("run 1 of 1 failed: rank 0 of 1"), "{errors}");
        assert!(errors.len() < 1 << 17, "{} bytes are shown of the log", errors.len());

        let mut extract = Command::new(env!("CARGO_BIN_EXE_ringmark"));
        let extract = extract.arg("extract").arg(sandbox.path("out")).stdout(Stdio::null()).stderr(Stdio::null());
        let (status, extract_peak) = peak_of(&mut extract.spawn().expect("starts"));
        assert_eq!(status, Some(1));
        println!("extract of it: at most {extract_peak} kB");

        if text.is_empty() {
            assert!(peak > 0 && extract_peak > 0);
            (short_sweep, short_extract) = (peak, extract_peak);
            continue;
        }
        let log = sandbox.path("out/1n1g/mxnet-lenet_b2_fp32_1.log");
        assert!(fs::metadata(&log).expect("kept").len() > megabytes << 20);
        assert!(peak < short_sweep + 10_000, "{peak} kB, {short_sweep} kB without output");
        assert!(extract_peak < short_extract + 10_000, "{extract_peak} kB, {short_extract} kB without output");
    }
}

#[test]
fn out_of_memory_kill_of_a_rank_is_reported() {
    let _tokens = take_all_cores();
    let limit = 512 << 20;
    let Some(group) = MemoryGroup::new("ringmark-test", limit).filter(|_| Uid::effective().is_root()) else {
        not_tested("cannot create a memory control group");
        return;
    };
    // Only rank 1 is in the group, and its batch does not fit.
    let (procs, program) = (group.processes(), worker());
    let sandbox =
        Sandbox::new(&format!("[ $rank = 1 ] && echo $$ >{}\nexec {} $words", procs.display(), program.display()));
    let options = "--no-doctor --device cpu --model resnet18 --batch-size 32 --iters 4 --warmup 1 --threads 1 --runs 1";
    fails(&mut sweep(&sandbox, &format!("{options} --hosts localhost:2 --cases 1n2g")));
    let reason = sandbox.failure("1n2g/resnet18_b32_fp32_1.log");
    println!("{reason}");
    assert!(
        reason.starts_with("rank 1 of 2 on host ") && reason.contains(" was killed by signal 9 (SIGKILL)"),
        "{reason}"
    );
    let cause = "memory limit of 536 MB of the control group on host ";
    assert!(reason.contains(cause) && reason.contains("choose a smaller --batch-size"), "{reason}");
    wait_until("no rank is left", || sandbox.left().is_empty());
}
