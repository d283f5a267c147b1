//! One job: starts it, hands out its lines as they come, and ends all of it. Not for what the lines mean.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use ringmark_core::host::LauncherAddress;
use ringmark_core::host::heartbeat::LAUNCHER_VARIABLE;

use crate::launch::job::starter::Starter;
use crate::launch::job::watch::{Watch, WatchedRanks};
use crate::launch::local::child::{ChildProcess, EndPolicy};
use crate::launch::local::interrupt::{Interrupt, TICK};

/// What mpirun or srun gets to end its ranks, on all hosts, before it is killed: it gives them a second itself.
const GRACE: Duration = Duration::from_secs(5);

/// Between two looks at where the ranks are, which say it once a second.
const LOOK: Duration = Duration::from_millis(500);

/// Longest block of output, in bytes: a rank may print without end, and without a newline.
const LONGEST_BLOCK: usize = 1 << 16;

/// Blocks that wait to be handed out; then the pipe holds the rest, and who writes into it waits.
const WAITING_BLOCKS: usize = 64;

/// Which rank caused a failure, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// Sentence for the user.
    pub text: String,
    /// False if the rank gave no reason: the end of the log may tell more.
    pub is_complete: bool,
}

/// How a job ended. In every case none of its processes is left on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// By itself; and of a failure which rank caused it, if that is known.
    Exited(ExitStatus, Option<Explanation>),
    /// It was ended because a rank hung or had died, and which.
    Stopped(String),
    /// It ran longer than allowed and was ended; and where its ranks were.
    TimedOut(Duration, String),
    /// The user asked for it.
    Interrupted,
}

impl Ended {
    /// Why this is a failure; `None` for exit status 0.
    pub fn failure(&self, starter: Starter) -> Option<String> {
        let program = starter.program();
        match self {
            Ended::Exited(status, _) if status.success() => None,
            Ended::Exited(status, reason) => Some(match (reason, status.code(), status.signal()) {
                // Its ranks die with it: they are not what is wrong.
                (_, None, signal) => format!("{program} itself was ended by signal {}", signal.unwrap_or_default()),
                (Some(explanation), ..) => explanation.text.clone(),
                (None, Some(code), _) => format!("{program} ended with exit status {code}"),
            }),
            Ended::Stopped(reason) => Some(reason.clone()),
            Ended::TimedOut(limit, places) => Some(format!("timed out after {} s; {places}", limit.as_secs())),
            Ended::Interrupted => Some("interrupted".to_owned()),
        }
    }

    /// What is known of a rank that failed, whatever the exit status.
    pub fn rank_failure(&self) -> Option<&str> {
        match self {
            Ended::Exited(_, explanation) => Some(&explanation.as_ref()?.text),
            _ => None,
        }
    }

    /// Returns true if the end of the log may tell more about a failure.
    pub fn is_unexplained(&self) -> bool {
        matches!(self, Ended::Exited(_, explanation) if explanation.as_ref().is_none_or(|it| !it.is_complete))
    }
}

/// What is heard of a job while it runs.
pub enum Heard<'a> {
    /// What it wrote on either stream, in whole lines, each with its newline; a very long one comes in parts.
    Block(&'a [u8]),
    /// Places of the ranks, every half a second, or less often in a large job.
    Ranks(WatchedRanks),
}

/// Runs `command` of `starter` to its end, in at most `timeout`, watched by `watch`. `each` gets all its output as it comes; an
/// error of `each` ends the job.
pub fn run(
    starter: Starter,
    command: &[String],
    timeout: Option<Duration>,
    interrupt: &Interrupt,
    watch: &mut Watch,
    mut each: impl FnMut(Heard) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    let (mut job, blocks) = RunningJob::start(starter, command, watch.address())?;
    let deadline = timeout.map(|limit| (limit, Instant::now() + limit));
    let mut looked = Instant::now();
    let ended = loop {
        match blocks.recv_timeout(TICK) {
            Ok(block) => hand_out(&block?, watch, &mut each)?,
            Err(RecvTimeoutError::Timeout) => {}
            // Its output is closed: it is about to exit.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(TICK),
        }
        if let Some(status) = job.leader.try_wait()? {
            // Grid Engine signals all processes of its job: what it asked for is no failure of theirs.
            let is_asked = !status.success() && interrupt.asked();
            break if is_asked { Ended::Interrupted } else { Ended::Exited(status, None) };
        }
        if interrupt.asked() {
            break Ended::Interrupted;
        }
        if let Some(reason) = watch.verdict() {
            break Ended::Stopped(reason);
        }
        if looked.elapsed() >= LOOK.max(2 * watch.interval_of_looks()) {
            looked = Instant::now();
            each(Heard::Ranks(watch.ranks()))?;
        }
        if let Some((limit, _)) = deadline.filter(|(_, end)| Instant::now() >= *end) {
            break Ended::TimedOut(limit, watch.whereabouts());
        }
    };
    // What waits for its last lines to be taken cannot end. When it has ended nobody holds the other end any more, so this
    // stops at the last line.
    thread::scope(|scope| {
        scope.spawn(|| drop(job));
        blocks.into_iter().try_for_each(|block| hand_out(&block?, watch, &mut each))
    })?;
    Ok(match ended {
        // Where ranks may be lost, mpirun's exit status is 0 even if all of them are.
        Ended::Exited(status, _) => {
            let explanation = watch.explanation();
            let is_complete = watch.has_reason();
            Ended::Exited(status, explanation.map(|text| Explanation { text, is_complete }))
        }
        Ended::Stopped(verdict) => Ended::Stopped(watch.last_word(verdict)),
        ended => ended,
    })
}

fn hand_out(block: &[u8], watch: &mut Watch, each: &mut impl FnMut(Heard) -> anyhow::Result<()>) -> anyhow::Result<()> {
    lines_of(block).for_each(|line| watch.line(&String::from_utf8_lossy(line)));
    each(Heard::Block(block))
}

/// The command of `ringmark` that is [`leash`].
const LEASH: &str = "leash";

/// Becomes `command`, which gets SIGTERM when `launcher`, this process's parent, ends in any way, SIGKILL included. Returns
/// only with an error.
pub fn leash(launcher: i32, command: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("an empty command line")?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM).context("the kernel does not signal the launcher's end")?;
    // It may have ended before it could be watched.
    ensure!(getppid().as_raw() == launcher, "the launcher is gone");
    Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{program} cannot be started"))
}

/// A started job; dropping it ends it.
struct RunningJob {
    /// mpirun or srun. Gets SIGTERM, so that it ends the ranks of every host; after [`GRACE`] SIGKILL.
    leader: ChildProcess,
    /// Ends whoever is still there; dropped after the leader.
    _orphans: Orphans,
}

impl RunningJob {
    fn start(
        starter: Starter,
        command: &[String],
        address: &LauncherAddress,
    ) -> anyhow::Result<(RunningJob, Receiver<io::Result<Vec<u8>>>)> {
        // What a dying mpirun leaves behind becomes our child instead of init's: then it can be found and ended.
        nix::sys::prctl::set_child_subreaper(true).context("orphaned ranks cannot be adopted")?;
        let (reader, writer) = io::pipe().context("no pipe for the output")?;
        let policy = match starter.has_watcher() {
            true => EndPolicy::TerminateLeader(GRACE),
            false => EndPolicy::Terminate(GRACE),
        };
        let mut leashed = Command::new("/proc/self/exe");
        leashed
            .args([LEASH, &process::id().to_string(), "--"])
            .args(command)
            .env(LAUNCHER_VARIABLE, address.to_string())
            .stdin(Stdio::null())
            .stdout(writer.try_clone().context("no pipe for the output")?)
            .stderr(writer);
        let leader = ChildProcess::start(&mut leashed, policy)
            .context("this program cannot be started again, for mpirun to be tied to it")?;
        let (sender, blocks) = mpsc::sync_channel(WAITING_BLOCKS);
        thread::Builder::new().spawn(move || send_blocks(reader, &sender)).context("no thread for the output")?;
        let patience = if starter.has_watcher() { GRACE } else { Duration::ZERO };
        Ok((RunningJob { leader, _orphans: Orphans { patience } }, blocks))
    }
}

/// The lines of a block, each with its newline where it has one.
pub fn lines_of(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block.split_inclusive(|byte| *byte == b'\n')
}

/// All of `output`, in blocks of whole lines as they come; a line that is longer than a block in several, and a last line
/// without a newline with one.
fn send_blocks(mut output: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = vec![0; LONGEST_BLOCK];
    let mut filled = 0;
    // Whether the last block cut a line.
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
                let length = if whole == 0 && filled == LONGEST_BLOCK { filled } else { whole };
                let block = buffer[..length].to_vec();
                buffer.copy_within(length..filled, 0);
                filled -= length;
                block
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => {
                // Where nobody listens any more there is nobody to tell.
                let _ = sender.send(Err(error));
                return;
            }
        };
        // No line has ended yet.
        let Some(last) = block.last() else { continue };
        is_inside_line = *last != b'\n';
        if sender.send(Ok(block)).is_err() {
            return;
        }
    }
}

/// What a job leaves behind; dropping it ends all of it.
struct Orphans {
    /// Their own time to end.
    patience: Duration,
}

impl Drop for Orphans {
    fn drop(&mut self) {
        end_descendants(self.patience);
    }
}

/// Collects every process below this one, and kills those that have not gone by themselves after `patience`; there is
/// none but those of the job that just ended. Gives up after another [`GRACE`] on one that the kernel does not let go.
fn end_descendants(patience: Duration) {
    let own = Pid::this();
    let start = Instant::now();
    while start.elapsed() < patience + GRACE {
        if start.elapsed() >= patience {
            for process in descendants(own, &parents()) {
                let _ = kill(process, Signal::SIGKILL);
            }
        }
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => thread::sleep(TICK),
            Ok(_) => {}
            // No child is left.
            Err(_) => return,
        }
    }
}

/// Every process of this machine with its parent.
fn parents() -> Vec<(Pid, Pid)> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let parent = |entry: fs::DirEntry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((Pid::from_raw(process), parent_in(&status)?))
    };
    entries.flatten().filter_map(parent).collect()
}

/// The fourth field of `/proc/PID/stat`; the second is the name in parentheses and may hold any character.
fn parent_in(status: &str) -> Option<Pid> {
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

fn descendants(of: Pid, parents: &[(Pid, Pid)]) -> Vec<Pid> {
    let mut found = vec![of];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::job::slurm::GpusOfStep;

    #[test]
    fn each_end_says_why() {
        let exited = |raw| Ended::Exited(ExitStatus::from_raw(raw), None).failure(Starter::Mpirun);
        assert_eq!(exited(0), None);
        assert_eq!(exited(3 << 8).as_deref(), Some("mpirun ended with exit status 3"));
        assert_eq!(exited(9).as_deref(), Some("mpirun itself was ended by signal 9"));
        let srun = Ended::Exited(ExitStatus::from_raw(3 << 8), None).failure(Starter::Slurm(GpusOfStep::Unknown));
        assert_eq!(srun.as_deref(), Some("srun ended with exit status 3"));
        let timed_out = Ended::TimedOut(Duration::from_secs(90), "no rank has reported".to_owned());
        let reason = "timed out after 90 s; no rank has reported";
        assert_eq!(timed_out.failure(Starter::Mpirun).as_deref(), Some(reason));
    }

    #[test]
    fn lines_come_whole_and_long_ones_in_parts() {
        let sent = |output: &[u8]| {
            let (sender, blocks) = mpsc::sync_channel(WAITING_BLOCKS);
            send_blocks(output, &sender);
            drop(sender);
            blocks.into_iter().map(|block| block.expect("memory can be read")).collect::<Vec<_>>()
        };
        assert_eq!(sent(b"a\n\nb"), [&b"a\n\n"[..], b"b\n"]);
        assert_eq!(lines_of(b"a\n\nb").collect::<Vec<_>>(), [&b"a\n"[..], b"\n", b"b"]);
        assert_eq!(sent(b""), Vec::<Vec<u8>>::new());
        let long = vec![b'x'; 2 * LONGEST_BLOCK + 5];
        let blocks = sent(&[&long[..], b"\nlast\n"].concat());
        assert_eq!(blocks.concat(), [&long[..], b"\nlast\n"].concat());
        assert_eq!(blocks.iter().map(Vec::len).max(), Some(LONGEST_BLOCK));
        // No line is cut that need not be.
        let short = b"some words\n".repeat(20_000);
        let blocks = sent(&short);
        assert_eq!(blocks.concat(), short);
        assert!(blocks.iter().all(|block| block.ends_with(b"\n")) && blocks.len() < 8);
    }

    #[test]
    fn the_parent_is_found_behind_any_name() {
        assert_eq!(parent_in("7 (a) b) S 3 7 7 0 -1"), Some(Pid::from_raw(3)));
        assert_eq!(parent_in("7 (cut off"), None);
    }

    #[test]
    fn descendants_are_all_generations_and_nobody_else() {
        let pairs = [(2, 1), (3, 2), (4, 3), (5, 1), (6, 2)];
        let parents = pairs.map(|(process, parent)| (Pid::from_raw(process), Pid::from_raw(parent)));
        let mut found = descendants(Pid::from_raw(2), &parents);
        found.sort();
        assert_eq!(found, [3, 4, 6].map(Pid::from_raw));
    }
}
