//! The `input` benchmark: reading and decoding only, one job with one process on each host.

use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmark_core::benchmark::input::{INPUT_LOG, INPUT_RECORD, InputConfig, InputRecord, PageCache};
use ringmark_core::benchmark::{BenchmarkKind, measured_and_warmup};
use ringmark_core::dimension::{Bytes, Case};
use ringmark_core::host::processors;
use ringmark_core::number_text::three_digits;
use ringmark_core::trace::TraceConfig;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{EndedJob, PlannedJob};
use crate::launch::sweep::benchmarks::record_jobs::{RecordJobs, announcement};
use crate::launch::sweep::estimate;
use crate::launch::sweep::plan::joined;
use crate::output::message::Printer;

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

/// Checks the configuration before anything starts, then measures. `judge` reads a training result before anything
/// starts, and returns the function that compares the record with it.
pub fn run<J>(config: &InputRun, judge: impl FnOnce(&Path) -> anyhow::Result<J>) -> anyhow::Result<()>
where
    J: Fn(&InputRecord) -> Vec<String>,
{
    let judge = config.against.as_deref().map(judge).transpose()?;
    let conclude = Box::new(|ended: &[EndedJob<InputRecord>], printer: Printer| {
        let measured = ended.iter().filter_map(|ended| ended.outcome.figures());
        let lines = measured.flat_map(|record| judge.iter().flat_map(|judge| judge(record)));
        lines.for_each(|line| printer.line(&line));
        Ok(())
    });
    let InputRun { launch, out, .. } = config;
    let (jobs, plan) = (vec![config.job()?], config.plan_lines());
    RecordJobs { kind: BenchmarkKind::Input, launch, out, jobs, plan, is_json: false, conclude }.run()
}

/// Images that a thread reads and decodes in a second in a plan: JPEG files of 400 x 500 pixels took 7 ms.
const IMAGES_OF_THREAD: f64 = 150.0;

impl InputRun {
    /// Describes the passes, the bytes of the files as far as this machine has them, and the time.
    fn plan_lines(&self) -> Vec<String> {
        let InputRun { launch, input, .. } = self;
        let InputConfig { batches, batch_size, warmup, seconds, .. } = input;
        let caches = input.cache.caches();
        let queried: Vec<u32> = launch.processors.values().map(|processors| processors.cores).collect();
        let cores = if queried.is_empty() { vec![processors::cores()] } else { queried };
        let threads = input.decode_threads.resolve(&cores);
        let of_pass = |threads: u32| match batches {
            None => f64::from(*seconds),
            Some(batches) => f64::from((batches + warmup) * batch_size) / IMAGES_OF_THREAD / f64::from(threads),
        };
        let time = threads.iter().map(|threads| of_pass(*threads)).sum::<f64>() * caches.len() as f64;
        let length = match batches {
            None => format!("{seconds} s"),
            Some(batches) => format!("{} of {batch_size} images", measured_and_warmup(*batches, *warmup)),
        };
        let rate =
            if batches.is_some() { format!(" at {IMAGES_OF_THREAD} images/s per thread") } else { String::new() };
        let bytes = input.data.paths().iter().filter_map(|path| path.metadata().ok().filter(Metadata::is_file));
        let bytes: u64 = bytes.map(|file| file.len()).sum();
        let read = (bytes > 0 && caches.contains(&PageCache::Cold)).then(|| {
            format!(
                "data: {} GB, which each host reads at most once in a cold pass",
                three_digits(Bytes(bytes).gigabytes())
            )
        });
        let passes = format!(
            "input, hosts: {}; passes: {} of {length}, {} with {} threads",
            launch.hosts.all().len(),
            threads.len() * caches.len(),
            joined(caches, ","),
            joined(&threads, ",")
        );
        let time = estimate::roughly(Duration::try_from_secs_f64(time).unwrap_or_default());
        [passes].into_iter().chain(read).chain([format!("time: about {time}{rate}")]).collect()
    }

    /// Returns the job of one process on every host.
    fn job(&self) -> anyhow::Result<PlannedJob> {
        let InputRun { launch, out, is_traced, input, .. } = self;
        let files = JobFiles { log: out.join(INPUT_LOG), record: results_folder::absolute(out)?.join(INPUT_RECORD) };
        let trace = TraceConfig { file: is_traced.then(|| files.trace()), ..input.trace.clone() };
        let config = InputConfig { record: Some(files.record.clone()), trace, ..input.clone() };
        let worker = BenchmarkKind::Input.worker_command(&config);
        let case = Case { nodes: launch.hosts.all().len() as u32, gpus_per_node: 1 };
        let announcement = announcement(&format!("input, hosts: {}", case.nodes), &files.log);
        Ok(PlannedJob { announcement, ..PlannedJob::new("input".to_owned(), case, files, worker) })
    }
}
