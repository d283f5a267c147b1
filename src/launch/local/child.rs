//! The one way to start, await and end a child process: in a process group of its own, so that the terminal's Ctrl-C
//! reaches us alone, and never longer than the value that stands for it. Not for what the process does.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::launch::local::interrupt::{Interrupt, TICK};

/// How long output is awaited after the process that wrote it has ended: one that it left behind may hold the pipe.
const REST: Duration = Duration::from_millis(200);

/// What is kept of a stream, in bytes; the rest is read and dropped.
const LONGEST_OUTPUT: usize = 1 << 24;

/// Chunks of output that wait to be taken.
const WAITING_CHUNKS: usize = 1 << 10;

/// How a process that still runs is ended when its value is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndPolicy {
    /// SIGKILL to its group: there is nothing that it would have to clean up.
    Kill,
    /// SIGTERM to its group, and after so long SIGKILL.
    Terminate(Duration),
    /// The same, to the process alone: it ends the others of its group, or another process of the group does.
    TerminateLeader(Duration),
}

/// A child process; dropping it ends it.
#[derive(Debug)]
pub struct ChildProcess {
    process: Child,
    policy: EndPolicy,
}

impl ChildProcess {
    /// Starts `command` with the streams that it has.
    pub fn start(command: &mut Command, policy: EndPolicy) -> io::Result<ChildProcess> {
        Ok(ChildProcess { process: command.process_group(0).spawn()?, policy })
    }

    /// Starts `command` with a pipe for each of its three streams.
    pub fn start_piped(command: &mut Command, policy: EndPolicy) -> io::Result<(ChildProcess, Pipes)> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = ChildProcess::start(command, policy)?;
        let (stdin, stdout, stderr) =
            (child.process.stdin.take(), child.process.stdout.take(), child.process.stderr.take());
        let missing = || io::Error::other("its streams are not there");
        let pipes = Pipes {
            stdin: stdin.ok_or_else(missing)?,
            stdout: stdout.ok_or_else(missing)?,
            stderr: stderr.ok_or_else(missing)?,
        };
        Ok((child, pipes))
    }

    /// Its exit status, where it has ended.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    fn has_exited(&mut self) -> bool {
        // An error means that there is no such child.
        !matches!(self.process.try_wait(), Ok(None))
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(self.process.id().cast_signed());
        // An error means that it has gone already.
        let _ = match self.policy {
            EndPolicy::TerminateLeader(_) => kill(process, signal),
            EndPolicy::Kill | EndPolicy::Terminate(_) => killpg(process, signal),
        };
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        match self.policy {
            // Also of a process that has exited: it may have left others in its group.
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
        // An error means that it was awaited already.
        let _ = self.process.wait();
    }
}

/// The three streams of a child process.
pub struct Pipes {
    /// Its standard input.
    pub stdin: ChildStdin,
    /// Its standard output.
    pub stdout: ChildStdout,
    /// Its standard error.
    pub stderr: ChildStderr,
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// `None` where it did not end in time, or the user asked to stop.
    pub status: Option<ExitStatus>,
    /// All it wrote, as far as it came, up to 16 MiB.
    pub stdout: String,
    /// All it wrote, as far as it came, up to 16 MiB.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
    /// From its start to the first of its standard output.
    pub first_output: Option<Duration>,
}

impl Answer {
    /// Whether it ended by itself, with exit status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// What a command is given, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// For its standard input.
    pub input: &'a [u8],
    /// `None` for as long as it takes.
    pub timeout: Option<Duration>,
    /// How it is ended where it does not end in time.
    pub policy: EndPolicy,
}

/// Runs `command` to its end, to its time-out, or until the user asks to stop. What it wrote until then is in the answer,
/// however it ended.
pub fn call(command: &mut Command, call: Call, interrupt: &Interrupt) -> io::Result<Answer> {
    let start = Instant::now();
    let (mut child, Pipes { mut stdin, stdout, stderr }) = ChildProcess::start_piped(command, call.policy)?;
    let input = call.input.to_vec();
    // A process that does not read must not block us, and one that has ended early says why in its own output.
    thread::spawn(move || stdin.write_all(&input));
    let (sender, chunks) = mpsc::sync_channel(WAITING_CHUNKS);
    forward(stdout, Stream::Output, sender.clone());
    forward(stderr, Stream::Error, sender);

    let mut answer = Answer::default();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut deadline = call.timeout.map(|timeout| start + timeout);
    loop {
        match chunks.recv_timeout(TICK) {
            Ok((Stream::Output, bytes)) => {
                answer.first_output.get_or_insert_with(|| start.elapsed());
                keep(&mut stdout, &bytes);
            }
            Ok((Stream::Error, bytes)) => keep(&mut stderr, &bytes),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) if answer.status.is_some() => break,
            // Its output is closed: it is about to exit.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(1)),
        }
        if answer.status.is_none() {
            answer.status = child.try_wait()?;
            if answer.status.is_some() {
                let rest = Instant::now() + REST;
                deadline = Some(deadline.map_or(rest, |deadline| deadline.min(rest)));
            }
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) || interrupt.asked() {
            break;
        }
    }
    // While its output is still taken: it may have something to say when it is ended.
    drop(child);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Answer { stdout: text(stdout), stderr: text(stderr), took: start.elapsed(), ..answer })
}

/// Takes as much as fits.
fn keep(stream: &mut Vec<u8>, bytes: &[u8]) {
    let count = bytes.len().min(LONGEST_OUTPUT - stream.len());
    stream.extend_from_slice(&bytes[..count]);
}

/// Which stream a chunk of output came from.
#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

/// Sends what comes out of `pipe`, until it closes.
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
    fn a_process_gets_its_time_to_clean_up_or_none() {
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
    fn one_that_does_not_mind_is_killed_in_the_end() {
        let start = Instant::now();
        let policy = EndPolicy::Terminate(Duration::from_millis(100));
        let call = Call { input: b"", timeout: Some(Duration::from_millis(200)), policy };
        let answer = super::call(&mut shell("trap '' TERM; while true; do sleep 0.1; done"), call, &Interrupt::never());
        assert_eq!(answer.expect("sh starts").status, None);
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
}
