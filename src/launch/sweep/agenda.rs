//! What a session has to do: every job of a plan, and which of them need not run. Pure.

use std::path::PathBuf;

use ringmark_core::file::run_name::RunName;

use crate::launch::sweep::benchmark::JobPlan;
use crate::launch::sweep::ledger::Ledger;

/// What is to be done.
pub struct Agenda {
    /// Every job of the plan, finished or not.
    pub plan: Vec<JobPlan>,
    /// Of a benchmark that keeps a manifest.
    pub ledger: Option<Ledger>,
    /// Lines before the first job.
    pub header: Vec<String>,
    /// After them, what the jobs that are missing will take.
    pub estimate: Vec<String>,
    /// After these, what of an earlier session does not count.
    pub notes: Vec<String>,
}

impl Agenda {
    /// Whether it need not run again.
    pub fn is_finished(&self, job: &JobPlan) -> bool {
        self.ledger.as_ref().zip(job.run).is_some_and(|(ledger, run)| ledger.is_finished(run))
    }

    /// Whether its batch, or a smaller one, had no memory.
    pub fn lacks_memory(&self, job: &JobPlan) -> bool {
        let shortage = |(ledger, run): (&Ledger, RunName)| ledger.shortage(run);
        !self.is_finished(job) && self.ledger.as_ref().zip(job.run).and_then(shortage).is_some()
    }

    /// Jobs that are to run.
    pub fn missing(&self) -> impl Iterator<Item = &JobPlan> + Clone {
        self.plan.iter().filter(|job| !self.is_finished(job) && !self.lacks_memory(job))
    }

    /// What their ranks read, each path once.
    pub fn data(&self) -> Vec<PathBuf> {
        let mut data: Vec<PathBuf> = Vec::new();
        for path in self.missing().flat_map(|job| &job.data) {
            if !data.contains(path) {
                data.push(path.clone());
            }
        }
        data
    }

    /// Those of them that there must be memory for: where a batch without memory is a result, the smallest of each network
    /// and precision.
    pub fn must_fit(&self, expects_shortage: bool) -> impl Iterator<Item = &JobPlan> + Clone {
        let is_smallest = move |job: &&JobPlan| {
            let alike = |run: &RunName, other: &RunName| (run.model, run.dtype) == (other.model, other.dtype);
            let others = self.plan.iter().filter_map(|job| job.run);
            job.run.is_none_or(|run| {
                others.filter(|other| alike(&run, other)).all(|other| run.batch_size <= other.batch_size)
            })
        };
        self.missing().filter(move |job| !expects_shortage || is_smallest(job))
    }
}
