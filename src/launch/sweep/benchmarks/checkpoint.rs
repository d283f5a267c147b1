//! The `checkpoint` benchmark: writing and reading of checkpoints, one job for each case.

use std::path::PathBuf;

use ringmark_core::benchmark::checkpoint::{CHECKPOINT_LOG, CHECKPOINT_RECORD, CheckpointConfig, CheckpointRecord};
use ringmark_core::benchmark::{BenchmarkKind, measured_and_warmup};
use ringmark_core::dimension::{Bytes, Case, DeviceKind};
use ringmark_core::number_text::{count, three_digits};

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{EndedJob, PlannedJob};
use crate::launch::sweep::benchmarks::record_jobs::{RecordJobs, announcement};
use crate::launch::sweep::estimate;
use crate::launch::sweep::plan::joined;

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

/// Checks the configuration before anything starts, then measures.
pub fn run(config: &CheckpointRun) -> anyhow::Result<()> {
    let CheckpointRun { cases, launch, out, .. } = config;
    let jobs = cases.iter().map(|case| config.job(*case)).collect::<anyhow::Result<_>>()?;
    let conclude = Box::new(|_: &[EndedJob<CheckpointRecord>], _| Ok(()));
    let plan = config.plan_lines();
    RecordJobs { kind: BenchmarkKind::Checkpoint, launch, out, jobs, plan, is_json: false, conclude }.run()
}

/// Rate of the storage in a plan, GB/s.
const STORAGE_RATE: f64 = 2.0;

impl CheckpointRun {
    /// Describes the checkpoints, the space that they need, and the time.
    fn plan_lines(&self) -> Vec<String> {
        let CheckpointRun { cases, checkpoint, .. } = self;
        let CheckpointConfig { iterations, warmup, device, folder, .. } = checkpoint;
        let combinations = checkpoint.combinations();
        let each = cases.iter().flat_map(|case| combinations.iter().map(move |each| (each.writers, *case)));
        let bytes: Vec<u64> = each.map(|(writers, case)| checkpoint.written(writers, case).0).collect();
        let space = bytes.iter().copied().max().unwrap_or_default();
        let written = bytes.iter().sum::<u64>() * u64::from(iterations + warmup);
        let size = |bytes: u64| format!("{} GB", three_digits(Bytes(bytes).gigabytes()));
        let shared = if cases.iter().any(|case| case.nodes > 1) { " if the hosts share it" } else { "" };
        let time = estimate::time_of_transfer(2.0 * written as f64, STORAGE_RATE, cases.len(), DeviceKind::Cpu);
        vec![
            format!(
                "checkpoint, {}; {}, {} in a checkpoint; {} of {} checkpoints, device {device}",
                joined(cases, " "),
                checkpoint.content(),
                size(checkpoint.bytes().0),
                count(combinations.len(), "combination"),
                measured_and_warmup(*iterations, *warmup)
            ),
            format!(
                "folder: {}, which needs {}{shared}; {} are written in all, and read again",
                folder.display(),
                size(space),
                size(written)
            ),
            format!("time: about {} at {STORAGE_RATE} GB/s for all ranks together", estimate::roughly(time)),
        ]
    }

    fn job(&self, case: Case) -> anyhow::Result<PlannedJob> {
        let CheckpointRun { out, checkpoint, .. } = self;
        let folder = case.to_string();
        let files = JobFiles {
            log: out.join(&folder).join(CHECKPOINT_LOG),
            record: results_folder::absolute(out)?.join(&folder).join(CHECKPOINT_RECORD),
        };
        let config = CheckpointConfig { record: Some(files.record.clone()), ..checkpoint.clone() };
        let worker = BenchmarkKind::Checkpoint.worker_command(&config);
        let announcement = announcement(&format!("checkpoint {case}"), &files.log);
        Ok(PlannedJob { announcement, ..PlannedJob::new(folder, case, files, worker) })
    }
}
