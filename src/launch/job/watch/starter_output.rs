//! Parses messages of mpirun and srun about a rank that ended, whose exit status only its parent receives, and about a
//! job that never started.

use nix::sys::signal::Signal;

/// The cause of a rank's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Number of the signal, which the launcher's host may not have a name for.
    Signal(i32),
    /// Exit status.
    Exit(i32),
    /// Killed by the kernel for exceeding the memory that Slurm grants the job.
    OutOfMemory,
}

/// A reported end of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    /// Number of the rank.
    pub rank: u32,
    /// Cause of the end.
    pub cause: Cause,
}

/// Parser state for messages that span several lines.
#[derive(Debug, Default)]
pub struct StarterOutput {
    /// Rank from Open MPI's `Process name: [[61218,1],3]`.
    process: Option<u32>,
    /// Rank from the first line of Open MPI 5's message about a signal.
    signaled: Option<u32>,
    /// Rank of the last message that contains its host, and the host.
    place: Option<(u32, String)>,
    /// Open MPI's session folder that could not be created, and the error.
    session: Option<(String, String)>,
    /// Host on which a scheduler could not start the job.
    unstarted: Option<UnstartedHost>,
}

/// A host on which a scheduler could not start its part of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnstartedHost {
    /// Name of the host.
    pub name: String,
    /// Scheduler, its message, and the fix.
    description: String,
}

impl StarterOutput {
    /// Parses the next line of output; returns the end of a rank once its report is complete.
    ///
    /// Open MPI's mpirun prints for a signal
    /// `mpirun noticed that process rank 1 with PID 77 on node b exited on signal 9 (Killed).`, in version 5 on two lines,
    /// and for an exit `Process name: [[61218,1],3]`, in version 5 `[prterun-b-77@1,3]`, and `Exit code:    7`. Slurm's
    /// srun prints `srun: error: b: task 1: Killed` or `srun: error: b: tasks 1-2: Exited with exit code 3`.
    pub fn parse_line(&mut self, line: &str) -> Option<ProcessExit> {
        if let Some((_, name)) = line.split_once("Process name: [") {
            self.process = name.trim_end().strip_suffix(']').and_then(|name| name.rsplit_once(',')?.1.parse().ok());
            return None;
        }
        if let Some((_, rest)) = line.split_once(" noticed that process rank ") {
            self.signaled = leading_number(rest);
            let host = rest.split_once(" on node ").and_then(|(_, rest)| rest.split(' ').next());
            self.place = self.signaled.zip(host.map(str::to_owned));
        }
        if let Some((_, signal)) = line.split_once("signal ").filter(|_| self.signaled.is_some()) {
            return Some(ProcessExit { rank: self.signaled.take()?, cause: Cause::Signal(leading_number(signal)?) });
        }
        if let Some(code) = line.trim_start().strip_prefix("Exit code:") {
            let rank = self.process.take()?;
            return Some(ProcessExit { rank, cause: Cause::Exit(leading_number(code.trim_start())?) });
        }
        self.parse_session_failure(line.trim());
        self.unstarted = self.unstarted.take().or_else(|| UnstartedHost::parse(line));
        let exit = parse_srun(line)?;
        let host = line.strip_prefix(SRUN_ERROR).and_then(|rest| rest.split(':').next());
        self.place = host.map(|host| (exit.rank, host.to_owned()));
        Some(exit)
    }

    /// Returns the host of a rank whose end was reported last.
    pub fn host_of(&self, rank: u32) -> Option<&str> {
        self.place.as_ref().filter(|(of, _)| *of == rank).map(|(_, host)| host.as_str())
    }

    /// Parses Open MPI's message from any host: `A call to mkdir was unable to create the desired directory:`, then
    /// `Directory: /tmp/ompi.b.0` and `Error:     Read-only file system`.
    fn parse_session_failure(&mut self, line: &str) {
        // In version 5 the sentence begins with `PMIx detected`.
        if line.to_lowercase().contains("a call to mkdir was unable to create") {
            self.session.get_or_insert_default();
        }
        let Some((folder, error)) = &mut self.session else { return };
        for (name, value) in [("Directory:", folder), ("Error:", error)] {
            if let Some(text) = line.strip_prefix(name).filter(|_| value.is_empty()) {
                *value = text.trim().to_owned();
            }
        }
    }

    /// Returns the first host on which the scheduler could not start the job.
    pub fn unstarted(&self) -> Option<&UnstartedHost> {
        self.unstarted.as_ref()
    }

    /// Returns why Open MPI started no rank, if it could not create its session folder.
    pub fn session_failure(&self) -> Option<String> {
        let (folder, error) =
            self.session.as_ref().filter(|(folder, error)| !folder.is_empty() && !error.is_empty())?;
        Some(format!(
            "Open MPI cannot create its session folder {folder}: {error}: set TMPDIR to a writable folder on every host"
        ))
    }
}

/// Start of the messages of Slurm's srun, before the host.
const SRUN_ERROR: &str = "srun: error: ";

impl UnstartedHost {
    /// Parses the message of srun or qrsh about a host whose daemon does not start the job:
    /// `srun: error: Task launch for StepId=4.0 failed on node b: Communication connection failure` or
    /// `error: executing task of job 2 failed: failed sending task to execd@b: got send error`.
    pub fn parse(line: &str) -> Option<UnstartedHost> {
        let described = |scheduler: &str, host_and_reason: &str, daemon: &str, query: &str| {
            let (name, reason) = host_and_reason.trim_end().split_once(": ")?;
            let description =
                format!("{scheduler} cannot start ranks on {name}: {reason}: check {daemon} there ({query} {name})");
            Some(UnstartedHost { name: name.to_owned(), description })
        };
        let srun = line.strip_prefix(SRUN_ERROR).and_then(|rest| rest.split_once(" failed on node "));
        if let Some((_, rest)) = srun {
            return described("Slurm", rest, "slurmd", "scontrol show node");
        }
        let (_, rest) = line.strip_prefix("error: ")?.split_once("failed sending task to execd@")?;
        described("Grid Engine", rest, "sge_execd", "qhost -h")
    }

    /// Describes the failure and the fix.
    pub fn description(&self) -> &str {
        &self.description
    }
}

/// Parses a line of Slurm's srun.
fn parse_srun(line: &str) -> Option<ProcessExit> {
    let (_, rest) = line.strip_prefix(SRUN_ERROR)?.split_once(": task")?;
    let (is_single, rest) = rest.strip_prefix('s').map_or((true, rest), |rest| (false, rest));
    let (ranks, cause) = rest.trim_start().split_once(": ")?;
    let rank = leading_number(ranks)?;
    if let Some((_, code)) = cause.split_once("exit code ") {
        return Some(ProcessExit { rank, cause: Cause::Exit(leading_number(code)?) });
    }
    if cause.starts_with("Out Of Memory") {
        return Some(ProcessExit { rank, cause: Cause::OutOfMemory });
    }
    let signal = signal_by_name(cause)?;
    // If several ranks were killed alike, Slurm killed them because of another one; it does not send the signals of a
    // crash.
    let may_come_from_slurm = matches!(signal, Signal::SIGKILL | Signal::SIGTERM | Signal::SIGINT);
    (is_single || !may_come_from_slurm).then_some(ProcessExit { rank, cause: Cause::Signal(signal as i32) })
}

fn leading_number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let end = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Parses strsignal's text as Slurm prints it, which may be followed by `(core dumped)`.
fn signal_by_name(text: &str) -> Option<Signal> {
    const NAMES: [(&str, Signal); 8] = [
        ("Killed", Signal::SIGKILL),
        ("Terminated", Signal::SIGTERM),
        ("Segmentation fault", Signal::SIGSEGV),
        ("Aborted", Signal::SIGABRT),
        ("Bus error", Signal::SIGBUS),
        ("Illegal instruction", Signal::SIGILL),
        ("Floating point exception", Signal::SIGFPE),
        ("Interrupt", Signal::SIGINT),
    ];
    NAMES.iter().find(|(start, _)| text.starts_with(start)).map(|(_, signal)| *signal)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn death(rank: u32, cause: Cause) -> Option<ProcessExit> {
        Some(ProcessExit { rank, cause })
    }

    #[test]
    fn signals_are_parsed_from_mpirun_and_srun() {
        for lines in [
            "mpirun noticed that process rank 1 with PID 4711 on node b exited on signal 9 (Killed).",
            "prterun noticed that process rank 1 with PID 26602 on node vm exited on\nsignal 9 (Killed).",
            "srun: error: b: task 1: Killed",
        ] {
            let mut output = StarterOutput::default();
            let exits: Vec<ProcessExit> = lines.lines().filter_map(|line| output.parse_line(line)).collect();
            assert_eq!(exits, death(1, Cause::Signal(9)).into_iter().collect::<Vec<_>>(), "{lines}");
        }
        assert_eq!(parse_srun("srun: error: b: task 1: Out Of Memory"), death(1, Cause::OutOfMemory));
        let crashed = death(12, Cause::Signal(11));
        assert_eq!(parse_srun("srun: error: node7: task 12: Segmentation fault (core dumped)"), crashed);
        let both = death(0, Cause::Signal(11));
        assert_eq!(parse_srun("srun: error: b: tasks 0-1: Segmentation fault"), both);
        assert_eq!(parse_srun("srun: error: b: task 3: Exited with exit code 2"), death(3, Cause::Exit(2)));
    }

    #[test]
    fn mpirun_exit_status_is_parsed_from_two_lines() {
        for name in ["[[61218,1],3]", "[prterun-vm-26604@1,3]"] {
            let mut output = StarterOutput::default();
            assert_eq!(output.parse_line("  Exit code:    7"), None);
            assert_eq!(output.parse_line(&format!("   Process name: {name}\n")), None);
            assert_eq!(output.parse_line("  Exit code:    7"), death(3, Cause::Exit(7)), "{name}");
        }
    }

    #[test]
    fn session_folder_failure_is_reported_once_complete() {
        let mut output = StarterOutput::default();
        output.parse_line("  Directory: /data");
        output.parse_line("A call to mkdir was unable to create the desired directory:\n");
        output.parse_line("\n");
        output.parse_line("  Directory: /tmp/ompi.b.0\n");
        assert_eq!(output.session_failure(), None);
        output.parse_line("  Error:     Read-only file system\n");
        output.parse_line("  Directory: /tmp/ompi.c.0\n");
        assert_eq!(
            output.session_failure().as_deref(),
            Some(
                "Open MPI cannot create its session folder /tmp/ompi.b.0: Read-only file system: set TMPDIR to a writable folder on every host"
            )
        );
    }

    #[test]
    fn first_host_that_a_scheduler_cannot_start_is_named() {
        let unstarted = |lines: &[&str]| {
            let mut output = StarterOutput::default();
            lines.iter().for_each(|line| assert_eq!(output.parse_line(line), None));
            output.unstarted().map(|host| (host.name.clone(), host.description().to_owned()))
        };
        let slurm = "srun: error: Task launch for StepId=4.0 failed on node b: Communication connection failure";
        let found = unstarted(&[slurm, &slurm.replace("node b", "node c"), "srun: Job step aborted"]).expect("a host");
        assert_eq!(found.0, "b");
        expect![
            "Slurm cannot start ranks on b: Communication connection failure: check slurmd there (scontrol show node b)"
        ]
        .assert_eq(&found.1);
        let qrsh = "error: executing task of job 2 failed: failed sending task to execd@b: got send error\n";
        let found = unstarted(&[qrsh]).expect("a host");
        expect!["Grid Engine cannot start ranks on b: got send error: check sge_execd there (qhost -h b)"]
            .assert_eq(&found.1);
        assert_eq!(unstarted(&["srun: error: Application launch failed: Communication connection failure"]), None);
    }

    #[test]
    fn unrelated_lines_are_ignored() {
        for line in [
            "",
            "srun: error: Unable to allocate resources",
            "mpirun noticed that the job aborted, but has no info as to the process",
            "srun: error: b: tasks 1-2: Killed",
            "srun: error: b: task 1: something new",
            "Epoch[0] Batch[1]",
        ] {
            assert_eq!(StarterOutput::default().parse_line(line), None, "{line}");
        }
    }
}
