//! A running program: its output line by line, and its end.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::benchmark::train::program::command::ProgramCommand;
use crate::job::supervise;

/// Interval between calls of `is_over` while the program is silent.
const LOOK: Duration = Duration::from_millis(50);

/// Lines that wait for being read.
const CAPACITY: usize = 1024;

/// Longest line; the rest of a longer one is a line of its own.
const MAX_LINE: usize = 1 << 16;

/// A program with the process that supervises it.
pub struct RunningProgram {
    supervisor: Child,
    lines: Receiver<(Duration, String)>,
}

impl RunningProgram {
    /// Starts a program.
    pub fn start(ProgramCommand { words, environment }: &ProgramCommand) -> Result<RunningProgram> {
        let (reader, writer) = pipe().context("cannot create a pipe for the program's output")?;
        let mut command = Command::new("/proc/self/exe");
        command.args([supervise::COMMAND, &std::process::id().to_string(), "--"]).args(words);
        command.env_clear().envs(environment).stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        let start = Instant::now();
        let supervisor = command.spawn().context("cannot start the supervisor of the program")?;
        // Holds the ends of the pipe that would keep it open.
        drop(command);
        let (sender, lines) = sync_channel(CAPACITY);
        thread::spawn(move || {
            let mut output = BufReader::new(reader);
            while let Some(line) = next_line(&mut output) {
                if sender.send((start.elapsed(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(RunningProgram { supervisor, lines })
    }

    /// Calls `each` for every line with its time since the start, until the program has ended or `is_over` returns true;
    /// then ends the program. Returns the exit status, and true if the program was ended.
    pub fn follow(
        mut self,
        mut each: impl FnMut(Duration, &str) -> Result<()>,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<(ExitStatus, bool)> {
        let mut is_ended = false;
        loop {
            match self.lines.recv_timeout(LOOK) {
                Ok((time, line)) => each(time, &line)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if !is_ended && is_over() {
                is_ended = true;
                // The supervisor ends the program and what it started.
                kill(Pid::from_raw(self.supervisor.id() as i32), Signal::SIGTERM).context("cannot end the program")?;
            }
        }
        Ok((self.supervisor.wait().context("cannot wait for the program")?, is_ended))
    }
}

/// Returns the next line without its end; `None` at the end of the output. Progress bars end lines with a carriage return.
fn next_line(output: &mut BufReader<PipeReader>) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let block = output.fill_buf().ok()?;
        if block.is_empty() {
            return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
        }
        let end = block.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let taken = end.unwrap_or(block.len()).min(MAX_LINE - line.len());
        let is_whole = end == Some(taken) || line.len() + taken == MAX_LINE;
        line.extend_from_slice(&block[..taken]);
        output.consume(taken + usize::from(end == Some(taken)));
        if is_whole && !line.is_empty() {
            return Some(String::from_utf8_lossy(&line).into_owned());
        }
    }
}
