//! A process between a rank and the program that it runs (`ringmark-worker supervise`). It ends the program's processes,
//! orphans included, when the program or the rank ends in any way.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};

use crate::host::facts;

/// Name of the command of the worker.
pub const COMMAND: &str = "supervise";

/// Time that processes get after SIGTERM, before SIGKILL.
pub const GRACE: Duration = Duration::from_secs(5);

/// Interval between looks at the processes that are to end.
const LOOK: Duration = Duration::from_millis(50);

/// Added to the number of a signal in the exit status, as shells do.
const SIGNALED: i32 = 128;

/// Exit status if the command does not exist, as in shells.
const NOT_FOUND: i32 = 127;

/// Runs `command` as a child of `parent`; returns the exit status of this process: that of the command, or 128 and the
/// number of the signal that ended it.
pub fn run(parent: i32, command: &[String]) -> Result<i32> {
    let (program, arguments) = command.split_first().context("the command line is empty")?;
    // Orphaned descendants become children of this process.
    prctl::set_child_subreaper(true).context("cannot become the parent of orphaned processes")?;
    let mut signals = SigSet::empty();
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|signal| signals.add(signal));
    signals.thread_block().context("cannot block signals")?;
    prctl::set_pdeathsig(Signal::SIGTERM).context("cannot request a signal for the end of the rank")?;
    ensure!(getppid().as_raw() == parent, "the rank has ended");
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(facts::first_variables());
    let child = match command.spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("cannot start {program}: {error}");
            return Ok(NOT_FOUND);
        }
        child => child.with_context(|| format!("cannot start {program}"))?,
    };
    let child = Pid::from_raw(child.id() as i32);
    let status = loop {
        match signals.wait().context("cannot wait for signals")? {
            Signal::SIGCHLD => {
                if let Some(status) = reap(child) {
                    break status;
                }
            }
            signal => break SIGNALED + signal as i32,
        }
    };
    end_descendants();
    Ok(status)
}

/// Describes the exit status of [`run`].
pub fn describe(status: ExitStatus) -> String {
    let signal = status.signal().or(status.code().map(|code| code - SIGNALED).filter(|signal| *signal > 0));
    match signal.and_then(|signal| Signal::try_from(signal).ok()) {
        Some(signal) => format!("was ended by signal {} ({signal})", signal as i32),
        None if status.code() == Some(NOT_FOUND) => format!("exited with status {NOT_FOUND}: a command was not found"),
        None => format!("exited with status {}", status.code().unwrap_or_default()),
    }
}

/// Takes the status of every child that has ended; returns that of `child` if it is one of them.
fn reap(child: Pid) -> Option<i32> {
    let mut found = None;
    loop {
        let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(ended, status)) => (ended, status),
            Ok(WaitStatus::Signaled(ended, signal, _)) => (ended, SIGNALED + signal as i32),
            Ok(WaitStatus::StillAlive) | Err(_) => return found,
            Ok(_) => continue,
        };
        found = found.or((status.0 == child).then_some(status.1));
    }
}

/// Ends all descendants: SIGTERM, and SIGKILL after [`GRACE`], also for processes that start meanwhile.
fn end_descendants() {
    let start = Instant::now();
    let mut asked = BTreeSet::new();
    loop {
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
        let left = descendants(getpid().as_raw());
        if left.is_empty() {
            return;
        }
        let is_late = start.elapsed() > GRACE;
        for process in left {
            if is_late || asked.insert(process) {
                let signal = if is_late { Signal::SIGKILL } else { Signal::SIGTERM };
                // It may have ended since.
                let _ = kill(Pid::from_raw(process), signal);
            }
        }
        thread::sleep(LOOK);
    }
}

/// Returns the processes below `ancestor`.
fn descendants(ancestor: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parent = |process: i32| -> Option<(i32, i32)> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The name in parentheses may contain anything.
        Some((process, stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?))
    };
    let parents: Vec<(i32, i32)> =
        entries.filter_map(|entry| parent(entry.file_name().to_str()?.parse().ok()?)).collect();
    let mut found = vec![ancestor];
    let mut next = 0;
    while next < found.len() {
        let current = found[next];
        found.extend(parents.iter().filter(|(_, parent)| *parent == current).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_include_grandchildren() {
        let mut shell = Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().expect("a shell");
        let start = Instant::now();
        let found = loop {
            // Before those of this process, because the shell may start its own at any time.
            let own: Vec<i32> = descendants(shell.id() as i32);
            let found = descendants(getpid().as_raw());
            if !own.is_empty() || start.elapsed() > Duration::from_secs(20) {
                break (found, own);
            }
            thread::sleep(LOOK);
        };
        found.1.iter().for_each(|process| kill(Pid::from_raw(*process), Signal::SIGKILL).expect("ended"));
        shell.wait().expect("ended");
        assert!(found.0.contains(&(shell.id() as i32)) && found.1.iter().all(|process| found.0.contains(process)));
        assert_eq!(found.1.len(), 1);
    }

    #[test]
    fn exit_status_names_the_signal() {
        assert_eq!(describe(ExitStatus::from_raw(3 << 8)), "exited with status 3");
        assert_eq!(describe(ExitStatus::from_raw((128 + 9) << 8)), "was ended by signal 9 (SIGKILL)");
    }
}
