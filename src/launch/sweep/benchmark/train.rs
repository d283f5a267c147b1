//! Plans every run of a sweep, then runs those that are missing, one after the other; a run without communication follows
//! right after the one it is the baseline of, so that drift meets both alike. The first failure stops the sweep; what was finished before it stays, and the same command with `--resume` goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::files::RunName;
use ringmark_record::manifest::Conditions;
use ringmark_record::options;
use ringmark_record::run::{Profile, RunRecord, Warning};
use ringmark_record::units::ImagesPerSecond;

use crate::launch::cluster::interface::Interface;
use crate::launch::doctor;
use crate::launch::job::planned::{self, JobFiles, LaunchConfig, Launcher, PlannedJob};
use crate::launch::job::process::{Ended, Interrupt};
use crate::launch::sweep::ledger::{self, Ledger};
use crate::launch::sweep::progress::{RunProgress, complain, say};
use crate::launch::sweep::suite;

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
    /// Go on with the sweep that the folder holds.
    pub resume: bool,
    /// How the runs are meant.
    pub profile: Profile,
    /// Whether it is PyTorch's DDP suite: baselines without communication, and its lines at the end.
    pub ddp_suite: bool,
    /// What each run is asked to do. Paths in it are absolute: ranks on other hosts start in another folder.
    pub train: TrainConfig,
}

/// `results/<UTC date>T<time>Z_b<batch>_<dtype>`, for a sweep that is given no folder.
pub fn default_out(train: &TrainConfig, now: SystemTime) -> PathBuf {
    planned::default_out(&format!("b{}_{}", train.batch_size, train.dtype), now)
}

/// One job.
struct Run {
    /// `1n2g run 3 of 5`, `1n2g without communication, run 3 of 5`.
    title: String,
    name: RunName,
    job: PlannedJob,
}

/// Refuses what cannot work before anything starts, then runs every case as often as asked, but for what is finished.
pub fn run(config: &SweepConfig) -> anyhow::Result<()> {
    let mut launcher = Launcher::new(&config.launch, &config.cases)?;
    if config.launch.dry_run {
        let (ledger, _) = open_ledger(config, &launcher)?;
        launcher.copy_commands().iter().for_each(|command| println!("{command}"));
        if config.launch.doctor && launcher.hosts().len() > 1 && launcher.options().interface.is_none() {
            println!("# and, unless --no-doctor, words for the network that the doctor finds");
        }
        let runs = plan(config, &launcher)?;
        print_commands(config, runs.iter().filter(|run| !ledger.is_finished(run.name)));
        return Ok(());
    }
    if config.resume {
        // Before a folder is made for nothing.
        ledger::find(&config.out)?;
    }
    let _lock = launcher.claim(&config.out)?;
    let (mut ledger, notes) = open_ledger(config, &launcher)?;
    let interrupt = Interrupt::install()?;
    launcher.copy_worker(&interrupt, say)?;
    let line = doctor::before_jobs(&mut launcher, &config.out, &interrupt)?;
    line.iter().for_each(|line| say(line));
    let runs = plan(config, &launcher)?;
    launcher.prepare(&config.out, runs.iter().map(|run| run.job.log()))?;
    ledger.write(runs.iter().map(|run| run.name))?;
    print_start(config);
    notes.iter().for_each(|note| say(note));
    run_missing(config, &runs, &mut ledger, &interrupt).map_err(|error| {
        anyhow!("{error:#}\nwhat is finished stays; go on with: {}", shell_words::join(ledger.command()))
    })?;
    print_end(config, &runs)
}

/// The ledger of a new sweep, or that of the one to go on with; and what is to be told of its runs.
fn open_ledger(config: &SweepConfig, launcher: &Launcher) -> anyhow::Result<(Ledger, Vec<String>)> {
    let conditions = conditions(config, launcher)?;
    let command = go_on(config, launcher);
    match config.resume {
        true => Ledger::resume(&config.out, command, conditions, config.train.iterations),
        false => Ok((Ledger::begin(&config.out, command, conditions)?, Vec::new())),
    }
}

/// Everything that changes figures and is known here.
fn conditions(config: &SweepConfig, launcher: &Launcher) -> anyhow::Result<Conditions> {
    let (surroundings, mpirun) = (launcher.surroundings(), &config.launch.mpirun);
    let train = TrainConfig { save: None, record: None, ..config.train.clone() };
    let mut options: BTreeMap<String, String> =
        options::settings(&train).into_iter().map(|(name, value)| (format!("--{name}"), value)).collect();
    let quick = if config.profile == Profile::Quick { "yes" } else { "" };
    for (name, value) in [
        ("--quick", quick.to_owned()),
        ("--cooldown", config.cooldown.as_secs().to_string()),
        ("--launcher", config.launch.starter.program().to_owned()),
        ("--interface", mpirun.interface.as_ref().map(Interface::to_string).unwrap_or_default()),
        ("--launcher-args", shell_words::join(&mpirun.more)),
    ] {
        options.insert(name.to_owned(), value);
    }
    let hosts = config.launch.hosts.all();
    if hosts.iter().any(|host| surroundings.is_here(host)) {
        options.insert("this machine".to_owned(), surroundings.host_name.clone());
        if config.train.threads.is_none() {
            options.insert("cores of this machine".to_owned(), surroundings.cores.to_string());
        }
    }
    options.retain(|_, value| !value.is_empty());
    let programs =
        [("ringmark", env!("CARGO_PKG_VERSION").to_owned()), ("ringmark-worker (sha256)", sha256(launcher.worker())?)];
    Ok(Conditions {
        hosts: hosts.iter().map(|host| host.name.clone()).collect(),
        options,
        variables: surroundings.settings.clone(),
        programs: programs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    })
}

/// By the program that every Linux has, so that anybody can compare.
fn sha256(file: &Path) -> anyhow::Result<String> {
    let hash = || -> anyhow::Result<String> {
        let output = Command::new("sha256sum").stdin(File::open(file)?).stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout)?;
        let hash = text.split_whitespace().next().filter(|_| output.status.success());
        Ok(hash.context("it ended without a hash")?.to_owned())
    };
    hash().with_context(|| format!("sha256sum of {} failed", file.display()))
}

/// The command that goes on with this sweep.
fn go_on(config: &SweepConfig, launcher: &Launcher) -> Vec<String> {
    let mut words = launcher.surroundings().command.clone();
    if !words.iter().any(|word| word == "--out" || word.starts_with("--out=")) {
        words.extend(["--out".to_owned(), config.out.display().to_string()]);
    }
    if !words.iter().any(|word| word == "--resume") {
        words.push("--resume".to_owned());
    }
    words
}

/// Runs what the ledger does not call finished.
fn run_missing(config: &SweepConfig, runs: &[Run], ledger: &mut Ledger, interrupt: &Interrupt) -> anyhow::Result<()> {
    let missing: Vec<&Run> = runs.iter().filter(|run| !ledger.is_finished(run.name)).collect();
    if config.resume {
        say(&format!("{} of {} runs are finished", runs.len() - missing.len(), runs.len()));
    }
    for (index, run) in missing.into_iter().enumerate() {
        if index > 0 {
            interrupt.sleep(config.cooldown);
        }
        ensure!(!interrupt.asked(), "interrupted");
        let start = Instant::now();
        let (speed, warnings) = execute(run, config, interrupt, ledger)?;
        let seconds = start.elapsed().as_secs_f64();
        say(&format!("{}: {speed:.2} (mean after warm-up), {seconds:.0} s", run.title));
        warnings.iter().for_each(|warning| say(&format!("    warning: {}", warning.text)));
    }
    Ok(())
}

/// Every run in the order in which they run.
fn plan(config: &SweepConfig, launcher: &Launcher) -> anyhow::Result<Vec<Run>> {
    let SweepConfig { train, out, runs, .. } = config;
    let out_of_record = planned::absolute_out(out)?;
    let plan_run = |case: Case, run: u32, baseline: bool, train: &TrainConfig| {
        let name = RunName { baseline, case, batch_size: train.batch_size, dtype: train.dtype, run };
        let files = JobFiles { log: name.log(out), record: name.record(&out_of_record) };
        let mut arguments = vec!["train".to_owned()];
        arguments.extend(options::arguments(&TrainConfig { record: Some(files.record.clone()), ..train.clone() }));
        arguments.extend(["--case".to_owned(), case.to_string(), "--run".to_owned(), run.to_string()]);
        if config.profile == Profile::Quick {
            arguments.push("--quick".to_owned());
        }
        Run {
            title: format!("{}{} run {run} of {runs}", name.what(), if baseline { "," } else { "" }),
            name,
            job: launcher.plan(case, train.threads, arguments, files),
        }
    };
    let baseline = |case: Case| config.ddp_suite.then(|| suite::baseline(case, train)).flatten();
    let numbered = config.cases.iter().flat_map(|case| (1..=*runs).map(|run| (*case, run)));
    let pair = |(case, run)| {
        let baseline = baseline(case).map(|train| plan_run(case, run, true, &train));
        std::iter::once(plan_run(case, run, false, train)).chain(baseline)
    };
    Ok(numbered.flat_map(pair).collect())
}

/// Runs one job; the run's speed, and what its record warns of. Whatever makes the run invalid is an error here, the last
/// line of the log, and in the ledger; where those cannot be written any more, it is an error here all the same.
fn execute(
    run: &Run,
    config: &SweepConfig,
    interrupt: &Interrupt,
    ledger: &mut Ledger,
) -> anyhow::Result<(ImagesPerSecond, Vec<Warning>)> {
    let Run { title, name, job } = run;
    ledger.start(*name)?;
    let mut progress = RunProgress::new(title.clone(), config.train.iterations, config.train.warmup);
    let ended = job.run(&config.launch, interrupt, |line| {
        progress.line(&String::from_utf8_lossy(line));
        Ok(())
    });
    let speed = progress.finish();

    let outcome = match ended {
        Ok(ended) => judge(job, &ended, ledger),
        Err(error) => Err(format!("{error:#}")),
    };
    let reason = match (outcome, speed) {
        (Ok(warnings), Some(speed)) => match job.close(None) {
            Ok(()) => {
                ledger.end(*name, None).map_err(|error| anyhow!("{title} is finished, but {error:#}"))?;
                return Ok((speed, warnings));
            }
            Err(error) => format!("{error:#}"),
        },
        (Ok(_), None) => "the log has no iteration after warm-up".to_owned(),
        (Err(reason), _) => reason,
    };
    job.close_failed(&reason);
    if let Err(error) = ledger.end(*name, Some(&reason)) {
        complain(&format!("ringmark: {error:#}"));
    }
    let log = job.log_now().display().to_string();
    let tail = job.tail().unwrap_or_else(|error| format!("    {error:#}"));
    complain(&format!("{title}: the last lines of {log}:\n{tail}"));
    bail!("{title} failed: {reason}; its log is {log}")
}

/// What the record of a sound run warns of; or why the run does not count, or that there is no record, or that it belongs
/// elsewhere.
fn judge(job: &PlannedJob, ended: &Ended, ledger: &mut Ledger) -> Result<Vec<Warning>, String> {
    let record = job.read_record(RunRecord::read);
    if let Some(words) = ended.failure(job.starter()) {
        // Of a job that ended by itself the record knows why it failed, and the launcher only that it did.
        let recorded = record.ok().filter(|_| matches!(ended, Ended::Exited(..))).and_then(|record| record.failure());
        return Err(recorded.unwrap_or(words));
    }
    let record = record?;
    if let Some(failure) = record.failure().or_else(|| ledger.admit(&record.header).err()) {
        return Err(failure);
    }
    Ok(record.end.map(|end| end.warnings).unwrap_or_default())
}

fn print_commands<'a>(config: &SweepConfig, runs: impl Iterator<Item = &'a Run>) {
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
    say(&format!(
        "sweep of {}, {runs} {} each: batch {}, {}, {} iterations of which {} warm-up, device {}; logs and records in {}",
        cases.join(" "),
        if *runs == 1 { "run" } else { "runs" },
        train.batch_size,
        train.dtype,
        train.iterations,
        train.warmup,
        train.device,
        out.display()
    ));
    if config.ddp_suite {
        let is_alone = config.cases.iter().any(|case| suite::baseline(*case, train).is_none());
        let alone = if is_alone { ", but for 1n1g, where one rank exchanges nothing anyway" } else { "" };
        say(&format!("after each run the same ranks without communication{alone}"));
    }
    if config.profile == Profile::Quick {
        say(QUICK);
    }
}

fn print_end(config: &SweepConfig, runs: &[Run]) -> anyhow::Result<()> {
    if config.ddp_suite {
        let names: Vec<RunName> = runs.iter().map(|run| run.name).collect();
        let lines = suite::lines(&config.out, &names, config.train.warmup)?;
        say(&format!("\n{}\n", lines.join("\n")));
    }
    if config.profile == Profile::Quick {
        say(QUICK);
    }
    let out = config.out.display().to_string();
    let quoted = shell_words::quote(&out);
    say(&format!("all runs are in {out}; next: ringmark extract {quoted}"));
    if config.ddp_suite {
        say(&format!("for PyTorch's diff.py: ringmark extract {quoted} --format pytorch-ddp > FILE.json"));
    }
    Ok(())
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
