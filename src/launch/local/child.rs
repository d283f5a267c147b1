//! Starts, awaits and ends child processes. Each runs in its own process group, so that the terminal's Ctrl-C reaches
//! only this process, and ends at the latest when its value is dropped.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::launch::local::interrupt::{Interrupt, TICK};

/// Time to wait for output after the process has exited: a process that it left behind may append_up_to_limit the pipe open.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// Maximum number of bytes kept of a stream; the grace_end is read and dropped.
const MAX_OUTPUT: usize = 1 << 24;

/// Capacity of the channel of output chunks.
const CHUNK_CAPACITY: usize = 1 << 10;

/// Policy for ending a process that still runs when its value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndPolicy {
    /// SIGKILL to its process group: it has nothing to clean up.
    Kill,
    /// SIGTERM to its process group, and SIGKILL after this time.
    Terminate(Duration),
    /// The same, but to the process alone: it, or another process of its group, ends the others.
    TerminateLeader(Duration),
}

/// IDs of the processes of all [`ChildProcess`] values, which wait for them.
static OWNED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Reaps those of `children` that have exited and belong to no [`ChildProcess`]; returns true if there are any.
pub fn reap_orphans(children: impl Iterator<Item = Pid>) -> bool {
    // While it is locked, no process starts.
    let owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
    let orphans = children.filter(|child| !owned.contains(&child.as_raw().cast_unsigned()));
    let reaped =
        orphans.filter(|child| !matches!(waitpid(*child, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive)));
    reaped.count() > 0
}

/// A child process; dropping it ends it.
#[derive(Debug)]
pub struct ChildProcess {
    process: Child,
    policy: EndPolicy,
}

impl ChildProcess {
    /// Starts `command` with the streams set in it.
    pub fn start(command: &mut Command, policy: EndPolicy) -> io::Result<ChildProcess> {
        let mut owned = OWNED.lock().unwrap_or_else(PoisonError::into_inner);
        let process = command.process_group(0).spawn()?;
        owned.insert(process.id());
        Ok(ChildProcess { process, policy })
    }

    /// Starts `command` with a pipe for each of its three streams.
    pub fn start_piped(command: &mut Command, policy: EndPolicy) -> io::Result<(ChildProcess, Pipes)> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ChildProcess::start(command, policy)?;
        let (stdin, stdout, stderr) =
            (child.process.stdin.take(), child.process.stdout.take(), child.process.stderr.take());
        let missing = || io::Error::other("cannot access the streams of the child process");
        let pipes = Pipes {
            stdin: stdin.ok_or_else(missing)?,
            stdout: stdout.ok_or_else(missing)?,
            stderr: stderr.ok_or_else(missing)?,
        };
        Ok((child, pipes))
    }

    /// Returns the exit status if the process has exited.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    fn has_exited(&mut self) -> bool {
        // An error means that the process is not a child.
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process.id().cast_signed());
        // An error means that it has already exited.
        let _ = match self.policy {
            EndPolicy::TerminateLeader(_) => kill(process, signal),
            EndPolicy::Kill | EndPolicy::Terminate(_) => killpg(process, signal),
        };
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        match self.policy {
            // Needed even if the process has exited: its group may have other processes.
            EndPolicy::Kill => self.signal(Signal::SIGKILL),
            EndPolicy::Terminate(patience) | EndPolicy::TerminateLeader(patience) => {
                if !self.has_exited() {
                    self.signal(Signal::SIGTERM);
                    let end = Instant::now() + patience;
                    while !self.has_exited() && Instant::now() < end {
                        thread::sleep(TICK);
                    }
                }
                if !self.has_exited() {
                    self.signal(Signal::SIGKILL);
                }
            }
        }
        // An error means that it has already been awaited.
        let _ = self.process.wait();
        OWNED.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.process.id());
    }
}

/// Pipes to the three standard streams of a child process.
pub struct Pipes {
    /// Write end of its standard input.
    pub stdin: ChildStdin,
    /// Read end of its standard output.
    pub stdout: ChildStdout,
    /// Read end of its standard error.
    pub stderr: ChildStderr,
}

/// Result of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// `None` if it did not exit in time or the user interrupted it.
    pub status: Option<ExitStatus>,
    /// Standard output so far, up to 16 MiB.
    pub stdout: String,
    /// Standard error so far, up to 16 MiB.
    pub stderr: String,
    /// Time from start to end.
    pub took: Duration,
    /// Time from the start to the first output on the standard output.
    pub first_output: Option<Duration>,
}

impl Answer {
    /// Returns true if it exited by itself with status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// Input and limits of a command.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Bytes for its standard input.
    pub input: &'a [u8],
    /// `None` waits indefinitely.
    pub timeout: Option<Duration>,
    /// Policy for ending it at the timeout.
    pub policy: EndPolicy,
}

/// Runs `command` until it exits, its timeout expires, or the user interrupts. The answer contains the output so far
/// in every case.
pub fn call(command: &mut Command, call: Call, interrupt: &Interrupt) -> io::Result<Answer> {
    let start = Instant::now();
    let (mut child, Pipes { mut stdin, stdout, stderr }) = ChildProcess::start_piped(command, call.policy)?;
    let input = call.input.to_vec();
    // A process that does not read must not block this one, and a process that exited early explains why in its own
    // output.
    thread::spawn(move || stdin.write_all(&input));
    let (sender, chunks) = mpsc::sync_channel(CHUNK_CAPACITY);
    forward(stdout, Stream::Output, sender.clone());
    forward(stderr, Stream::Error, sender);

    let mut answer = Answer::default();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut deadline = call.timeout.map(|timeout| start + timeout);
    loop {
        match chunks.recv_timeout(TICK) {
            Ok((Stream::Output, bytes)) => {
                answer.first_output.get_or_insert_with(|| start.elapsed());
                append_up_to_limit(&mut stdout, &bytes);
            }
            Ok((Stream::Error, bytes)) => append_up_to_limit(&mut stderr, &bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if answer.status.is_some() => break,
            // The output is closed: it is about to exit.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(1)),
        }
        if answer.status.is_none() {
            answer.status = child.try_wait()?;
            if answer.status.is_some() {
                let grace_end = Instant::now() + OUTPUT_GRACE;
                deadline = Some(deadline.map_or(grace_end, |deadline| deadline.min(grace_end)));
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) || interrupt.is_set() {
            break;
        }
    }
    // Before the readers are dropped: it may still write while it is being ended.
    drop(child);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { stdout: text(stdout), stderr: text(stderr), took: start.elapsed(), ..answer })
}

fn append_up_to_limit(stream: &mut Vec<u8>, bytes: &[u8]) {
    let count = bytes.len().min(MAX_OUTPUT - stream.len());
    stream.extend_from_slice(&bytes[..count]);
}

#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

/// Sends the output of `pipe` until it closes.
fn forward(mut pipe: impl Read + Send + 'static, stream: Stream, sender: SyncSender<(Stream, Vec<u8>)>) {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send((stream, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn process_gets_time_to_clean_up_only_if_requested() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ready, cleaned) = (folder.path().join("ready"), folder.path().join("cleaned"));
        let script = format!(
            "trap 'touch {}; exit 0' TERM; touch {}; while true; do sleep 0.02; done",
            cleaned.display(),
            ready.display()
        );
        for (policy, cleans_up) in [(EndPolicy::Kill, false), (EndPolicy::Terminate(Duration::from_secs(20)), true)] {
            let child = ChildProcess::start(shell(&script).stdin(Stdio::null()), policy).expect("sh starts");
            while !ready.exists() {
                thread::sleep(TICK);
            }
            drop(child);
            assert_eq!(cleaned.exists(), cleans_up, "{policy:?}");
            std::fs::remove_file(&ready).expect("removed");
        }
    }

    #[test]
    fn process_that_ignores_sigterm_is_killed() {
        let start = Instant::now();
        let policy = EndPolicy::Terminate(Duration::from_millis(100));
        let call = Call { input: b"", timeout: Some(Duration::from_millis(200)), policy };
        let answer = super::call(&mut shell("trap '' TERM; while true; do sleep 0.1; done"), call, &Interrupt::never());
        assert_eq!(answer.expect("sh starts").status, None);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}
