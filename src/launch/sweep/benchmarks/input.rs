//! The `input` benchmark: reading and decoding only, one job with one process on each host. Standard output is that of
//! the job, and added lines begin with `#`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::input::{INPUT_LOG, INPUT_RECORD, InputConfig, InputRecord};
use ringmark_core::dimension::Case;
use ringmark_core::options::option_table::arguments;
use ringmark_core::trace::TraceConfig;

use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::print::Printer;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{Benchmark, EndedJob, PlanContext, PlannedJob, SessionRules};
use crate::launch::sweep::benchmarks::output_filter::OutputFilter;
use crate::launch::sweep::live::Live;
use crate::launch::sweep::session::{self, RestartConfig, SessionConfig};

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
    let InputRun { launch, out, .. } = config;
    let cases = [config.case()];
    let judged = JudgedRun { run: config, judge };
    Live::during((judged.kind(), judged.rules().printer), launch, out, |live| {
        let (repeat, cooldown, restarts) = (&[], Duration::ZERO, &RestartConfig::NONE);
        session::run(
            SessionConfig { cases: &cases, launch, out, resume: false, repeat, cooldown, restarts, live },
            &judged,
        )
    })?;
    Ok(())
}

impl InputRun {
    /// Returns the case of one process on every host.
    fn case(&self) -> Case {
        Case { nodes: self.launch.hosts.all().len() as u32, gpus_per_node: 1 }
    }
}

/// A run with the comparison applied to its record.
struct JudgedRun<'a, J> {
    run: &'a InputRun,
    judge: Option<J>,
}

impl<J: Fn(&InputRecord) -> Vec<String>> Benchmark for JudgedRun<'_, J> {
    type Record = InputRecord;
    type Figures = InputRecord;
    type Follower = OutputFilter;

    fn kind(&self) -> BenchmarkKind {
        BenchmarkKind::Input
    }

    fn rules(&self) -> SessionRules {
        let printer = Printer { mark: "# ", to_error: false };
        SessionRules { printer, shows_output: true, ..SessionRules::default() }
    }

    fn plan(&self, _: PlanContext) -> anyhow::Result<Vec<PlannedJob>> {
        let InputRun { out, is_traced, input, .. } = self.run;
        let files = JobFiles { log: out.join(INPUT_LOG), record: results_folder::absolute(out)?.join(INPUT_RECORD) };
        let mut worker = vec![self.kind().to_string()];
        let trace = TraceConfig { file: is_traced.then(|| files.trace()), ..input.trace.clone() };
        worker.extend(arguments(&InputConfig { record: Some(files.record.clone()), trace, ..input.clone() }));
        let case = self.run.case();
        let announcement = Some(format!("input, hosts: {}, log: {}", case.nodes, files.log.display()));
        Ok(vec![PlannedJob { announcement, ..PlannedJob::new("input".to_owned(), case, files, worker) }])
    }

    fn follow(&self, _: &PlannedJob) -> OutputFilter {
        OutputFilter::new(true)
    }

    fn figures(&self, record: InputRecord, _: Option<OutputFilter>) -> Result<InputRecord, String> {
        Ok(record)
    }

    fn finish(&self, ended: &[EndedJob<InputRecord>], _: bool) -> anyhow::Result<()> {
        let printer = self.rules().printer;
        let measured = ended.iter().filter_map(|ended| ended.outcome.figures());
        for (record, judge) in measured.zip(&self.judge) {
            judge(record).iter().for_each(|line| printer.line(line));
        }
        printer.line(&format!("log and record are in {}", self.run.out.display()));
        Ok(())
    }
}
