//! The benchmark `train`: every point of a sweep's axes, several runs each. A run without communication follows right after
//! the one it is the baseline of, so that drift meets both alike.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{anyhow, ensure};
use ringmark_record::benchmark::train::config::TrainConfig;
use ringmark_record::benchmark::train::options;
use ringmark_record::benchmark::train::record::Profile;
use ringmark_record::benchmark::train::record::RunHeader;
use ringmark_record::benchmark::train::record::RunRecord;
use ringmark_record::benchmark::train::record::Warning;
use ringmark_record::case::Case;
use ringmark_record::device::DeviceKind;
use ringmark_record::line::dlperf;
use ringmark_record::line::dlperf::Line;
use ringmark_record::manifest::Found;
use ringmark_record::run_name::RunName;
use ringmark_record::units::ImagesPerSecond;
use ringmark_record::whole_file;

use crate::launch::job::launcher::LaunchConfig;
use crate::launch::job::planned::JobFiles;
use crate::launch::local::out::{absolute_out, default_out};
use crate::launch::local::print::Printer;
use crate::launch::sweep::benchmark::{Benchmark, EndedJob, JobOutcome, JobPlan, PlanContext, SessionProgress};
use crate::launch::sweep::plan::{Axes, CoreShare, joined};
use crate::launch::sweep::progress::RunProgress;
use crate::launch::sweep::session::{self, SessionConfig};
use crate::launch::sweep::suite;

const QUICK: &str = "quick profile: a first look, not a result to quote";

/// The condition under which a sweep keeps a rank's part of the cores.
const THREADS_OF_A_RANK: &str = "threads of a rank";

/// What a sweep is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepConfig {
    /// What it varies.
    pub axes: Axes,
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
    /// What the ranks will use, as far as this machine knows.
    pub device: DeviceKind,
    /// What each run is asked to do, but for the axes. Paths in it are absolute: ranks on other hosts start in another
    /// folder.
    pub train: TrainConfig,
}

/// `results/<UTC date>T<time>Z_b<batch>_<dtype>`, for a sweep that is given no folder.
pub fn default_folder(axes: &Axes, now: SystemTime) -> PathBuf {
    default_out(&axes.short_name(), now)
}

/// Refuses what cannot work before anything starts, then runs every point as often as asked, but for what is finished.
pub fn run(config: &SweepConfig) -> anyhow::Result<()> {
    let SweepConfig { axes, launch, out, resume, cooldown, .. } = config;
    let session = SessionConfig { cases: &axes.cases, launch, out, resume: *resume, cooldown: *cooldown };
    session::run(session, config)
}

/// The figures of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainFigures {
    /// DLPerf's mean of rates after warm-up.
    speed: ImagesPerSecond,
    /// What the record warns of.
    warnings: Vec<Warning>,
}

impl SweepConfig {
    /// What each rank gets of the cores: on the CPU, where the user chose no threads and all ranks run on this machine.
    fn core_share(&self, context: PlanContext) -> Option<CoreShare> {
        let SweepConfig { axes, launch, train, device, .. } = self;
        let hosts = axes.cases.iter().flat_map(|case| launch.hosts.of(*case));
        let is_local = hosts.into_iter().all(|host| context.environment.is_here(&host.name));
        let begun = context.begun.and_then(|begun| begun.options.get(THREADS_OF_A_RANK)?.parse().ok());
        let is_shared = *device == DeviceKind::Cpu && train.threads.is_none() && is_local;
        is_shared.then(|| CoreShare::of(&axes.cases, context.environment.cores, begun))
    }

    /// What the run of this name is asked to do, but for the place of its record.
    fn config_of(&self, run: RunName, threads: Option<u32>) -> TrainConfig {
        TrainConfig { batch_size: run.batch_size, dtype: run.dtype, threads, ..self.train.clone() }
    }

    fn job(&self, run: RunName, train: &TrainConfig, out_of_record: &Path) -> JobPlan {
        let files = JobFiles { log: run.log(&self.out), record: run.record(out_of_record) };
        let mut arguments = vec!["train".to_owned()];
        arguments.extend(options::arguments(&TrainConfig { record: Some(files.record.clone()), ..train.clone() }));
        arguments.extend(["--case".to_owned(), run.case.to_string(), "--run".to_owned(), run.run.to_string()]);
        if self.profile == Profile::Quick {
            arguments.push("--quick".to_owned());
        }
        let (title, threads) = (self.axes.title(run), train.threads);
        JobPlan { title, case: run.case, run: Some(run), threads, files, arguments }
    }

    /// A row of the table that grows on a terminal.
    fn row(&self, ended: &[EndedJob<TrainFigures>], speed: ImagesPerSecond) -> Vec<String> {
        let Some(EndedJob { job, took, .. }) = ended.last() else { return Vec::new() };
        let runs = self.axes.runs();
        let width = runs.iter().map(|run| self.axes.title(RunName { baseline: self.ddp_suite, ..*run }).len()).max();
        let width = width.unwrap_or_default();
        let mut rows = Vec::new();
        if ended.len() == 1 {
            let head = format!("{:width$}  {:>10}  {:>7}  {:>10}  {:>6}", "", "images/s", "speedup", "efficiency", "s");
            rows.push(head);
        }
        let (speedup, efficiency) = match base_of(ended) {
            Some(base) => {
                let speedup = speed.0 / base;
                (format!("{speedup:.2}"), format!("{:.1} %", 100.0 * speedup / f64::from(job.case.ranks())))
            }
            None => ("-".to_owned(), "-".to_owned()),
        };
        let seconds = took.as_secs_f64();
        rows.push(format!("{:width$}  {:>10.2}  {speedup:>7}  {efficiency:>10}  {seconds:>6.0}", job.title, speed.0));
        rows
    }
}

/// Mean speed of one rank, of the runs of 1n1g so far that differ from the last one in nothing else.
fn base_of(ended: &[EndedJob<TrainFigures>]) -> Option<f64> {
    let last = ended.last()?.job.run?;
    let is_base = |run: RunName| RunName { baseline: false, case: Case::SINGLE, run: run.run, ..last } == run;
    let speeds: Vec<f64> = ended
        .iter()
        .filter(|ended| ended.job.run.is_some_and(is_base))
        .filter_map(|ended| Some(ended.outcome.figures()?.speed.0))
        .collect();
    (!speeds.is_empty()).then(|| speeds.iter().sum::<f64>() / speeds.len() as f64)
}

impl Benchmark for SweepConfig {
    type Record = RunRecord;
    type Figures = TrainFigures;
    type Follower = RunProgress;

    fn printer(&self) -> Printer {
        Printer { mark: "", to_error: false }
    }

    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<JobPlan>> {
        let threads = self.core_share(context).map(|share| share.threads).or(self.train.threads);
        let out_of_record = absolute_out(&self.out)?;
        let mut jobs = Vec::new();
        for run in self.axes.runs() {
            let train = self.config_of(run, threads);
            jobs.push(self.job(run, &train, &out_of_record));
            if let Some(baseline) = self.ddp_suite.then(|| suite::baseline(run.case, &train)).flatten() {
                jobs.push(self.job(RunName { baseline: true, ..run }, &baseline, &out_of_record));
            }
        }
        Ok(jobs)
    }

    fn conditions(&self, context: PlanContext) -> Option<BTreeMap<String, String>> {
        let train = TrainConfig { save: None, record: None, ..self.train.clone() };
        let settings = options::settings(&train).into_iter().map(|(name, value)| (format!("--{name}"), value));
        let mut conditions: BTreeMap<String, String> = settings.collect();
        conditions.extend(self.axes.settings().map(|(name, value)| (name.to_owned(), value)));
        let quick = if self.profile == Profile::Quick { "yes" } else { "" };
        conditions.insert("--quick".to_owned(), quick.to_owned());
        let is_here = |host: &str| context.environment.is_here(host);
        if train.threads.is_none() && self.launch.hosts.all().iter().any(|host| is_here(&host.name)) {
            conditions.insert("cores of this machine".to_owned(), context.environment.cores.to_string());
        }
        if let Some(share) = self.core_share(context) {
            conditions.insert(THREADS_OF_A_RANK.to_owned(), share.threads.to_string());
        }
        Some(conditions)
    }

    fn caution(&self) -> Option<&'static str> {
        (self.profile == Profile::Quick).then_some(QUICK)
    }

    fn start(&self, context: PlanContext) -> Vec<String> {
        let SweepConfig { axes, out, train, .. } = self;
        let mut lines = vec![format!(
            "sweep of {}, {} {} each: batch {}, {}, {} iterations of which {} warm-up, device {}; logs and records in {}",
            joined(&axes.cases, " "),
            axes.runs,
            if axes.runs == 1 { "run" } else { "runs" },
            joined(&axes.batch_sizes, " "),
            joined(&axes.dtypes, " "),
            train.iterations,
            train.warmup,
            train.device,
            out.display()
        )];
        lines.extend(self.core_share(context).map(|share| share.line()));
        if self.ddp_suite {
            let is_alone = axes.cases.iter().any(|case| suite::baseline(*case, train).is_none());
            let alone = if is_alone { ", but for 1n1g, where one rank exchanges nothing anyway" } else { "" };
            lines.push(format!("after each run the same ranks without communication{alone}"));
        }
        lines
    }

    fn follow(&self, job: &JobPlan, progress: SessionProgress) -> RunProgress {
        RunProgress::new(&job.title, self.train.iterations, self.train.warmup, progress)
    }

    fn shows_output(&self) -> bool {
        false
    }

    fn read(&self, input: BufReader<File>) -> anyhow::Result<RunRecord> {
        RunRecord::read(input)
    }

    fn failure(&self, record: &RunRecord) -> Option<String> {
        record.failure()
    }

    fn found(&self, record: &RunRecord) -> Found {
        Found::of(&record.header)
    }

    fn figures(&self, record: RunRecord, follower: RunProgress) -> Result<TrainFigures, String> {
        let speed = follower.mean().ok_or("the log has no iteration after warm-up")?;
        Ok(TrainFigures { speed, warnings: record.end.map(|end| end.warnings).unwrap_or_default() })
    }

    fn check_finished(&self, run: RunName) -> Result<RunRecord, String> {
        let log = run.log(&self.out);
        check_log(&log, self.train.iterations).map_err(|error| format!("its log {} {error:#}", log.display()))?;
        let path = run.record(&self.out);
        let read = || -> anyhow::Result<RunRecord> {
            let record = RunRecord::read(BufReader::new(whole_file::open(&path)?))?;
            let RunHeader { case, run: number, config, .. } = &record.header;
            let is_it =
                (*case, *number, config.batch_size, config.dtype) == (run.case, run.run, run.batch_size, run.dtype);
            ensure!(is_it && !(run.baseline && record.header.exchanges()), "it is that of another run");
            Ok(record)
        };
        let record = read().map_err(|error| format!("its record {} cannot be used: {error:#}", path.display()))?;
        match record.failure() {
            None => Ok(record),
            Some(failure) => Err(format!("its record says that it failed: {failure}")),
        }
    }

    fn report(&self, ended: &[EndedJob<TrainFigures>]) -> Vec<String> {
        let Some(EndedJob { job, took, outcome: JobOutcome::Sound(figures) }) = ended.last() else { return Vec::new() };
        let TrainFigures { speed, warnings } = figures;
        let mut lines = match io::stdout().is_terminal() {
            true => self.row(ended, *speed),
            false => vec![format!("{}: {speed:.2} (mean after warm-up), {:.0} s", job.title, took.as_secs_f64())],
        };
        lines.extend(warnings.iter().map(|warning| format!("    warning: {}", warning.text)));
        lines
    }

    fn finish(&self, planned: &[JobPlan], _: &[EndedJob<TrainFigures>], is_complete: bool) -> anyhow::Result<()> {
        if !is_complete {
            return Ok(());
        }
        let printer = self.printer();
        if self.ddp_suite {
            let names: Vec<RunName> = planned.iter().filter_map(|job| job.run).collect();
            let lines = suite::lines(&self.out, &names, self.train.warmup)?;
            printer.line(&format!("\n{}\n", lines.join("\n")));
        }
        if let Some(caution) = self.caution() {
            printer.line(caution);
        }
        let out = self.out.display().to_string();
        let quoted = shell_words::quote(&out);
        printer.line(&format!("all runs are in {out}; next: ringmark extract {quoted}"));
        if self.ddp_suite {
            printer.line(&format!("for PyTorch's diff.py: ringmark extract {quoted} --format pytorch-ddp > FILE.json"));
        }
        Ok(())
    }
}

/// Errors go on from "its log".
fn check_log(log: &Path, iterations: u32) -> anyhow::Result<()> {
    let file = whole_file::open(log).map_err(|error| anyhow!("cannot be read: {error}"))?;
    let mut count = 0;
    for line in BufReader::new(file).split(b'\n') {
        let line = line.map_err(|error| anyhow!("cannot be read: {error}"))?;
        match log_line::parse(&line) {
            Line::Iteration { .. } => count += 1,
            Line::Failed(reason) => return Err(anyhow!("says that it failed: {reason}")),
            Line::Malformed | Line::Other => {}
        }
    }
    ensure!(count == iterations, "has {count} iterations of {iterations}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_folder_tells_time_batch_and_precision() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_763_719_323);
        let TrainConfig { batch_size, dtype, .. } = TrainConfig::default();
        let axes = Axes { dtypes: vec![dtype], batch_sizes: vec![batch_size], cases: vec![Case::SINGLE], runs: 1 };
        assert_eq!(default_folder(&axes, time), Path::new("results/20251121T100203Z_b128_fp32"));
    }

    #[test]
    fn a_speedup_is_over_the_single_rank_of_the_same_point() {
        let ended = |name: &str, speed: f64| {
            let run: RunName = name.parse().expect("a name");
            let files = JobFiles { log: PathBuf::new(), record: PathBuf::new() };
            let job = JobPlan {
                title: String::new(),
                case: run.case,
                run: Some(run),
                threads: None,
                files,
                arguments: vec![],
            };
            let figures = TrainFigures { speed: ImagesPerSecond(speed), warnings: Vec::new() };
            EndedJob { job, took: Duration::ZERO, outcome: JobOutcome::Sound(figures) }
        };
        let mut all = vec![ended("1n2g/rn50_b8_fp32_1.log", 30.0)];
        assert_eq!(base_of(&all), None);
        all.extend([("1n1g/rn50_b8_fp32_1.log", 10.0), ("1n1g/rn50_b8_fp32_2.log", 20.0)].map(|(n, s)| ended(n, s)));
        all.push(ended("1n1g/rn50_b8_bf16_1.log", 100.0));
        all.push(ended("1n2g/rn50_b8_fp32_2.log", 27.0));
        assert_eq!(base_of(&all), Some(15.0));
        all.push(ended("no-communication/1n2g/rn50_b8_bf16_1.log", 190.0));
        assert_eq!(base_of(&all), Some(100.0));
    }
}
