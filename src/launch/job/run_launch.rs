//! Runs a job, writes its log, reads its record, and marks a failed job in the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use ringmark_core::benchmark::train::interruption::RESTARTS_VARIABLE;
use ringmark_core::file::{atomic_file, run_name};
use ringmark_core::host::MemoryShortage;
use ringmark_core::host::environment::LOAD_BEFORE_VARIABLE;
use ringmark_core::host::heartbeat::LAUNCHER_VARIABLE;
use ringmark_core::line::dlperf;
use ringmark_core::options::usage::error_line;
use ringmark_core::shell;

use crate::launch::job::job_launch::JobLaunch;
use crate::launch::job::process::{self, JobEvent, ProcessOutcome};
use crate::launch::job::starter::Starter;
use crate::launch::job::watch::{HostQuery, Watch};
use crate::launch::local::disk_error;
use crate::launch::local::interrupt::Interrupt;
use crate::output::message::print_error;

/// Number of lines shown of a failed job's log.
const TAIL_LINES: usize = 30;

/// Maximum size of the lines shown, in bytes.
const TAIL_BYTES: u64 = 1 << 14;

/// Time limits of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobLimits {
    /// Limit of the total time.
    pub timeout: Option<Duration>,
    /// Limit of the time without progress of any rank.
    pub stall_timeout: Option<Duration>,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEnd {
    /// Result of the processes.
    pub ended: ProcessOutcome,
    /// Memory of the device of the rank that failed first, if it ran out of memory.
    pub shortage: Option<MemoryShortage>,
    /// Processes that caused a failure; empty if none can be named.
    pub culprits: Vec<u32>,
    /// Host on which the scheduler could not start the job.
    pub unstarted_host: Option<String>,
    /// True if one of the culprits reported an error before it exited.
    pub is_own_error: bool,
    /// Time at which the end was detected; the processes end later.
    pub detected: Instant,
}

impl JobLaunch<'_> {
    /// Returns the command line of `starter`, program first.
    pub fn command(&self, starter: Starter) -> Vec<String> {
        starter.command_line(self)
    }

    /// Returns the command line, ready to paste into a shell.
    pub fn command_line(&self, starter: Starter) -> String {
        shell::join(self.command(starter))
    }

    /// Returns the path of the log.
    pub fn log(&self) -> &Path {
        &self.files.log
    }

    /// Returns the path of the log while the job runs. The name differs, so that an incomplete log is not read as
    /// complete.
    fn unfinished_log(&self) -> PathBuf {
        run_name::unfinished_log_path(self.log())
    }

    /// Returns the current path of the log.
    pub fn log_now(&self) -> PathBuf {
        let unfinished = self.unfinished_log();
        if unfinished.exists() { unfinished } else { self.log().to_owned() }
    }

    /// Runs the job to its end; [`close`](JobLaunch::close) is the next step, also after an error. The command and the output
    /// are written to the log; `each` receives every event, and an error of `each` ends the job. `query` asks the host
    /// of a killed rank for the cause.
    pub fn run(
        &self,
        starter: Starter,
        limits: JobLimits,
        interrupt: &Interrupt,
        query: HostQuery,
        mut each: impl FnMut(JobEvent) -> anyhow::Result<()>,
    ) -> anyhow::Result<JobEnd> {
        let mut log = self.create_log(starter)?;
        let command = self.command(starter);
        if starter.reads_hostfile(&self.servers)
            && let Some(text) = self.hostfile_text()
        {
            let path = self.hostfile();
            fs::write(&path, text).with_context(|| format!("cannot write hostfile {}", path.display()))?;
        }
        let mut watch = Watch::open(self.case.ranks(), &self.servers, &self.addresses(), limits.stall_timeout, query)?;
        if let Some(limitation) = watch.limitation() {
            print_error(&format!("warning: {limitation}"));
        }
        let mut command = starter.with_variable(&command, LAUNCHER_VARIABLE);
        let load_before = self.load_before().map(|load| load.to_string());
        let restarts = self.restarts.as_ref().map(serde_json::to_string).transpose()?;
        let variables = [(LOAD_BEFORE_VARIABLE, load_before), (RESTARTS_VARIABLE, restarts)];
        let variables = variables.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let variables: Vec<(&str, String)> = variables.collect();
        for (name, _) in &variables {
            command = starter.with_variable(&command, name);
        }
        let ended = process::run(starter, &command, &variables, limits.timeout, interrupt, &mut watch, |event| {
            if let JobEvent::Block(block) = event {
                log.write_all(block).map_err(|error| self.log_error(error))?;
            }
            each(event)
        });
        let (ended, detected) = ended?;
        let (shortage, is_own_error) = (watch.shortage(), watch.is_own_error());
        let (culprits, unstarted_host) = (watch.culprits().to_vec(), watch.unstarted_host().map(str::to_owned));
        Ok(JobEnd { ended, shortage, culprits, unstarted_host, is_own_error, detected })
    }

    /// Creates the log, with the command as its first line.
    pub fn create_log(&self, starter: Starter) -> anyhow::Result<File> {
        let create = || -> io::Result<File> {
            let mut log = File::create(self.unfinished_log())?;
            writeln!(log, "+ {}", self.command_line(starter))?;
            Ok(log)
        };
        create().map_err(|error| self.log_error(error))
    }

    /// Returns the record that rank 0 of a job with exit status 0 wrote, or why there is none.
    pub fn read_record<T>(
        &self,
        starter: Starter,
        read: impl FnOnce(BufReader<File>) -> anyhow::Result<T>,
    ) -> Result<T, String> {
        let record = self.files.record.display();
        let file = File::open(&self.files.record).map_err(|_| {
            // Rank 0 runs on the first host; every case that fits has at least one.
            let (program, host) = (starter.program(), &self.hosts[0].name);
            format!("{program} exited with status 0, but rank 0 on {host} wrote no record {record} here")
        })?;
        read(BufReader::new(file)).map_err(|error| format!("record {record}: {error:#}"))
    }

    /// Renames the log of a job that has ended to its final name, with `failure` as its last line if given. After an
    /// error it keeps the name that no reader accepts.
    pub fn close(&self, failure: Option<&str>) -> anyhow::Result<()> {
        let close = || -> io::Result<()> {
            let mut log = OpenOptions::new().read(true).append(true).open(self.unfinished_log())?;
            if let Some(reason) = failure {
                // The log may end in the middle of a line.
                let separator = if ends_with_newline(&mut log)? { "" } else { "\n" };
                log.write_all(format!("{separator}{}\n", dlperf::write_failure(reason)).as_bytes())?;
            }
            log.sync_all()?;
            atomic_file::publish(&self.unfinished_log(), self.log())
        };
        close().map_err(|error| self.log_error(error))
    }

    /// Closes the log of a failed job. An error in closing only goes to standard error, because the failure matters
    /// more.
    pub fn close_failed(&self, reason: &str) {
        if let Err(error) = self.close(Some(reason)) {
            print_error(&error_line(error));
        }
    }

    /// Returns the end of the log, indented.
    pub fn tail(&self) -> anyhow::Result<String> {
        let mut log = File::open(self.log_now())?;
        let start = log.metadata()?.len().saturating_sub(TAIL_BYTES);
        log.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        log.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.lines().rev().take(TAIL_LINES).map(|line| format!("    {line}")).collect();
        Ok(lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    fn log_error(&self, error: io::Error) -> anyhow::Error {
        let fix = disk_error::fix(&error).map_or(String::new(), |fix| format!(": {fix}"));
        anyhow!("cannot write log {}: {error}{fix}", self.log().display())
    }
}

fn ends_with_newline(log: &mut File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if log.metadata()?.len() > 0 {
        log.seek(SeekFrom::End(-1))?;
        log.read_exact(&mut last)?;
    }
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use expect_test::expect;

    use super::*;
    use crate::launch::job::job_launch::{JobFiles, StarterOptions};
    use crate::launch::local::environment::LaunchEnvironment;
    use crate::temporary_folder::without_folder;

    fn job(folder: &Path) -> JobLaunch<'static> {
        let files = JobFiles { log: folder.join("log"), record: folder.join("record") };
        let job = JobLaunch::example("1n1g", "a:1", StarterOptions::default(), LaunchEnvironment::default());
        JobLaunch { files, program: vec!["a b".to_owned()], ..job }
    }

    #[test]
    fn tail_is_the_end_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        let lines: Vec<String> = (1..=39).map(|number| format!("line {number}\n")).collect();
        fs::write(job.unfinished_log(), lines.concat()).expect("written");
        job.close(Some("no\nmemory")).expect("written");
        let tail = job.tail().expect("read");
        assert_eq!(tail.lines().count(), TAIL_LINES);
        assert!(tail.starts_with("    line 11\n"), "{tail}");
        assert!(tail.ends_with("line 39\n    error: run failed: no memory"), "{tail}");
    }

    #[test]
    fn log_is_renamed_when_the_job_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        fs::write(job.unfinished_log(), "whole\ncut").expect("written");
        assert!(job.tail().expect("read").ends_with("    cut") && !job.log().exists());
        job.close(Some("disk full")).expect("written");
        assert_eq!(fs::read_to_string(job.log()).expect("read"), "whole\ncut\nerror: run failed: disk full\n");
        assert!(!job.unfinished_log().exists());

        fs::write(job.unfinished_log(), "sound\n").expect("written");
        job.close(None).expect("named");
        assert_eq!(fs::read_to_string(job.log()).expect("read"), "sound\n");
        let error = format!("{:#}", job.close(None).expect_err("missing file"));
        expect!["cannot write log DIR/log: No such file or directory (os error 2)"].assert_eq(&without_folder(&error));
    }

    #[test]
    fn unreadable_record_is_reported_with_its_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        let error = job.read_record(Starter::Mpirun, |_| Ok(())).expect_err("missing file");
        expect!["mpirun exited with status 0, but rank 0 on a wrote no record DIR/record here"]
            .assert_eq(&without_folder(&error));
        fs::write(folder.path().join("record"), "").expect("written");
        let error =
            job.read_record(Starter::Mpirun, |_| anyhow::bail!("not JSON") as anyhow::Result<()>).expect_err("empty");
        expect!["record DIR/record: not JSON"].assert_eq(&without_folder(&error));
    }

    #[test]
    fn command_line_is_quoted_for_a_shell() {
        let line = job(Path::new("")).command_line(Starter::Mpirun);
        expect!["mpirun --allow-run-as-root --oversubscribe -np 1 -H a:1 --bind-to none --map-by slot -mca pml ob1 -mca btl ^openib,ofi -mca plm_rsh_args '-p 22 -q -o StrictHostKeyChecking=no' 'a b'"].assert_eq(&line);
    }
}
