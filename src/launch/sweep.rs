//! Plans every run of a sweep, then runs them one after the other. The first failure stops the sweep; what was
//! finished before it stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{anyhow, bail, ensure};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::files::RunName;
use ringmark_record::options;
use ringmark_record::run::{Profile, RunRecord, Warning};
use ringmark_record::units::ImagesPerSecond;
use ringmark_record::usage::usage;

use crate::launch::doctor;
use crate::launch::job::{self, JobFiles, LaunchConfig, Launcher, PlannedJob};
use crate::launch::process::Interrupt;
use crate::launch::progress::RunProgress;

const QUICK: &str = "quick profile: a first look, not a result to quote";

/// What a sweep is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepConfig {
    /// In the order in which they run; none twice.
    pub cases: Vec<Case>,
    /// Runs of each case, at least 1.
    pub runs: u32,
    /// Where and how.
    pub launch: LaunchConfig,
    /// Pause between two runs.
    pub cooldown: Duration,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// How the runs are meant.
    pub profile: Profile,
    /// What each run is asked to do. Paths in it are absolute: ranks on other hosts start in another folder.
    pub train: TrainConfig,
}

/// `results/<UTC date>T<time>Z_b<batch>_<dtype>`, for a sweep that is given no folder.
pub fn default_out(train: &TrainConfig, now: SystemTime) -> PathBuf {
    job::default_out(&format!("b{}_{}", train.batch_size, train.dtype), now)
}

/// One job.
struct Run {
    /// `1n2g run 3 of 5`.
    title: String,
    job: PlannedJob,
}

/// Refuses what cannot work before anything starts, then runs every case as often as asked.
pub fn run(config: &SweepConfig) -> anyhow::Result<()> {
    let mut launcher = Launcher::new(&config.launch, &config.cases)?;
    refuse_used_folder(&config.out)?;
    if config.launch.dry_run {
        launcher.copy_commands().iter().for_each(|command| println!("{command}"));
        print_commands(config, &plan(config, &launcher)?);
        return Ok(());
    }
    launcher.prepare(&config.out, &config.cases)?;
    let interrupt = Interrupt::install()?;
    launcher.copy_worker(&interrupt, |line| println!("{line}"))?;
    if config.launch.doctor {
        let line = doctor::before_jobs(&mut launcher, config.train.device, &config.out, &interrupt)?;
        line.iter().for_each(|line| println!("{line}"));
    }
    let runs = plan(config, &launcher)?;
    print_start(config);
    for (index, run) in runs.iter().enumerate() {
        if index > 0 {
            interrupt.sleep(config.cooldown);
        }
        ensure!(!interrupt.asked(), "interrupted; finished runs are in {}", config.out.display());
        let start = Instant::now();
        let (speed, warnings) = execute(run, config, &interrupt)?;
        println!("{}: {speed:.2} (mean after warm-up), {:.0} s", run.title, start.elapsed().as_secs_f64());
        for warning in warnings {
            println!("    warning: {}", warning.text);
        }
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

/// Every run in order.
fn plan(config: &SweepConfig, launcher: &Launcher) -> anyhow::Result<Vec<Run>> {
    let SweepConfig { train, out, runs, .. } = config;
    let out_of_record = job::absolute_out(out)?;
    let plan_run = |case: Case, run: u32| {
        let name = RunName { case, batch_size: train.batch_size, dtype: train.dtype, run };
        let files = JobFiles { log: name.log(out), record: name.record(&out_of_record) };
        let mut arguments = vec!["train".to_owned()];
        arguments.extend(options::arguments(&TrainConfig { record: Some(files.record.clone()), ..train.clone() }));
        arguments.extend(["--case".to_owned(), case.to_string(), "--run".to_owned(), run.to_string()]);
        if config.profile == Profile::Quick {
            arguments.push("--quick".to_owned());
        }
        Run { title: format!("{case} run {run} of {runs}"), job: launcher.plan(case, train.threads, arguments, files) }
    };
    Ok(config.cases.iter().flat_map(|case| (1..=*runs).map(|run| plan_run(*case, run))).collect())
}

/// Runs one job; the run's speed, and what its record warns of. Whatever makes the run invalid is an error here and the last line of the log.
fn execute(run: &Run, config: &SweepConfig, interrupt: &Interrupt) -> anyhow::Result<(ImagesPerSecond, Vec<Warning>)> {
    let Run { title, job } = run;
    let mut progress = RunProgress::new(title.clone(), config.train.iterations, config.train.warmup);
    let ended = job.run(&config.launch, interrupt, |line| {
        progress.line(&String::from_utf8_lossy(line));
        Ok(())
    })?;
    let speed = progress.finish();

    let warnings = ended.failure(job.starter()).map_or_else(|| warnings_of_sound_run(job), Err);
    let reason = match (warnings, speed) {
        (Ok(warnings), Some(speed)) => return Ok((speed, warnings)),
        (Ok(_), None) => "the log has no iteration after warm-up".to_owned(),
        (Err(reason), _) => reason,
    };
    job.note_failure(&reason)?;
    let log = job.log().display();
    eprintln!("{title}: the last lines of {log}:\n{}", job.tail()?);
    bail!("{title} failed: {reason}; its log is {log}")
}

/// What the record warns of; why it says that the run does not count, or that there is no record.
fn warnings_of_sound_run(job: &PlannedJob) -> Result<Vec<Warning>, String> {
    let record = job.read_record(RunRecord::read)?;
    record.failure().map_or_else(|| Ok(record.end.map(|end| end.warnings).unwrap_or_default()), Err)
}

fn print_commands(config: &SweepConfig, runs: &[Run]) {
    if config.profile == Profile::Quick {
        println!("# {QUICK}");
    }
    for run in runs {
        println!("{}", run.job.command_line());
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
}
