//! The `input` benchmark: reading and decoding only, one job with one process on each host.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::input::{INPUT_LOG, INPUT_RECORD, InputConfig, InputRecord};
use ringmark_core::dimension::Case;
use ringmark_core::options::option_table::arguments;
use ringmark_core::trace::TraceConfig;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::PlannedJob;
use crate::launch::sweep::benchmarks::record_jobs::{RecordJobs, announcement};

/// An input command.
#[derive(Debug, Clone, PartialEq)]
pub struct InputRun {
    /// Hosts and launch settings.
    pub launch: LaunchConfig,
    /// Folder of log and record.
    pub out: PathBuf,
    /// Training result whose input demand is compared with the measured rate.
    pub against: Option<PathBuf>,
    /// True if the job writes a trace.
    pub is_traced: bool,
    /// Settings of each host, except the path of the record. Paths are absolute.
    pub input: InputConfig,
}

/// Returns `results/<UTC date>T<time>Z_input`, the default output folder.
pub fn default_folder(now: SystemTime) -> PathBuf {
    results_folder::default_path("input", now)
}

/// Checks the configuration before anything starts, then measures. `judge` reads a training result before anything
/// starts, and returns the function that compares the record with it.
pub fn run<J>(config: &InputRun, judge: impl FnOnce(&Path) -> anyhow::Result<J>) -> anyhow::Result<()>
where
    J: Fn(&InputRecord) -> Vec<String>,
{
    let judge = config.against.as_deref().map(judge).transpose()?;
    let conclude = Box::new(|record: &InputRecord| judge.iter().flat_map(|judge| judge(record)).collect());
    let InputRun { launch, out, .. } = config;
    RecordJobs { kind: BenchmarkKind::Input, launch, out, jobs: vec![config.job()?], conclude }.run()
}

impl InputRun {
    /// Returns the job of one process on every host.
    fn job(&self) -> anyhow::Result<PlannedJob> {
        let InputRun { launch, out, is_traced, input, .. } = self;
        let files = JobFiles { log: out.join(INPUT_LOG), record: results_folder::absolute(out)?.join(INPUT_RECORD) };
        let mut worker = vec![BenchmarkKind::Input.to_string()];
        let trace = TraceConfig { file: is_traced.then(|| files.trace()), ..input.trace.clone() };
        worker.extend(arguments(&InputConfig { record: Some(files.record.clone()), trace, ..input.clone() }));
        let case = Case { nodes: launch.hosts.all().len() as u32, gpus_per_node: 1 };
        let announcement = announcement(&format!("input, hosts: {}", case.nodes), &files.log);
        Ok(PlannedJob { announcement, ..PlannedJob::new("input".to_owned(), case, files, worker) })
    }
}
