//! The benchmark `score`: inference at every point of the axes.

use std::collections::BTreeMap;

use ringmark_record::benchmark::score::config::ScoreConfig;
use ringmark_record::benchmark::score::record::ScoreRecord;
use ringmark_record::benchmark::{BenchmarkKind, measured_and_warmup};
use ringmark_record::file::run_name::RunName;
use ringmark_record::options::option_table;

use crate::launch::sweep::benchmark::axes_sweep::{AxesSweep, RunFigures, quoted};
use crate::launch::sweep::benchmark::{Benchmark, EndedJob, JobPlan, PlanContext, SessionProgress};
use crate::launch::sweep::cost::JobCost;
use crate::launch::sweep::progress::RunProgress;
use crate::launch::sweep::session;

/// What `ringmark score` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreSweep {
    /// Axes, where and how.
    pub sweep: AxesSweep,
    /// What each run is asked to do, but for the axes. Paths in it are absolute.
    pub score: ScoreConfig,
}

/// Refuses what cannot work before anything starts, then runs every point as often as asked, but for what is finished.
pub fn run(config: &ScoreSweep) -> anyhow::Result<()> {
    session::run(config.sweep.session(), config)
}

impl Benchmark for ScoreSweep {
    type Record = ScoreRecord;
    type Figures = RunFigures;
    type Follower = RunProgress;

    fn kind(&self) -> BenchmarkKind {
        BenchmarkKind::Score
    }

    fn plan(&self, context: PlanContext) -> anyhow::Result<Vec<JobPlan>> {
        let threads = self.sweep.threads(context);
        let cores_divided_by = self.sweep.cores_divided_by(context);
        let job = |run: RunName| {
            let files = self.sweep.files(run)?;
            let RunName { model, batch_size, dtype, .. } = run;
            let record = Some(files.record.clone());
            let score =
                ScoreConfig { model, batch_size, dtype, threads, cores_divided_by, record, ..self.score.clone() };
            let mut arguments = vec![self.kind().to_string()];
            arguments.extend(option_table::arguments(&score));
            Ok(self.sweep.job(run, files, arguments, threads, JobCost::of_scoring(&score)))
        };
        self.sweep.axes.runs().into_iter().map(job).collect()
    }

    fn conditions(&self, context: PlanContext) -> Option<BTreeMap<String, String>> {
        Some(self.sweep.conditions(context, option_table::settings(&self.score)))
    }

    fn caution(&self) -> Option<&'static str> {
        self.sweep.caution()
    }

    fn start(&self, context: PlanContext) -> Vec<String> {
        let (axes, out, profile) = (self.sweep.describe_axes(), self.sweep.out.display(), self.sweep.profile);
        let ScoreConfig { iterations, warmup, device, .. } = &self.score;
        let first = format!(
            "scoring of {axes}, {} passes, device {device}, profile {profile}; logs and records in {out}",
            measured_and_warmup(iterations, warmup)
        );
        [first].into_iter().chain(self.sweep.cores_line(context)).collect()
    }

    fn follow(&self, job: &JobPlan, progress: SessionProgress) -> RunProgress {
        self.sweep.follow(job, self.score.iterations, 0, progress)
    }

    fn figures(&self, record: ScoreRecord, _: RunProgress) -> Result<RunFigures, String> {
        let speed = record.speed().ok_or("the record has no pass")?;
        Ok(RunFigures { speed, warnings: record.warnings })
    }

    fn check_finished(&self, run: RunName) -> Result<ScoreRecord, String> {
        self.sweep.finished_log(run)?;
        self.sweep.finished_record(run)
    }

    fn report(&self, ended: &[EndedJob<RunFigures>]) -> Vec<String> {
        self.sweep.report(ended, "")
    }

    fn finish(&self, _: &[JobPlan], _: &[EndedJob<RunFigures>], is_complete: bool) -> anyhow::Result<()> {
        if is_complete {
            let next = format!("ringmark extract {}", quoted(&self.sweep.out));
            self.sweep.end(&next).iter().for_each(|line| self.printer().line(line));
        }
        Ok(())
    }
}
