//! Runs a job: starts it, passes on its output, and ends all its processes.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use ringmark_core::benchmark::Record;
use ringmark_core::host::LauncherAddress;
use ringmark_core::host::heartbeat::LAUNCHER_VARIABLE;

use crate::launch::job::starter::Starter;
use crate::launch::job::watch::{Watch, WatchedRanks};
use crate::launch::local::child::{ChildProcess, EndPolicy, reap_orphans};
use crate::launch::local::interrupt::{Interrupt, TICK};

/// Time for mpirun or srun to end its ranks on all hosts before it is killed. Each gives its ranks a second.
const END_GRACE: Duration = Duration::from_secs(5);

/// Interval at which the positions of the ranks are reported; ranks send them once a second.
const RANKS_INTERVAL: Duration = Duration::from_millis(500);

/// Longest block of output, in bytes. A rank may print endlessly, and without a newline.
const MAX_BLOCK: usize = 1 << 16;

/// Blocks that wait to be passed on. Beyond that the pipe fills up and its writers block.
const BLOCK_CAPACITY: usize = 64;

/// Which rank caused a failure, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Sentence for the user.
    pub text: String,
    /// False if the rank gave no reason: the end of the log may explain more.
    pub is_complete: bool,
}

/// Outcome of a job. In every case, none of its processes is left on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessOutcome {
    /// Exited by itself; on failure with the rank that caused it, if known.
    Exited(ExitStatus, Option<Explanation>),
    /// Ended by the launcher because a rank hung or had exited, with the reason.
    Stopped(String),
    /// Ended by the launcher at its time limit, with the positions of the ranks.
    TimedOut(Duration, String),
    /// Interrupted by the user.
    Interrupted,
}

impl ProcessOutcome {
    /// Returns the reason of a failure; `None` for exit status 0.
    pub fn failure(&self, starter: Starter) -> Option<String> {
        let program = starter.program();
        match self {
            ProcessOutcome::Exited(status, _) if status.success() => None,
            ProcessOutcome::Exited(status, reason) => Some(match (reason, status.code(), status.signal()) {
                // Its ranks end with it: they are not the cause.
                (_, None, signal) => format!("{program} was killed by signal {}", signal.unwrap_or_default()),
                (Some(explanation), ..) => explanation.text.clone(),
                (None, Some(code), _) => format!("{program} exited with status {code}"),
            }),
            ProcessOutcome::Stopped(reason) => Some(reason.clone()),
            ProcessOutcome::TimedOut(limit, places) => Some(format!("timed out after {} s; {places}", limit.as_secs())),
            ProcessOutcome::Interrupted => Some("interrupted".to_owned()),
        }
    }

    /// Returns the explanation of a failed rank, whatever the exit status.
    pub fn rank_failure(&self) -> Option<&str> {
        match self {
            ProcessOutcome::Exited(_, explanation) => Some(&explanation.as_ref()?.text),
            _ => None,
        }
    }

    /// Returns why a job does not count, given its record, or why there is none.
    pub fn failure_with_record<R: Record>(&self, starter: Starter, record: &Result<R, String>) -> Option<String> {
        match record {
            Err(missing) => {
                let known = self.failure(starter).or_else(|| self.rank_failure().map(str::to_owned));
                Some(known.unwrap_or_else(|| missing.clone()))
            }
            // If a job ended by itself, the record contains the reason; mpirun or srun only reports the failure.
            Ok(record) => {
                let recorded = record.failure().filter(|_| matches!(self, ProcessOutcome::Exited(..)));
                recorded.or_else(|| self.failure(starter))
            }
        }
    }

    /// Returns true if the only failure is that the figures in the record miss a minimum.
    pub fn is_miss(&self, record: &impl Record) -> bool {
        matches!(self, ProcessOutcome::Exited(..)) && record.is_miss()
    }

    /// Returns true if the end of the log may explain more about a failure.
    pub fn is_unexplained(&self) -> bool {
        matches!(self, ProcessOutcome::Exited(_, explanation) if explanation.as_ref().is_none_or(|it| !it.is_complete))
    }
}

/// An event of a running job.
pub enum JobEvent<'a> {
    /// Output of either stream, in whole lines that include their newline. A very long line is split.
    Block(&'a [u8]),
    /// Positions of the ranks, every half a second, or less often in a large job.
    Ranks(WatchedRanks),
}

/// Runs `command` of `starter`, with `variables` in its environment, to its end, for at most `timeout`, monitored by
/// `watch`. `each` gets all output as it arrives; an error of `each` ends the job. Also returns the time at which the end
/// was detected.
pub fn run(
    starter: Starter,
    command: &[String],
    variables: &[(&str, String)],
    timeout: Option<Duration>,
    interrupt: &Interrupt,
    watch: &mut Watch,
    mut each: impl FnMut(JobEvent) -> anyhow::Result<()>,
) -> anyhow::Result<(ProcessOutcome, Instant)> {
    let (mut job, blocks) = RunningJob::start(starter, command, variables, watch.address())?;
    let deadline = timeout.map(|limit| (limit, Instant::now() + limit));
    let mut last_ranks = Instant::now();
    let ended = loop {
        match blocks.recv_timeout(TICK) {
            Ok(block) => deliver(&block?, watch, &mut each)?,
            Err(RecvTimeoutError::Timeout) => {}
            // The output is closed: the job is about to exit.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
        }
        if let Some(status) = job.leader.try_wait()? {
            // Grid Engine signals all processes of its job: a requested end is not a failure.
            let is_requested = !status.success() && interrupt.is_set();
            break if is_requested { ProcessOutcome::Interrupted } else { ProcessOutcome::Exited(status, None) };
        }
        if interrupt.is_set() {
            break ProcessOutcome::Interrupted;
        }
        if let Some(reason) = watch.verdict() {
            break ProcessOutcome::Stopped(reason);
        }
        if last_ranks.elapsed() >= RANKS_INTERVAL.max(2 * watch.check_interval()) {
            last_ranks = Instant::now();
            each(JobEvent::Ranks(watch.ranks()))?;
        }
        if let Some((limit, _)) = deadline.filter(|(_, end)| Instant::now() >= *end) {
            break ProcessOutcome::TimedOut(limit, watch.describe_positions());
        }
    };
    let detected = Instant::now();
    // A process that blocks on its last lines of output cannot exit, so they are read while the job is ended. Then no
    // process has the pipe open, and reading stops after the last line.
    thread::scope(|scope| {
        scope.spawn(|| drop(job));
        blocks.into_iter().try_for_each(|block| deliver(&block?, watch, &mut each))
    })?;
    let ended = match ended {
        // If ranks may be lost, mpirun's exit status is 0 even if all of them are.
        ProcessOutcome::Exited(status, _) => {
            let explanation = watch.explanation();
            let is_complete = watch.has_reason();
            ProcessOutcome::Exited(status, explanation.map(|text| Explanation { text, is_complete }))
        }
        ProcessOutcome::Stopped(verdict) => ProcessOutcome::Stopped(watch.final_reason(verdict)),
        ended => ended,
    };
    Ok((ended, detected))
}

fn deliver(
    block: &[u8],
    watch: &mut Watch,
    each: &mut impl FnMut(JobEvent) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    split_lines(block).for_each(|line| watch.line(&String::from_utf8_lossy(line)));
    each(JobEvent::Block(block))
}

/// The subcommand of `ringmark` that calls [`run_with_parent`].
const RUN_WITH_PARENT: &str = "run-with-parent";

/// Executes `command`, which gets SIGTERM when `launcher`, this process's parent, ends in any way, including by
/// SIGKILL. Returns only on error.
pub fn run_with_parent(launcher: i32, command: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("command line is empty")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM).context("cannot request a signal for the launcher's exit")?;
    // The launcher may have ended before the call above.
    ensure!(getppid().as_raw() == launcher, "launcher has exited");
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("cannot start {program}"))
}

/// A started job; dropping it ends it.
struct RunningJob {
    /// mpirun or srun. Gets SIGTERM, so that it ends the ranks on all hosts, and SIGKILL after [`END_GRACE`].
    leader: ChildProcess,
    /// Ends the remaining processes; dropped after the leader.
    _orphans: Orphans,
}

impl RunningJob {
    fn start(
        starter: Starter,
        command: &[String],
        variables: &[(&str, String)],
        address: &LauncherAddress,
    ) -> anyhow::Result<(RunningJob, Receiver<io::Result<Vec<u8>>>)> {
        // Processes that mpirun leaves behind become children of this process instead of init, so that they can be
        // found and ended.
        nix::sys::prctl::set_child_subreaper(true).context("cannot become the parent of orphaned ranks")?;
        let grace = if starter.has_watcher() { END_GRACE } else { Duration::ZERO };
        let orphans = Orphans::new(grace, address);
        let (reader, writer) = io::pipe().context("cannot create a pipe for the output")?;
        let policy = match starter.has_watcher() {
            true => EndPolicy::TerminateLeader(END_GRACE),
            false => EndPolicy::Terminate(END_GRACE),
        };
        let mut wrapper = Command::new("/proc/self/exe");
        wrapper
            .args([RUN_WITH_PARENT, &process::id().to_string(), "--"])
            .args(command)
            .env(LAUNCHER_VARIABLE, address.to_string())
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("cannot create a pipe for the output")?)
            .stderr(writer);
        let leader =
            ChildProcess::start(&mut wrapper, policy).context("cannot start the wrapper process of mpirun or srun")?;
        let (sender, blocks) = mpsc::sync_channel(BLOCK_CAPACITY);
        thread::Builder::new().spawn(move || send_blocks(reader, &sender)).context(
            "cannot start a thread for the \
             output",
        )?;
        Ok((RunningJob { leader, _orphans: orphans }, blocks))
    }
}

/// Splits a block into lines, each including its newline, if any.
pub fn split_lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split_inclusive(|byte| *byte == b'\n')
}

/// Sends all of `output` in blocks of whole lines as they arrive. A line longer than a block is split, and a last
/// line without a newline gets one.
fn send_blocks(mut output: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; MAX_BLOCK];
    let mut filled = 0;
    let mut is_inside_line = false;
    loop {
        let block = match output.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 && !is_inside_line => return,
            Ok(0) => {
                let last = [&buffer[..filled], b"\n"].concat();
                filled = 0;
                last
            }
            Ok(count) => {
                let newline = buffer[filled..filled + count].iter().rposition(|byte| *byte == b'\n');
                let whole = newline.map_or(0, |end| filled + end + 1);
                filled += count;
                let length = if whole == 0 && filled == MAX_BLOCK { filled } else { whole };
                let block = buffer[..length].to_vec();
                buffer.copy_within(length..filled, 0);
                filled -= length;
                block
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                // If the receiver was dropped, there is nothing to report.
                let _ = sender.send(Err(error));
                return;
            }
        };
        // No complete line yet.
        let Some(last) = block.last() else { continue };
        is_inside_line = *last != b'\n';
        if sender.send(Ok(block)).is_err() {
            return;
        }
    }
}

/// Number of jobs that this process runs at once.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Orphaned processes of a job; dropping it ends them.
struct Orphans {
    /// Time for them to exit by themselves.
    grace: Duration,
    /// Entry of their environment that processes of other jobs do not have.
    entry: Vec<u8>,
}

impl Orphans {
    /// Created before the first process of the job starts.
    fn new(grace: Duration, address: &LauncherAddress) -> Orphans {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Orphans { grace, entry: format!("{LAUNCHER_VARIABLE}={address}").into_bytes() }
    }

    /// Reaps the descendants of this process that belong to the job, and kills those that still run after the grace
    /// period. Gives up after another [`END_GRACE`] if the kernel does not release one.
    fn end(&self) {
        let own = Pid::this();
        let start = Instant::now();
        while start.elapsed() < self.grace + END_GRACE {
            let processes = processes();
            let children = processes.iter().filter(|process| process.parent == own);
            let is_any_reaped = reap_orphans(children.map(|process| process.id));
            // After the list was read: a job that started later has no process in it.
            let is_alone = RUNNING.load(Ordering::SeqCst) == 1;
            let mut left = descendants(own, &processes);
            left.retain(|process| is_alone || self.has_entry(*process));
            if left.is_empty() && !is_any_reaped {
                return;
            }
            if start.elapsed() >= self.grace {
                for process in left {
                    let _ = kill(process, Signal::SIGKILL);
                }
            }
            thread::sleep(TICK);
        }
    }

    fn has_entry(&self, process: Pid) -> bool {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == self.entry)
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        self.end();
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A process of this machine.
struct Process {
    id: Pid,
    parent: Pid,
    /// True if it has exited, and its parent has not yet asked for its status.
    is_zombie: bool,
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        parse_status(Pid::from_raw(id), &fs::read_to_string(entry.path().join("stat")).ok()?)
    };
    entries.filter_map(process).collect()
}

/// Parses the third and fourth field of `/proc/PID/stat`. The second field, the name in parentheses, may contain any
/// character.
fn parse_status(id: Pid, status: &str) -> Option<Process> {
    let (_, fields) = status.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    Some(Process { id, parent: Pid::from_raw(fields.next()?.parse().ok()?), is_zombie })
}

/// Returns the running descendants of `root`. A process that has exited has no children.
fn descendants(root: Pid, processes: &[Process]) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(
            processes.iter().filter(|process| process.parent == parent && !process.is_zombie).map(|process| process.id),
        );
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::job::slurm::StepGpus;

    #[test]
    fn every_abnormal_end_has_a_reason() {
        let exited = |raw| ProcessOutcome::Exited(ExitStatus::from_raw(raw), None).failure(Starter::Mpirun);
        assert_eq!(exited(0), None);
        assert_eq!(exited(3 << 8).as_deref(), Some("mpirun exited with status 3"));
        assert_eq!(exited(9).as_deref(), Some("mpirun was killed by signal 9"));
        let srun =
            ProcessOutcome::Exited(ExitStatus::from_raw(3 << 8), None).failure(Starter::Slurm(StepGpus::Unknown));
        assert_eq!(srun.as_deref(), Some("srun exited with status 3"));
        let timed_out = ProcessOutcome::TimedOut(Duration::from_secs(90), "no rank has reported".to_owned());
        let reason = "timed out after 90 s; no rank has reported";
        assert_eq!(timed_out.failure(Starter::Mpirun).as_deref(), Some(reason));
    }

    #[test]
    fn lines_are_complete_unless_too_long() {
        let sent = |output: &[u8]| {
            let (sender, blocks) = mpsc::sync_channel(BLOCK_CAPACITY);
            send_blocks(output, &sender);
            drop(sender);
            blocks.into_iter().map(|block| block.expect("memory can be read")).collect::<Vec<_>>()
        };
        assert_eq!(sent(b"a\n\nb"), [&b"a\n\n"[..], b"b\n"]);
        assert_eq!(split_lines(b"a\n\nb").collect::<Vec<_>>(), [&b"a\n"[..], b"\n", b"b"]);
        assert_eq!(sent(b""), Vec::<Vec<u8>>::new());
        let long = vec![b'x'; 2 * MAX_BLOCK + 5];
        let blocks = sent(&[&long[..], b"\nlast\n"].concat());
        assert_eq!(blocks.concat(), [&long[..], b"\nlast\n"].concat());
        assert_eq!(blocks.iter().map(Vec::len).max(), Some(MAX_BLOCK));
        // Lines that fit into a block are not split.
        let short = b"some words\n".repeat(20_000);
        let blocks = sent(&short);
        assert_eq!(blocks.concat(), short);
        assert!(blocks.iter().all(|block| block.ends_with(b"\n")) && blocks.len() < 8);
    }

    #[test]
    fn state_and_parent_are_parsed_after_any_process_name() {
        let parsed = |text| parse_status(Pid::from_raw(7), text).map(|process| (process.parent, process.is_zombie));
        assert_eq!(parsed("7 (a) b) S 3 7 7 0 -1"), Some((Pid::from_raw(3), false)));
        assert_eq!(parsed("7 (a) Z 3 7 7 0 -1"), Some((Pid::from_raw(3), true)));
        assert_eq!(parsed("7 (cut off"), None);
    }

    #[test]
    fn descendants_include_all_generations_only() {
        let pairs = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 2)];
        let [two, seven] = [2, 7].map(Pid::from_raw);
        let running = pairs.map(|(id, parent)| Process {
            id: Pid::from_raw(id),
            parent: Pid::from_raw(parent),
            is_zombie: false,
        });
        let processes: Vec<_> =
            running.into_iter().chain([Process { id: seven, parent: two, is_zombie: true }]).collect();
        let mut found = descendants(two, &processes);
        found.sort();
        assert_eq!(found, [3, 4, 6].map(Pid::from_raw));
    }
}
