//! `ringmark alternate`: several sweeps in turn, one run of each in every round, so that drift of the machine affects all
//! of them alike. Each sweep is a command of its own, which resumes its folder with one more run.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::progress::Progress;
use ringmark_core::shell::CommandWords;

use crate::launch::local::child::{ChildProcess, EndPolicy};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::{Interrupt, TICK};
use crate::launch::sweep::conditions::resume_command;
use crate::launch::sweep::folder::{self, FolderLock};
use crate::launch::sweep::live::lines::table_line;
use crate::output::message::print_line;

/// Time that a command has to end its ranks after a signal.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `ringmark alternate` command.
#[derive(Debug, Clone, PartialEq)]
pub struct AlternateConfig {
    /// Sweeps; the first is the base of the comparison.
    pub sides: Vec<Side>,
    /// Rounds, each with one run of every point of every side.
    pub rounds: u32,
    /// Folder of the folders of all sides.
    pub out: PathBuf,
    /// True if the rounds in the folder are continued.
    pub resume: bool,
}

/// One of the sweeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Name of its folder.
    pub name: String,
    /// Command of this program, without `--out`, `--runs` and `--resume`.
    pub command: CommandWords,
}

impl AlternateConfig {
    /// Returns the folder of a side's results.
    pub fn folder(&self, side: &Side) -> PathBuf {
        self.out.join(&side.name)
    }

    /// Returns the folder of the first side, with that of each other side.
    pub fn pairs(&self) -> impl Iterator<Item = [PathBuf; 2]> {
        self.sides[1..].iter().map(|side| [self.folder(&self.sides[0]), self.folder(side)])
    }

    /// Returns the sides in the order of a round: each round begins with another one.
    fn in_round(&self, round: u32) -> impl Iterator<Item = &Side> {
        let first = (round as usize - 1) % self.sides.len();
        self.sides[first..].iter().chain(&self.sides[..first])
    }

    /// Returns a side's command in a round.
    fn command(&self, side: &Side, round: u32) -> CommandWords {
        let folder = self.folder(side);
        let resume = folder.join(MANIFEST).exists().then(|| "--resume".into());
        let own = [OsString::from("--out"), folder.into(), "--runs".into(), round.to_string().into()];
        side.command.clone().with_first(own.into_iter().chain(resume))
    }
}

/// Runs all rounds. Fails if a command fails; the runs before it are kept.
pub fn run(config: &AlternateConfig) -> anyhow::Result<()> {
    let environment = LaunchEnvironment::read();
    let is_started = config.sides.iter().any(|side| config.folder(side).exists());
    ensure!(config.resume || !is_started, folder::used_error(&config.out, "results", true));
    let _lock = FolderLock::acquire(&config.out, &environment.host_name)?;
    let interrupt = Interrupt::install()?;
    for round in 1..=config.rounds {
        for side in config.in_round(round) {
            print_line(&format!("round {round} of {}: {}", config.rounds, side.name));
            let log = config.out.join(format!("{}.log", side.name));
            let status = run_side(&environment, &config.command(side, round), &log, &interrupt)?;
            if !status.is_some_and(|status| status.success()) {
                let what = status.map_or_else(|| "interrupted".to_owned(), |status| format!("failed: {status}"));
                let resume = resume_command(&environment, &config.out);
                let (name, log) = (&side.name, log.display());
                bail!("{name} {what} in round {round} of {}; output: {log}\nresume with: {resume}", config.rounds);
            }
            print_runs(&config.folder(side));
        }
    }
    Ok(())
}

/// Prints the runs of the command that has just ended in `folder`.
fn print_runs(folder: &Path) {
    // A command without a missing run leaves no progress, and the figures are in the results.
    let Ok(progress) = Progress::read_in(folder) else { return };
    let runs = progress.finished.iter().filter(|run| run.took.is_some());
    runs.for_each(|run| print_line(&format!("  {}", table_line(run))));
}

/// Runs a command of this program; appends its output to `log`. Returns `None` if the user interrupts.
fn run_side(
    environment: &LaunchEnvironment,
    words: &CommandWords,
    log: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Option<ExitStatus>> {
    let output = OpenOptions::new().create(true).append(true).open(log);
    let output = output.with_context(|| format!("cannot write {}", log.display()))?;
    let program = &environment.command.own()[0];
    let mut command = Command::new(program);
    command.args(words.words().skip(1)).stdin(Stdio::null()).stdout(output);
    let child = ChildProcess::start(&mut command, EndPolicy::TerminateLeader(PATIENCE));
    let mut child = child.with_context(|| format!("cannot start {}", program.display()))?;
    while !interrupt.is_set() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(TICK);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn rounds_rotate_and_resume_with_one_more_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let side = |name: &str, text: &str| Side { name: name.to_owned(), command: text.split(' ').collect() };
        let config = AlternateConfig {
            sides: vec![
                side("theirs", "ringmark run --lines nanogpt -- torchrun train.py"),
                side("own", "ringmark sweep --batch-size 8"),
            ],
            rounds: 3,
            out: folder.path().to_owned(),
            resume: false,
        };
        let order = |round| config.in_round(round).map(|side| &side.name[..]).collect::<Vec<_>>();
        assert_eq!([order(1), order(2), order(3)], [["theirs", "own"], ["own", "theirs"], ["theirs", "own"]]);
        let command = |round| {
            let text = config.command(&config.sides[0], round).to_string();
            text.replace(&folder.path().display().to_string(), "OUT")
        };
        assert_eq!(command(1), "ringmark run --out OUT/theirs --runs 1 --lines nanogpt -- torchrun train.py");
        fs::create_dir(folder.path().join("theirs")).expect("a folder");
        fs::write(folder.path().join("theirs").join(MANIFEST), "").expect("a file");
        assert_eq!(command(2), "ringmark run --out OUT/theirs --runs 2 --resume --lines nanogpt -- torchrun train.py");
    }
}
