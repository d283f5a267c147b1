//! The `checkpoint` benchmark: writing and reading of checkpoints, one job for each case.

use std::path::PathBuf;
use std::time::SystemTime;

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::checkpoint::{CHECKPOINT_LOG, CHECKPOINT_RECORD, CheckpointConfig, CheckpointRecord};
use ringmark_core::dimension::Case;
use ringmark_core::options::option_table::arguments;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::PlannedJob;
use crate::launch::sweep::benchmarks::record_jobs::{RecordJobs, announcement};

/// A checkpoint command.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRun {
    /// Cases in the order in which they run, without duplicates.
    pub cases: Vec<Case>,
    /// Hosts and launch settings.
    pub launch: LaunchConfig,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// Settings of each job, except the path of its record. Paths are absolute.
    pub checkpoint: CheckpointConfig,
}

/// Returns `results/<UTC date>T<time>Z_checkpoint`, the default output folder.
pub fn default_folder(now: SystemTime) -> PathBuf {
    results_folder::default_path("checkpoint", now)
}

/// Checks the configuration before anything starts, then measures.
pub fn run(config: &CheckpointRun) -> anyhow::Result<()> {
    let CheckpointRun { cases, launch, out, .. } = config;
    let jobs = cases.iter().map(|case| config.job(*case)).collect::<anyhow::Result<_>>()?;
    let conclude = Box::new(|_: &CheckpointRecord| Vec::new());
    RecordJobs { kind: BenchmarkKind::Checkpoint, launch, out, jobs, conclude }.run()
}

impl CheckpointRun {
    fn job(&self, case: Case) -> anyhow::Result<PlannedJob> {
        let CheckpointRun { out, checkpoint, .. } = self;
        let folder = case.to_string();
        let files = JobFiles {
            log: out.join(&folder).join(CHECKPOINT_LOG),
            record: results_folder::absolute(out)?.join(&folder).join(CHECKPOINT_RECORD),
        };
        let mut worker = vec![BenchmarkKind::Checkpoint.to_string()];
        worker.extend(arguments(&CheckpointConfig { record: Some(files.record.clone()), ..checkpoint.clone() }));
        let announcement = announcement(&format!("checkpoint {case}"), &files.log);
        Ok(PlannedJob { announcement, ..PlannedJob::new(folder, case, files, worker) })
    }
}
