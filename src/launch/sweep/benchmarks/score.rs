//! Inference benchmark `score`, at every point of the axes.

use std::collections::BTreeMap;
use std::path::Path;

use ringmark_core::benchmark::score::{ScoreConfig, ScoreRecord};
use ringmark_core::benchmark::{BenchmarkKind, measured_and_warmup};
use ringmark_core::dimension::Seconds;
use ringmark_core::file::run_name::RunName;
use ringmark_core::options::option_table;
use ringmark_core::trace::TraceConfig;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::local::environment::typed_program;
use crate::launch::local::results_folder;
use crate::launch::sweep::axes_sweep::{self, AxesSweep, RunFigures, quoted};
use crate::launch::sweep::benchmark::{Benchmark, EndedJob, PlanContext, PlannedJob, Report, Resumable, SessionRules};
use crate::launch::sweep::cost::JobCost;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::run::RunProgress;
use crate::launch::sweep::session;
use crate::launch::sweep::trials::batch_search;

/// Configuration of `ringmark score`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreSweep {
    /// Axes, hosts and options of the sweep.
    pub sweep: AxesSweep,
    /// Configuration of each run, apart from the axes. Its paths are absolute.
    pub score: ScoreConfig,
}

/// Checks the configuration before anything starts, then runs every point the requested number of times, except
/// finished runs. `summarize` returns the table of a complete sweep in a folder.
pub fn run(config: &ScoreSweep, summarize: fn(&Path) -> Option<String>) -> anyhow::Result<()> {
    let AxesSweep { launch, out, .. } = &config.sweep;
    Live::during((config.kind(), config.rules().printer), launch, out, |live| run_watched(config, summarize, live))
}

fn run_watched(config: &ScoreSweep, summarize: fn(&Path) -> Option<String>, live: &Live) -> anyhow::Result<()> {
    let trial = |run: RunName, files: JobFiles, context: PlanContext| {
        let short = ScoreConfig {
            iterations: batch_search::ITERATIONS - 1,
            warmup: 1,
            trace: TraceConfig::default(),
            ..config.run_config(run, context)
        };
        config.job(run, short, files)
    };
    let sweep = batch_search::resolved::<ScoreRecord>(&config.sweep, config.kind(), &trial, live)?;
    let config = &ScoreSweep { sweep, ..config.clone() };
    let AxesSweep { launch, out, .. } = &config.sweep;
    session::run(config.sweep.session(live), config)?;
    if launch.dry_run {
        return Ok(());
    }
    let printer = config.rules().printer;
    let summary = summarize(out).map(|summary| format!("\n{summary}"));
    let tables = format!("all warnings, and files of the figures: {} extract {}", typed_program(), quoted(out));
    let page = quoted(&out.join("report.html"));
    let next = config.sweep.end(&format!("report {} -o {page}", quoted(out)));
    summary.iter().chain([&tables, &next]).for_each(|text| printer.line(text));
    Ok(())
}

impl ScoreSweep {
    /// Returns the configuration of a rank of `run`.
    fn run_config(&self, RunName { model, batch, dtype, .. }: RunName, context: PlanContext) -> ScoreConfig {
        let threads = self.sweep.threads(context);
        let cores_divided_by = self.sweep.cores_divided_by(context);
        ScoreConfig { model, dtype, threads, cores_divided_by, ..self.score.with_batch(batch) }
    }

    fn job(&self, run: RunName, score: ScoreConfig, files: JobFiles) -> PlannedJob {
        let (threads, cost) = (score.threads, JobCost::for_scoring(&score));
        let arguments = self.kind().worker_command(&ScoreConfig { record: Some(files.record.clone()), ..score });
        self.sweep.job(run, files, arguments, threads, cost)
    }
}

impl Benchmark for ScoreSweep {
    type Record = ScoreRecord;
    type Figures = RunFigures;
    type Follower = RunProgress;

    fn kind(&self) -> BenchmarkKind {
        BenchmarkKind::Score
    }

    fn rules(&self) -> SessionRules {
        self.sweep.rules()
    }

    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<PlannedJob>> {
        let job = |run: RunName| {
            let trace = self.sweep.traced(run, &self.score.trace)?;
            Ok(self.job(run, ScoreConfig { trace, ..self.run_config(run, context) }, self.sweep.files(run)?))
        };
        self.sweep.axes.runs().into_iter().map(job).collect()
    }

    fn resumable(&self) -> Option<&dyn Resumable<Record = ScoreRecord>> {
        Some(self)
    }

    fn follow(&self, job: &PlannedJob) -> RunProgress {
        let ScoreConfig { iterations, warmup, .. } = self.score;
        let batch = job.run.map_or_else(|| self.score.batch(), |run| run.batch);
        self.sweep.follow(job, warmup.saturating_add(iterations), warmup).without_lines(batch)
    }

    fn figures(&self, record: ScoreRecord, _: Option<RunProgress>) -> Result<RunFigures, String> {
        let speed = record.speed().ok_or("record has no passes")?;
        Ok(RunFigures { speed, update_share: None, top_1: None, warnings: record.warnings })
    }

    fn report(&self, ended: &[EndedJob<RunFigures>]) -> Report {
        axes_sweep::report(ended)
    }
}

impl Resumable for ScoreSweep {
    type Record = ScoreRecord;

    fn conditions(&self, context: PlanContext) -> BTreeMap<String, String> {
        // The trace settings of a run are not a condition of its results.
        let score = ScoreConfig { trace: TraceConfig::default(), ..self.score.clone() };
        self.sweep.conditions(context, option_table::settings(&score))
    }

    fn warning(&self) -> Option<&'static str> {
        self.sweep.warning()
    }

    fn header_lines(&self, context: PlanContext) -> Vec<String> {
        let (axes, profile) = (self.sweep.describe_axes(), self.sweep.profile);
        let ScoreConfig { iterations, warmup, .. } = &self.score;
        let device = &self.sweep.device_name;
        let first = format!(
            "inference of {axes}, {} passes, device {device}, profile {profile}",
            measured_and_warmup(iterations, warmup)
        );
        [first, results_folder::line(&self.sweep.out)].into_iter().chain(self.sweep.cores_line(context)).collect()
    }

    fn check_finished(&self, run: RunName) -> Result<ScoreRecord, String> {
        self.sweep.finished_log(run)?;
        self.sweep.finished_record(run)
    }

    fn time_of_iterations(&self, record: &ScoreRecord) -> Option<Seconds> {
        Some(record.elapsed())
    }
}
