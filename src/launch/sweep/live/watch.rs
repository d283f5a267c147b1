//! `ringmark watch`: shows a command that runs elsewhere, from the progress file in its folder, until it ends; then its
//! table.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::Seconds;
use ringmark_core::host::unix_time;
use ringmark_core::options::usage::usage;
use ringmark_core::progress::{CommandEnd, FinishedRun, INTERVAL, Progress};
use ringmark_core::untrusted_text::printable_lines;

use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::sweep::live::display::Display;
use crate::launch::sweep::live::lines::{clock, headline, table_head, table_row};
use crate::output::Json;
use crate::output::message::print_line;

/// A launcher that has been silent for this long has missed several updates.
const SILENCE: Duration = Duration::from_secs(8);

/// Configuration of `ringmark watch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchConfig {
    /// Folder of the command.
    pub folder: PathBuf,
    /// Prints the progress once as JSON instead.
    pub json: Json,
}

/// Shows the command until it ends, or prints its progress once as JSON. Fails if the command failed or exited
/// unexpectedly. `summarize` returns the result of a complete sweep in a folder.
pub fn run(config: &WatchConfig, summarize: fn(&Path, bool) -> Option<String>) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let folder = &config.folder;
    let progress = Progress::read_in(folder).map_err(|error| {
        let is_missing = error.downcast_ref().is_some_and(|error: &io::Error| error.kind() == ErrorKind::NotFound);
        let reason = if is_missing || folder.is_file() { String::new() } else { format!(" ({error:#})") };
        let what = match (folder.is_dir(), folder.is_file()) {
            (true, _) => format!("no command runs in {}", folder.display()),
            (_, true) => format!("{} is a file", folder.display()),
            _ => format!("folder not found: {}", folder.display()),
        };
        usage(anyhow!("{what}{reason}: pass the --out of a command whose first run has begun"))
    })?;
    if config.json != Json::No {
        config.json.write(&progress)?;
        return Ok(());
    }
    let interrupt = Interrupt::install()?;
    let display = Display::new(false, Instant::now());
    let outcome = follow(folder, progress, &display, &interrupt);
    display.clear();
    let Watched { progress, gone } = outcome;
    if let Some(CommandEnd { failure, is_interrupted }) = &progress.end {
        let name = name(&progress);
        return match failure.as_deref().map(printable_lines) {
            None => {
                let is_training = progress.benchmark == BenchmarkKind::Train;
                let summary = is_training.then(|| summarize(folder, false)).flatten();
                summary.iter().for_each(|summary| print_line(&printable_lines(&format!("\n{summary}"))));
                print_line(&end_line(&progress));
                Ok(())
            }
            Some(state) if *is_interrupted => {
                let rest = state.strip_prefix("interrupted").map_or_else(|| format!(": {state}"), str::to_owned);
                bail!("the {name} was interrupted{rest}")
            }
            Some(failure) => bail!("the {name} has failed: {failure}"),
        };
    }
    match gone {
        Some(silence) => bail!(
            "the {} exited unexpectedly: no update for {silence:.0} s, process {} on {} was killed; finished runs are kept, \
             continue with --resume",
            name(&progress),
            progress.process,
            printable_lines(&progress.host)
        ),
        None => bail!("interrupted; the {} continues", name(&progress)),
    }
}

/// Progress of the command when watching ended.
struct Watched {
    progress: Progress,
    /// If its process has exited, seconds since its last update.
    gone: Option<f64>,
}

/// Shows the command until it ends, exits unexpectedly, or the user interrupts.
fn follow(folder: &Path, mut progress: Progress, display: &Display, interrupt: &Interrupt) -> Watched {
    let here = LaunchEnvironment::read().host_name;
    let mut last_update = LastUpdate { read_at: Instant::now(), age: age_by_clocks(progress.updated) };
    let mut printed = None;
    let mut rows = 0;
    loop {
        display.above(|| table_rows(&progress, rows).iter().for_each(|row| print_line(row)));
        rows = progress.finished.len();
        if progress.end.is_some() || interrupt.is_set() {
            return Watched { progress, gone: None };
        }
        let silence = last_update.read_at.elapsed() + last_update.age;
        let is_silent = silence >= SILENCE;
        if is_silent && is_gone(&progress, &here) {
            return Watched { progress, gone: Some(silence.as_secs_f64()) };
        }
        let note = is_silent.then(|| {
            let (seconds, host) = (silence.as_secs(), printable_lines(&progress.host));
            format!("no update for {seconds} s: the launcher on {host} has stopped or the folder is not shared")
        });
        let line = display.show(&progress, note.as_slice(), Instant::now());
        if !display.is_live() {
            // Without a terminal, a line is printed when a run starts and when the launcher falls silent.
            let job = (progress.jobs.number, progress.job.as_ref().map(|job| job.title.clone()), is_silent);
            let is_new = printed.as_ref() != Some(&job);
            if let Some(line) = line.or_else(|| is_new.then(|| headline(&progress, usize::MAX))) {
                print_line(&note.unwrap_or(line));
                printed = Some(job);
            }
        }
        interrupt.sleep(Duration::from_secs_f64(INTERVAL.0));
        // A folder that is briefly unavailable counts as silence.
        if let Ok(next) = Progress::read_in(folder)
            && next != progress
        {
            last_update = LastUpdate { read_at: Instant::now(), age: Duration::ZERO };
            progress = next;
        }
    }
}

/// Returns the rows of the table from `first` on, with the header if `first` is 0.
fn table_rows(progress: &Progress, first: usize) -> Vec<String> {
    let title = |run: &FinishedRun| run.title.len();
    let width = progress.finished.iter().map(title).max().unwrap_or_default();
    let head = progress.finished.first().filter(|_| first == 0).map(|run| table_head(run, width));
    let rows = progress.finished.iter().skip(first).map(|run| printable_lines(&table_row(run, width)).into_owned());
    head.into_iter().chain(rows).collect()
}

/// Time when the last update was read, and its age at that time. Local time counts: the clocks of two hosts may
/// differ.
struct LastUpdate {
    read_at: Instant,
    age: Duration,
}

/// Returns the age of an update written before watching started, from the clocks of both hosts.
fn age_by_clocks(updated: Seconds) -> Duration {
    Duration::try_from_secs_f64(unix_time().0 - updated.0).unwrap_or_default()
}

/// Returns true if the launcher ran on this host and its process no longer exists.
fn is_gone(progress: &Progress, here: &str) -> bool {
    let process = i32::try_from(progress.process).ok().filter(|process| *process > 0);
    progress.host == here && process.is_none_or(|process| kill(Pid::from_raw(process), None) == Err(Errno::ESRCH))
}

/// Returns `the sweep (started on a) has ended: 4 of 4 runs finished (2 of them earlier) in 1:40`.
fn end_line(progress: &Progress) -> String {
    let Progress { jobs, started, updated, finished, .. } = progress;
    let earlier = finished.iter().filter(|run| run.took.is_none()).count();
    let earlier = if earlier > 0 { format!(" ({earlier} of them earlier)") } else { String::new() };
    let time = clock(Seconds(updated.0 - started.0));
    format!("the {} has ended: {} of {} runs finished{earlier} in {time}", name(progress), jobs.finished, jobs.of)
}

fn name(progress: &Progress) -> String {
    let command = match progress.benchmark {
        BenchmarkKind::Train => "sweep".to_owned(),
        other => other.to_string(),
    };
    format!("{command} (started on {})", printable_lines(&progress.host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::sweep::live::lines::tests::progress;

    #[test]
    fn process_of_another_host_is_never_reported_as_gone() {
        let own = Progress { process: std::process::id(), ..progress() };
        assert!(!is_gone(&own, "a") && !is_gone(&own, "b"));
        // No process has this number.
        let gone = Progress { process: i32::MAX as u32, ..progress() };
        assert!(is_gone(&gone, "a") && !is_gone(&gone, "b"));
    }

    #[test]
    fn clock_behind_does_not_count_as_silence() {
        assert_eq!(age_by_clocks(Seconds(unix_time().0 + 3600.0)), Duration::ZERO);
        assert_eq!(age_by_clocks(Seconds(f64::NAN)), Duration::ZERO);
        assert!(age_by_clocks(Seconds(unix_time().0 - 60.0)) >= Duration::from_secs(60));
    }
}
