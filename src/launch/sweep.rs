//! Plans every run of a sweep, then runs them one after the other. The first failure stops the sweep; what was
//! finished before it stays.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{self, Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::files::RunName;
use ringmark_record::run::{Profile, RunRecord};
use ringmark_record::units::ImagesPerSecond;
use ringmark_record::usage::usage;
use ringmark_record::{log_line, options};

use crate::launch::hosts::Hosts;
use crate::launch::mpirun::{self, Job, MpirunOptions, Surroundings};
use crate::launch::process::{self, Interrupt};
use crate::launch::progress::RunProgress;

const WORKER: &str = "ringmark-worker";

/// Lines of a failed run's log that are shown.
const TAIL: usize = 30;

const QUICK: &str = "quick profile: a first look, not a result to quote";

/// What a sweep is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepConfig {
    /// In the order in which they run; none twice.
    pub cases: Vec<Case>,
    /// Runs of each case, at least 1.
    pub runs: u32,
    /// Where to run.
    pub hosts: Hosts,
    /// Pause between two runs.
    pub cooldown: Duration,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// Longest time of a run; a run that takes longer has failed.
    pub timeout: Option<Duration>,
    /// The worker, where it is not the one beside this program or on `PATH`.
    pub worker: Option<PathBuf>,
    /// What the user set about mpirun.
    pub mpirun: MpirunOptions,
    /// Print the command lines instead of running them.
    pub dry_run: bool,
    /// How the runs are meant.
    pub profile: Profile,
    /// What each run is asked to do. Paths in it are absolute: ranks on other hosts start in another folder.
    pub train: TrainConfig,
}

/// `results/<UTC date>T<time>Z_b<batch>_<dtype>`, for a sweep that is given no folder.
pub fn default_out(train: &TrainConfig, now: SystemTime) -> PathBuf {
    let time = humantime::format_rfc3339_seconds(now).to_string().replace(['-', ':'], "");
    Path::new("results").join(format!("{time}_b{}_{}", train.batch_size, train.dtype))
}

/// One launch of mpirun and the files that come of it.
struct Run {
    /// `1n2g run 3 of 5`.
    title: String,
    log: PathBuf,
    record: PathBuf,
    /// Where rank 0 runs, which writes the record.
    first_host: String,
    command: Vec<String>,
}

/// Refuses what cannot work before anything starts, then runs every case as often as asked.
pub fn run(config: &SweepConfig) -> anyhow::Result<()> {
    let surroundings = Surroundings::read();
    config.hosts.check(&config.cases).map_err(usage)?;
    refuse_used_folder(&config.out)?;
    let worker = find_worker(config, &surroundings)?;
    let runs = plan(config, &worker, &surroundings)?;
    if config.dry_run {
        print_commands(config, &runs);
        return Ok(());
    }
    ensure!(
        surroundings.find("mpirun").is_some(),
        "mpirun is not on PATH: install Open MPI (scripts/setup.sh, or apt-get install openmpi-bin)"
    );
    create_folders(config)?;
    let interrupt = Interrupt::install()?;
    print_start(config);
    for (index, run) in runs.iter().enumerate() {
        if index > 0 {
            interrupt.sleep(config.cooldown);
        }
        ensure!(!interrupt.asked(), "interrupted; finished runs are in {}", config.out.display());
        let start = Instant::now();
        let speed = execute(run, config, &interrupt)?;
        println!("{}: {speed:.2} (mean after warm-up), {:.0} s", run.title, start.elapsed().as_secs_f64());
    }
    print_end(config);
    Ok(())
}

/// Two sweeps in one folder could not be told apart afterwards.
fn refuse_used_folder(out: &Path) -> anyhow::Result<()> {
    for folder in fs::read_dir(out).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if RunName::parse(&file.path()).is_some() {
                return Err(usage(anyhow!(
                    "--out {} already holds runs ({}): choose another folder, or move it away",
                    out.display(),
                    file.path().display()
                )));
            }
        }
    }
    Ok(())
}

fn find_worker(config: &SweepConfig, surroundings: &Surroundings) -> anyhow::Result<PathBuf> {
    if let Some(worker) = &config.worker {
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

/// Every run in order.
fn plan(config: &SweepConfig, worker: &Path, surroundings: &Surroundings) -> anyhow::Result<Vec<Run>> {
    let SweepConfig { train, out, runs, .. } = config;
    let out_of_record = path::absolute(out).with_context(|| format!("--out {}", out.display()))?;
    let plan_run = |case: Case, run: u32| {
        let name = RunName { case, batch_size: train.batch_size, dtype: train.dtype, run };
        let record = name.record(&out_of_record);
        let mut program = vec![worker.display().to_string(), "train".to_owned()];
        program.extend(options::arguments(&TrainConfig { record: Some(record.clone()), ..train.clone() }));
        program.extend(["--case".to_owned(), case.to_string(), "--run".to_owned(), run.to_string()]);
        if config.profile == Profile::Quick {
            program.push("--quick".to_owned());
        }
        let hosts = config.hosts.of(case);
        let job = Job { case, hosts, options: &config.mpirun, threads: train.threads, program };
        let command = mpirun::command_line(&job, surroundings);
        Run {
            title: format!("{case} run {run} of {runs}"),
            log: name.log(out),
            record,
            first_host: hosts[0].name.clone(),
            command,
        }
    };
    Ok(config.cases.iter().flat_map(|case| (1..=*runs).map(|run| plan_run(*case, run))).collect())
}

/// The folder of every case, so that a folder that cannot be written is found before the first run.
fn create_folders(config: &SweepConfig) -> anyhow::Result<()> {
    for case in &config.cases {
        let folder = config.out.join(case.to_string());
        fs::create_dir_all(&folder).with_context(|| {
            format!("folder {} cannot be made: choose an --out that can be written", folder.display())
        })?;
    }
    Ok(())
}

/// Runs one job, its output going to the log as it comes; the run's speed. Whatever makes the run invalid is an
/// error here and the last line of the log.
fn execute(run: &Run, config: &SweepConfig, interrupt: &Interrupt) -> anyhow::Result<ImagesPerSecond> {
    let not_written = || format!("log {} cannot be written", run.log.display());
    let mut log = File::create(&run.log).with_context(not_written)?;
    writeln!(log, "+ {}", shell_words::join(&run.command)).with_context(not_written)?;

    let mut progress = RunProgress::new(run.title.clone(), config.train.iterations, config.train.warmup);
    let ended = process::run(&run.command, config.timeout, interrupt, |line| {
        log.write_all(line).with_context(not_written)?;
        progress.line(&String::from_utf8_lossy(line));
        Ok(())
    })?;
    let speed = progress.finish();

    let failure = ended.failure().or_else(|| record_failure(run));
    let reason = match (failure, speed) {
        (None, Some(speed)) => return Ok(speed),
        (None, None) => "the log has no iteration after warm-up".to_owned(),
        (Some(reason), _) => reason,
    };
    writeln!(log, "{}", log_line::write_failure(&reason)).with_context(not_written)?;
    let tail = tail(&run.log)?;
    eprintln!("{}: the last lines of {}:\n{tail}", run.title, run.log.display());
    bail!("{} failed: {reason}; its log is {}", run.title, run.log.display())
}

/// Why the record says that the run does not count, or that there is no record.
fn record_failure(run: &Run) -> Option<String> {
    let record = run.record.display();
    let Ok(file) = File::open(&run.record) else {
        let host = &run.first_host;
        return Some(format!("mpirun ended with exit status 0, but rank 0 on {host} left no record {record} here"));
    };
    match RunRecord::read(BufReader::new(file)) {
        Ok(record) => record.failure(),
        Err(error) => Some(format!("record {record}: {error:#}")),
    }
}

fn tail(log: &Path) -> anyhow::Result<String> {
    let mut lines = VecDeque::new();
    for line in BufReader::new(File::open(log)?).split(b'\n') {
        if lines.len() == TAIL {
            lines.pop_front();
        }
        lines.push_back(format!("    {}", String::from_utf8_lossy(&line?)));
    }
    Ok(Vec::from(lines).join("\n"))
}

fn print_commands(config: &SweepConfig, runs: &[Run]) {
    if config.profile == Profile::Quick {
        println!("# {QUICK}");
    }
    for run in runs {
        println!("{}", shell_words::join(&run.command));
    }
}

fn print_start(config: &SweepConfig) {
    let SweepConfig { cases, runs, out, train, .. } = config;
    let cases: Vec<String> = cases.iter().map(Case::to_string).collect();
    println!(
        "sweep of {}, {runs} {} each: batch {}, {}, {} iterations of which {} warm-up, device {}; logs and records in {}",
        cases.join(" "),
        if *runs == 1 { "run" } else { "runs" },
        train.batch_size,
        train.dtype,
        train.iterations,
        train.warmup,
        train.device,
        out.display()
    );
    if config.profile == Profile::Quick {
        println!("{QUICK}");
    }
}

fn print_end(config: &SweepConfig) {
    if config.profile == Profile::Quick {
        println!("{QUICK}");
    }
    let out = config.out.display().to_string();
    println!("all runs are in {out}; next: ringmark extract {}", shell_words::quote(&out));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_tells_time_batch_and_precision() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        let out = default_out(&TrainConfig::default(), time);
        assert_eq!(out, Path::new("results/20251121T100203Z_b128_fp32"));
    }

    #[test]
    fn the_tail_is_the_end_of_the_log() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let lines: Vec<String> = (1..=40).map(|number| format!("line {number}\n")).collect();
        fs::write(&log, lines.concat()).expect("written");
        let tail = tail(&log).expect("read");
        assert_eq!(tail.lines().count(), TAIL);
        assert!(tail.starts_with("    line 11\n") && tail.ends_with("line 40"), "{tail}");
    }
}
