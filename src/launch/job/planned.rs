//! What every command of this wing does with a job: finds the programs, plans its command line and files, runs it with
//! its log, and says that it failed. Not for what a job measures, nor for which jobs there are: each command knows.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::path::{self, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, anyhow};
use ringmark_record::case::Case;
use ringmark_record::config::DeviceChoice;
use ringmark_record::usage::usage;
use ringmark_record::{files, log_line, whole_file};

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::cluster::interface::Interface;
use crate::launch::cluster::sync::Sync;
use crate::launch::job::mpirun::{self, Job, MpirunOptions, Surroundings};
use crate::launch::job::process::{self, Ended, Interrupt};
use crate::launch::job::starter::Starter;
use crate::launch::job::watch::Watch;
use crate::launch::sweep::folder::{self, FolderLock};
use crate::launch::sweep::progress::complain;

const WORKER: &str = "ringmark-worker";

/// Lines of a failed job's log that are shown.
const TAIL: usize = 30;

/// Where and how the jobs of a command run.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchConfig {
    /// Where to run.
    pub hosts: Hosts,
    /// Longest time of a job; one that takes longer has failed.
    pub timeout: Option<Duration>,
    /// Longest time without progress of any rank; a job that hangs longer has failed.
    pub stall_timeout: Option<Duration>,
    /// The worker, where it is not the one beside this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// What starts the ranks.
    pub starter: Starter,
    /// What the user set about mpirun or srun.
    pub mpirun: MpirunOptions,
    /// What the ranks are asked to use.
    pub device: DeviceChoice,
    /// Folder on every host to which the worker and its libraries are copied first, and where jobs run it.
    pub sync: Option<PathBuf>,
    /// Print the command lines instead of running them.
    pub dry_run: bool,
    /// Look at the hosts first, and choose the network that joins them.
    pub doctor: bool,
}

/// `results/<UTC date>T<time>Z_<what>`, for a command that is given no folder.
pub fn default_out(what: &str, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    Path::new("results").join(format!("{time}_{what}"))
}

/// `path` as ranks need it, which on other hosts start in another folder.
pub fn absolute_out(out: &Path) -> anyhow::Result<PathBuf> {
    path::absolute(out).with_context(|| format!("--out {}", out.display()))
}

/// Plans jobs, all of them with one worker.
pub struct Launcher<'a> {
    config: &'a LaunchConfig,
    /// The configuration's, and what was found out since.
    options: MpirunOptions,
    surroundings: Surroundings,
    /// On this machine.
    worker: PathBuf,
    sync: Option<Sync>,
    /// Those of the largest case, which have those of the others among them.
    hosts: &'a [Host],
}

impl Launcher<'_> {
    /// Refuses cases that do not fit the hosts; finds the worker.
    pub fn new<'a>(config: &'a LaunchConfig, cases: &[Case]) -> anyhow::Result<Launcher<'a>> {
        config.hosts.check(cases).map_err(usage)?;
        let surroundings = Surroundings::read();
        if !config.dry_run {
            config.starter.check(&surroundings)?;
        }
        let worker = find_worker(config.worker.as_deref(), &surroundings)?;
        let sync = config.sync.as_ref().map(|folder| Sync::plan(folder, &worker, config.device)).transpose()?;
        let hosts = cases.iter().map(|case| config.hosts.of(*case)).max_by_key(|hosts| hosts.len()).unwrap_or_default();
        Ok(Launcher { config, options: config.mpirun.clone(), surroundings, worker, sync, hosts })
    }

    /// The job that runs the worker as `case`: `arguments` begin with the worker's command and send its record to
    /// `record`, `threads` are those of a rank where the user chose.
    pub fn plan(&self, case: Case, threads: Option<u32>, arguments: Vec<String>, files: JobFiles) -> PlannedJob {
        let mut program = vec![self.program().display().to_string()];
        program.extend(arguments);
        // At least one: the case was found to fit.
        let hosts = self.config.hosts.of(case);
        let job = Job { case, hosts, options: &self.options, threads, program };
        let starter = self.config.starter;
        let command = starter.command_line(&job, &self.surroundings);
        let is_local = hosts.iter().all(|host| self.surroundings.is_here(host));
        let is_of_others = |address: &&IpAddr| match address {
            IpAddr::V4(four) => !four.is_loopback() && !four.is_link_local(),
            IpAddr::V6(six) => !six.is_loopback() && !six.is_unicast_link_local(),
        };
        let addresses = match is_local {
            true => Vec::new(),
            false => self.surroundings.addresses.iter().filter(is_of_others).copied().collect(),
        };
        PlannedJob { files, first_host: hosts[0].name.clone(), ranks: case.ranks(), addresses, starter, command }
    }

    /// Where and how, as it was asked for.
    pub fn config(&self) -> &LaunchConfig {
        self.config
    }

    /// What ranks run on their hosts: the worker, or its copy there.
    pub fn program(&self) -> &Path {
        self.sync.as_ref().map_or(&self.worker, Sync::worker)
    }

    /// What [`copy_worker`](Launcher::copy_worker) would run.
    pub fn copy_commands(&self) -> Vec<String> {
        let Launcher { config, surroundings, hosts, .. } = self;
        self.sync.as_ref().map(|sync| sync.command_lines(hosts, &config.mpirun, surroundings)).unwrap_or_default()
    }

    /// Copies the worker to the hosts of all cases where `--sync` asks for it; `report` gets a line for each host.
    pub fn copy_worker(
        &self,
        interrupt: &Interrupt,
        report: impl Fn(&str) + Send + std::marker::Sync,
    ) -> anyhow::Result<()> {
        let Launcher { config, surroundings, hosts, .. } = self;
        let Some(sync) = &self.sync else { return Ok(()) };
        sync.run(hosts, &config.mpirun, surroundings, interrupt, report)
    }

    /// The worker on this machine.
    pub fn worker(&self) -> &Path {
        &self.worker
    }

    /// What mpirun is told.
    pub fn options(&self) -> &MpirunOptions {
        &self.options
    }

    /// What this process was started with and in.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// All hosts that any case uses.
    pub fn hosts(&self) -> &[Host] {
        self.hosts
    }

    /// Has the jobs that are planned from now on use `interface`; NCCL as well, unless the user gave it its own.
    pub fn use_interface(&mut self, interface: Interface) {
        const OWN: &str = "NCCL_SOCKET_IFNAME";
        if self.config.mpirun.interface.is_none() && self.surroundings.variables.iter().any(|name| name == OWN) {
            let words = ["btl_tcp_if_include", "oob_tcp_if_include"];
            let words = words.map(|name| ["-mca".to_owned(), name.to_owned(), interface.to_string()]);
            self.options.more.extend(words.concat());
        } else {
            self.options.interface = Some(interface);
        }
    }

    /// Makes sure that nobody else writes into `out`, until the value is dropped.
    pub fn claim(&self, out: &Path) -> anyhow::Result<FolderLock> {
        FolderLock::take(out, &self.surroundings.host_name)
    }

    /// The last look before the first job, on a folder that was claimed: the folder of every log can be written.
    pub fn prepare<'a>(&self, out: &Path, logs: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        folder::remove_parts(out);
        let folders: BTreeSet<&Path> = logs.into_iter().filter_map(Path::parent).collect();
        for folder in folders {
            fs::create_dir_all(folder).with_context(|| {
                format!("folder {} cannot be made: choose an --out that can be written", folder.display())
            })?;
            folder::remove_parts(folder);
        }
        Ok(())
    }
}

/// The worker: `chosen`, or else the one beside this program or on `PATH`.
pub fn find_worker(chosen: Option<&Path>, surroundings: &Surroundings) -> anyhow::Result<PathBuf> {
    if let Some(worker) = chosen {
        if !mpirun::is_program(worker) {
            return Err(usage(anyhow!("--worker {} is no program: give the path of {WORKER}", worker.display())));
        }
        return Ok(path::absolute(worker)?);
    }
    let beside = surroundings.program_folder.as_ref().map(|folder| folder.join(WORKER));
    beside.filter(|path| mpirun::is_program(path)).or_else(|| surroundings.find(WORKER)).with_context(|| {
        format!(
            "{WORKER} is neither beside this program nor on PATH: build it with `cargo build --release` \
             in ringmark's repository, or give --worker PATH"
        )
    })
}

/// What a job leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFiles {
    /// Its output, written here.
    pub log: PathBuf,
    /// Written by rank 0; absolute.
    pub record: PathBuf,
}

/// One launch and the files that come of it.
pub struct PlannedJob {
    files: JobFiles,
    /// Where rank 0 runs, which writes the record.
    first_host: String,
    ranks: u32,
    /// This machine's, at which ranks on other hosts reach it; none where all run here.
    addresses: Vec<IpAddr>,
    starter: Starter,
    command: Vec<String>,
}

impl PlannedJob {
    /// mpirun or srun and its words, to be pasted into a shell.
    pub fn command_line(&self) -> String {
        shell_words::join(&self.command)
    }

    /// What starts its ranks.
    pub fn starter(&self) -> Starter {
        self.starter
    }

    /// The log's path.
    pub fn log(&self) -> &Path {
        &self.files.log
    }

    /// The log while the job runs: cut off, it must not be taken for one.
    fn log_under_way(&self) -> PathBuf {
        files::under_way(self.log())
    }

    /// Where the log is at this moment.
    pub fn log_now(&self) -> PathBuf {
        let under_way = self.log_under_way();
        if under_way.exists() { under_way } else { self.log().to_owned() }
    }

    /// Runs the job to its end, with the time-outs of `config`; [`close`](PlannedJob::close) is the next step, also after
    /// an error. Its command goes to the log, and its output to the log and to `each_line`, line by line as it comes; an
    /// error of `each_line` ends the job.
    pub fn run(
        &self,
        config: &LaunchConfig,
        interrupt: &Interrupt,
        mut each_line: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Ended> {
        let mut log = File::create(self.log_under_way()).map_err(|error| self.log_not_written(error))?;
        writeln!(log, "+ {}", self.command_line()).map_err(|error| self.log_not_written(error))?;
        let mut watch = Watch::open(self.ranks, &self.addresses, config.stall_timeout)?;
        let report = ["--report-to".to_owned(), watch.driver().to_string()];
        let command = [&self.command[..], &report].concat();
        process::run(self.starter, &command, config.timeout, interrupt, &mut watch, |line| {
            log.write_all(line).map_err(|error| self.log_not_written(error))?;
            each_line(line)
        })
    }

    /// The record that rank 0 of a job with exit status 0 left, or why there is none.
    pub fn read_record<T>(&self, read: impl FnOnce(BufReader<File>) -> anyhow::Result<T>) -> Result<T, String> {
        let record = self.files.record.display();
        let file = File::open(&self.files.record).map_err(|_| {
            let (program, host) = (self.starter.program(), &self.first_host);
            format!("{program} ended with exit status 0, but rank 0 on {host} left no record {record} here")
        })?;
        read(BufReader::new(file)).map_err(|error| format!("record {record}: {error:#}"))
    }

    /// Gives the log of a job that has ended its name: with `failure` as its last line, where there is one. An error
    /// leaves it under the name that no reader takes for a run's.
    pub fn close(&self, failure: Option<&str>) -> anyhow::Result<()> {
        let close = || -> io::Result<()> {
            let mut log = OpenOptions::new().read(true).append(true).open(self.log_under_way())?;
            if let Some(reason) = failure {
                // What stopped the log may have cut a line.
                let separator = if ends_with_a_line(&mut log)? { "" } else { "\n" };
                log.write_all(format!("{separator}{}\n", log_line::write_failure(reason)).as_bytes())?;
            }
            log.sync_all()?;
            whole_file::publish(&self.log_under_way(), self.log())
        };
        close().map_err(|error| self.log_not_written(error))
    }

    /// The same for a job that failed. The failure matters more than what keeps it out of the log, which is told on the
    /// standard error.
    pub fn close_failed(&self, reason: &str) {
        if let Err(error) = self.close(Some(reason)) {
            complain(&format!("ringmark: {error:#}"));
        }
    }

    /// The end of the log, indented.
    pub fn tail(&self) -> anyhow::Result<String> {
        let mut lines = VecDeque::new();
        for line in BufReader::new(File::open(self.log_now())?).split(b'\n') {
            if lines.len() == TAIL {
                lines.pop_front();
            }
            lines.push_back(format!("    {}", String::from_utf8_lossy(&line?)));
        }
        Ok(Vec::from(lines).join("\n"))
    }

    fn log_not_written(&self, error: io::Error) -> anyhow::Error {
        let cure = folder::cure(&error).map_or(String::new(), |cure| format!(": {cure}"));
        anyhow!("log {} cannot be written: {error}{cure}", self.log().display())
    }
}

fn ends_with_a_line(log: &mut File) -> io::Result<bool> {
    let mut last = [b'\n'];
    if log.metadata()?.len() > 0 {
        log.seek(SeekFrom::End(-1))?;
        log.read_exact(&mut last)?;
    }
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(folder: &Path) -> PlannedJob {
        let files = JobFiles { log: folder.join("log"), record: folder.join("record") };
        PlannedJob {
            files,
            first_host: "a".to_owned(),
            ranks: 1,
            addresses: Vec::new(),
            starter: Starter::Mpirun,
            command: vec!["mpirun".to_owned(), "a b".to_owned()],
        }
    }

    #[test]
    fn the_default_folder_tells_time_and_subject() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        assert_eq!(default_out("bandwidth", time), Path::new("results/20251121T100203Z_bandwidth"));
    }

    #[test]
    fn the_tail_is_the_end_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        let lines: Vec<String> = (1..=39).map(|number| format!("line {number}\n")).collect();
        fs::write(job.log_under_way(), lines.concat()).expect("written");
        job.close(Some("no\nmemory")).expect("written");
        let tail = job.tail().expect("read");
        assert_eq!(tail.lines().count(), TAIL);
        assert!(tail.starts_with("    line 11\n"), "{tail}");
        assert!(tail.ends_with("line 39\n    ringmark: run failed: no memory"), "{tail}");
    }

    #[test]
    fn a_log_gets_its_name_when_the_job_has_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        fs::write(job.log_under_way(), "whole\ncut").expect("written");
        assert!(job.tail().expect("read").ends_with("    cut") && !job.log().exists());
        job.close(Some("disk full")).expect("written");
        assert_eq!(fs::read_to_string(job.log()).expect("read"), "whole\ncut\nringmark: run failed: disk full\n");
        assert!(!job.log_under_way().exists());

        fs::write(job.log_under_way(), "sound\n").expect("written");
        job.close(None).expect("named");
        assert_eq!(fs::read_to_string(job.log()).expect("read"), "sound\n");
        let error = format!("{:#}", job.close(None).expect_err("there is none"));
        assert!(error.contains("/log cannot be written: No such file"), "{error}");
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let job = job(folder.path());
        let error = job.read_record(|_| Ok(())).expect_err("there is none");
        assert!(error.contains("rank 0 on a left no record") && error.contains("/record here"), "{error}");
        fs::write(folder.path().join("record"), "").expect("written");
        let error = job.read_record(|_| anyhow::bail!("not JSON") as anyhow::Result<()>).expect_err("empty");
        assert!(error.ends_with("/record: not JSON"), "{error}");
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        assert_eq!(job(Path::new("")).command_line(), "mpirun 'a b'");
    }
}
