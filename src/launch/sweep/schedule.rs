//! Schedule of a session: the jobs of a plan, and which of them must run. Pure functions.

use std::path::PathBuf;

use ringmark_core::file::run_name::RunName;

use crate::launch::sweep::benchmark::PlannedJob;
use crate::launch::sweep::ledger::Ledger;

/// Schedule of a session.
pub struct Schedule {
    /// All jobs of the plan, finished or not.
    pub plan: Vec<PlannedJob>,
    /// Only for a benchmark with a manifest.
    pub ledger: Option<Ledger>,
    /// Lines printed before the first job.
    pub header: Vec<String>,
    /// Estimated cost of the missing jobs, printed after the header.
    pub estimate: Vec<String>,
    /// Notes on results of an earlier session that do not count, printed after the estimate.
    pub notes: Vec<String>,
}

impl Schedule {
    /// Returns true if a finished result of the job exists.
    pub fn is_finished(&self, job: &PlannedJob) -> bool {
        self.ledger.as_ref().zip(job.run).is_some_and(|(ledger, run)| ledger.is_finished(run))
    }

    /// Returns true if its batch size, or a smaller one, ran out of memory.
    pub fn lacks_memory(&self, job: &PlannedJob) -> bool {
        let shortage = |(ledger, run): (&Ledger, RunName)| ledger.shortage(run);
        !self.is_finished(job) && self.ledger.as_ref().zip(job.run).and_then(shortage).is_some()
    }

    /// Returns the jobs that still have to run.
    pub fn missing(&self) -> impl Iterator<Item = &PlannedJob> + Clone {
        self.plan.iter().filter(|job| !self.is_finished(job) && !self.lacks_memory(job))
    }

    /// Returns the data paths that the missing jobs read, each once.
    pub fn data(&self) -> Vec<PathBuf> {
        let mut data: Vec<PathBuf> = Vec::new();
        for path in self.missing().flat_map(|job| &job.data) {
            if !data.contains(path) {
                data.push(path.clone());
            }
        }
        data
    }

    /// Returns the missing jobs for which there must be enough memory. If running out of memory is a valid result,
    /// only those that need the least of each case, network and precision.
    pub fn must_fit(&self, expects_shortage: bool) -> impl Iterator<Item = &PlannedJob> + Clone {
        let is_smallest = move |job: &&PlannedJob| {
            let Some((run, needed)) = job.run.zip(job.memory_of_rank()) else { return true };
            let alike = |other: &RunName| (other.case, other.model, other.dtype) == (run.case, run.model, run.dtype);
            let others = self.plan.iter().filter(|other| other.run.as_ref().is_some_and(alike));
            others.filter_map(PlannedJob::memory_of_rank).all(|other| needed.0 <= other.0)
        };
        self.missing().filter(move |job| !expects_shortage || is_smallest(job))
    }
}
