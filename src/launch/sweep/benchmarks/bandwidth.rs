//! The `bandwidth` benchmark: all-reduce or another operation alone, one job for each case and operation. A bus
//! bandwidth below the minimum is a failure that does not stop the remaining cases.
//!
//! Standard output is that of the jobs, and added lines begin with `#`, so that a parser of nccl-tests output can read
//! it. With `--json` and no path, standard output contains the figures, and messages go to standard error.

use std::path::{Path, PathBuf};

use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::{
    BandwidthConfig, BandwidthRecord, SizeFigures, bandwidth_files, bandwidth_operation, figures,
};
use ringmark_core::benchmark::strategy::ServerArrays;
use ringmark_core::benchmark::{BenchmarkKind, measured_and_warmup};
use ringmark_core::dimension::{BackendName, Bytes, Case, DeviceKind, GigabytesPerSecond, Operation};
use ringmark_core::number_text::{binary_size, count, marked, three_digits};
use ringmark_core::stats::busbw::Bus;
use ringmark_core::trace::TraceConfig;
use ringmark_core::validity;
use ringmark_core::validity::thresholds::HEAVY_FOREIGN_LOAD;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::job_launch::JobFiles;
use crate::launch::job::launcher::LaunchConfig;
use crate::launch::local::results_folder;
use crate::launch::sweep::benchmark::{EndedJob, PlannedJob};
use crate::launch::sweep::benchmarks::record_jobs::RecordJobs;
use crate::launch::sweep::estimate;
use crate::launch::sweep::plan::{self, joined};
use crate::output::Json;
use crate::output::message::Printer;
use crate::output::table::{Column, Row, Table};

/// A bandwidth command.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthSweep {
    /// Cases in the order in which they run, without duplicates.
    pub cases: Vec<Case>,
    /// Operations of each case, in this order, without duplicates.
    pub operations: Vec<Operation>,
    /// Hosts and launch settings.
    pub launch: LaunchConfig,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// Destination of the figures as JSON.
    pub json: Json,
    /// True if each job writes a trace.
    pub is_traced: bool,
    /// Device of the ranks, as far as this machine can determine it.
    pub device: DeviceKind,
    /// Settings of each job, except the path of its record.
    pub bandwidth: BandwidthConfig,
}

/// Returns the cases of a sweep that have several ranks. If there are none, returns all slots of all hosts.
pub fn default_cases(hosts: &Hosts, device: DeviceKind) -> Vec<Case> {
    let mut cases = plan::default_cases(hosts, device);
    cases.retain(|case| case.ranks() > 1);
    if cases.is_empty() { vec![hosts.full_case()] } else { cases }
}

/// Checks the configuration before anything starts, then runs every case.
pub fn run(config: &BandwidthSweep) -> anyhow::Result<()> {
    let BandwidthSweep { launch, out, json, .. } = config;
    json.check(&[])?;
    let conclude = Box::new(|ended: &[EndedJob<BandwidthRecord>], printer: Printer| {
        let answer = answer(ended);
        printer.line(&table(&answer));
        json.write(&answer).map(|_| ())
    });
    let (kind, is_json) = (BenchmarkKind::Bandwidth, json.is_instead());
    RecordJobs { kind, launch, out, jobs: config.jobs()?, plan: config.plan_lines(), is_json, conclude }.run()
}

/// Bus bandwidth in a plan, GB/s, of ranks on the CPU and on GPUs: the one of a network of 100 Gb/s.
const BUS_RATES: [f64; 2] = [1.0, 10.0];

impl BandwidthSweep {
    fn jobs(&self) -> anyhow::Result<Vec<PlannedJob>> {
        let out_of_record = results_folder::absolute(&self.out)?;
        let job = |case: Case, bandwidth: &BandwidthConfig| {
            let path = |out: &Path, name: &str| out.join(case.to_string()).join(name);
            let [log, record] = bandwidth_files(bandwidth.operation);
            let files = JobFiles { log: path(&self.out, &log), record: path(&out_of_record, &record) };
            let strategy = bandwidth.strategy.for_case(case);
            let trace = TraceConfig { file: self.is_traced.then(|| files.trace()), ..bandwidth.trace.clone() };
            let bandwidth = BandwidthConfig { json: Some(files.record.clone()), strategy, trace, ..bandwidth.clone() };
            let weights = match bandwidth.messages {
                Messages::Gradients(model) => model.facts().parameters,
                Messages::Sizes { .. } => 0,
            };
            let arrays = ServerArrays {
                weights,
                states: bandwidth.state_names().len(),
                wire: bandwidth.exchange.wire,
                compression: bandwidth.gradient_compression,
            };
            let memory = strategy.memory_of_server(case, arrays);
            // All ranks synchronize before every iteration: none can continue without the others.
            let servers = self.launch.servers(strategy, memory);
            let worker = BenchmarkKind::Bandwidth.worker_command(&bandwidth);
            let title = title(case, bandwidth.operation);
            let announcement = Some(format!("{title}, ranks: {}, log: {}", case.ranks(), files.log.display()));
            let threads = bandwidth.threads;
            PlannedJob { announcement, threads, servers, ..PlannedJob::new(title, case, files, worker) }
        };
        let each = self.bandwidth.for_operations(&self.operations);
        Ok(self.cases.iter().flat_map(|case| each.iter().map(|config| job(*case, config))).collect())
    }

    fn plan_lines(&self) -> Vec<String> {
        let BandwidthConfig { messages, iterations, warmup, device, .. } = &self.bandwidth;
        let operations = match messages {
            Messages::Gradients(model) => format!("gradients of {}", model.facts().title),
            Messages::Sizes { .. } => {
                let sizes = self.bandwidth.sizes();
                let range = sizes.first().zip(sizes.last());
                let range =
                    range.map(|(first, last)| format!(" from {} to {}", binary_size(*first), binary_size(*last)));
                let (operations, sizes) = (joined(&self.operations, ","), count(sizes.len(), "size"));
                format!("{operations}: {sizes}{}", range.unwrap_or_default())
            }
        };
        let iterations = measured_and_warmup(*iterations, *warmup);
        let first =
            format!("bandwidth, {}; {operations}, {iterations} iterations, device {device}", joined(&self.cases, " "));
        [first].into_iter().chain(self.transfer_line()).collect()
    }

    /// Describes the largest message, the bytes of all messages of a rank, and the time; `None` for single pairs of ranks.
    fn transfer_line(&self) -> Option<String> {
        let BandwidthConfig { messages, iterations, warmup, pairs, .. } = self.bandwidth;
        let calls = f64::from(iterations + warmup);
        let (largest, bytes) = match messages {
            Messages::Gradients(model) => {
                let whole = model.facts().gradient_bytes();
                (whole, whole.0 as f64)
            }
            Messages::Sizes { .. } if pairs => return None,
            // Out of place and in place.
            Messages::Sizes { .. } => {
                let sizes = self.bandwidth.sizes();
                (*sizes.last()?, 2.0 * sizes.iter().map(|size| size.0 as f64).sum::<f64>())
            }
        };
        let bus = |case: &Case, operation: Operation| Bus { operation, ranks: case.ranks() }.share();
        let shares = self.cases.iter().flat_map(|case| self.operations.iter().map(|operation| bus(case, *operation)));
        let jobs = self.cases.len() * self.operations.len();
        let rate = BUS_RATES[usize::from(self.device == DeviceKind::Cuda)];
        let time = estimate::time_of_transfer(calls * bytes * shares.sum::<f64>(), rate, jobs, self.device);
        Some(format!(
            "messages: at most {}, {} GB in all for each rank; time: about {} at a bus bandwidth of {rate} GB/s",
            binary_size(largest),
            three_digits(calls * bytes * jobs as f64 / 1e9),
            estimate::roughly(time)
        ))
    }
}

/// Returns `1n2g`, or `1n2g all_gather` for an operation other than all-reduce.
fn title(case: Case, operation: Operation) -> String {
    match operation {
        Operation::AllReduce => case.to_string(),
        other => format!("{case} {other}"),
    }
}

/// First field of the answer, which identifies the format.
const KIND: &str = "ringmark-bandwidth-figures";

/// Version of the answer. Version 1 had no version field, loads or warnings.
const SCHEMA: u32 = 2;

/// The figures as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Answer {
    /// Always `ringmark-bandwidth-figures`.
    kind: &'static str,
    /// Version of the format.
    schema: u32,
    /// Cases that ran, in order.
    cases: Vec<CaseAnswer>,
}

/// One case and operation; its samples are in its record.
#[derive(Debug, Serialize, JsonSchema)]
struct CaseAnswer {
    case: Case,
    operation: Operation,
    ranks: u32,
    /// Backend of the operation; `null` if there are no figures.
    backend: Option<BackendName>,
    /// Average bus bandwidth in GB/s; `null` without a sample.
    average_busbw: Option<GigabytesPerSecond>,
    #[serde(skip)]
    best_busbw: Option<(Bytes, GigabytesPerSecond)>,
    /// Share of core time that other processes used, 0 to 1, on the most loaded host; `null` if the record does not
    /// contain it.
    foreign_load: Option<f64>,
    /// Warnings raised during the job.
    warnings: Vec<String>,
    /// Reason for a failure.
    failure: Option<String>,
    sizes: Vec<SizeFigures>,
}

fn answer(ended: &[EndedJob<BandwidthRecord>]) -> Answer {
    let case_answer = |EndedJob { job, outcome, .. }: &EndedJob<BandwidthRecord>| {
        let record = outcome.figures();
        let results = record.map(|record| record.results.as_slice()).unwrap_or_default();
        let bus = Bus { operation: bandwidth_operation(&job.files.log).unwrap_or_default(), ranks: job.case.ranks() };
        CaseAnswer {
            case: job.case,
            operation: bus.operation,
            ranks: bus.ranks,
            backend: record.map(|record| record.backend),
            average_busbw: figures::average_busbw(results, bus),
            best_busbw: figures::best_busbw(results, bus),
            foreign_load: record.and_then(|record| Some(validity::foreign_load(record)?.share)),
            warnings: record.iter().flat_map(|record| &record.warnings).map(|warning| warning.text.clone()).collect(),
            failure: outcome.failure().map(str::to_owned),
            sizes: results.iter().map(|result| SizeFigures::from_result(result, bus)).collect(),
        }
    };
    Answer { kind: KIND, schema: SCHEMA, cases: ended.iter().map(case_answer).collect() }
}

/// Returns a table with one line for each case that ran, in GB/s and bytes.
fn table(answer: &Answer) -> String {
    let columns = vec![
        Column::text("case"),
        Column::text("operation"),
        Column::numbers("ranks", ""),
        Column::numbers("avg busbw", "GB/s"),
        Column::numbers("best busbw", "GB/s"),
        Column::numbers("of size", "B"),
        Column::numbers("other load", "%"),
        Column::text("failure"),
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let has_others = answer.cases.iter().any(|case| case.operation != Operation::AllReduce);
    let mut has_doubtful = false;
    for CaseAnswer { case, operation, ranks, average_busbw, best_busbw, foreign_load, failure, .. } in &answer.cases {
        let is_doubtful = foreign_load.is_some_and(|load| load > HEAVY_FOREIGN_LOAD);
        has_doubtful |= is_doubtful;
        let cell = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let rate =
            |rate: Option<GigabytesPerSecond>| marked(cell(rate.map(|rate| format!("{:.2}", rate.0))), is_doubtful);
        rows.push(vec![
            case.to_string(),
            cell(has_others.then(|| operation.to_string())),
            ranks.to_string(),
            rate(*average_busbw),
            rate(best_busbw.map(|(_, best)| best)),
            cell(best_busbw.map(|(size, _)| size.0.to_string())),
            cell(foreign_load.map(|load| format!("{:.1}", load * 100.0))),
            cell(failure.clone()),
        ]);
    }
    let table =
        Table { columns, rows: rows.into_iter().map(Row::from).collect(), bars: None }.without_empty("operation");
    let mut lines = vec![String::new(), table.aligned(usize::MAX)];
    if has_doubtful {
        let most = HEAVY_FOREIGN_LOAD * 100.0;
        lines.push(format!(
            "in parentheses: unreliable, other processes used more than {most} % of the cores during or before the run: \
             stop them and measure again"
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use expect_test::expect;
    use ringmark_core::benchmark::bandwidth::record::{FailureKind, MessageResult, Timing};
    use ringmark_core::dimension::{DeviceChoice, Seconds};
    use ringmark_core::host::environment::Environment;
    use ringmark_core::host::resource_use::HostUse;

    use super::*;
    use crate::launch::cluster::remote::SshOptions;
    use crate::launch::job::process::ProcessOutcome;
    use crate::launch::job::starter::Starter;
    use crate::launch::local::environment::LaunchEnvironment;
    use crate::launch::sweep::benchmark::{Failure, JobOutcome};

    const CASE: Case = Case { nodes: 1, gpus_per_node: 2 };

    /// Returns a record of 1 GB in 0.1 s: 10 GB/s.
    fn record(failure: Option<&str>) -> BandwidthRecord {
        let timing =
            Timing { seconds: vec![vec![Seconds(0.1)]; 2], back_to_back: Vec::new(), wrong: Some(0), error: vec![0.0] };
        BandwidthRecord {
            backend: BackendName::Mpi,
            results: vec![MessageResult {
                bytes: Bytes(1_000_000_000),
                count: 250_000_000,
                element: "float".to_owned(),
                buckets: vec![Bytes(1_000_000_000)],
                out_of_place: None,
                in_place: Some(timing),
            }],
            failure: failure.map(str::to_owned),
            ..BandwidthRecord::new(Seconds(0.0), BandwidthConfig::default(), Environment::default(), Vec::new())
        }
    }

    fn sweep() -> BandwidthSweep {
        BandwidthSweep {
            cases: vec![CASE],
            operations: vec![Operation::AllReduce],
            launch: LaunchConfig::new(
                Hosts::this_machine(2),
                Starter::Mpirun,
                SshOptions::new(22, &[], &LaunchEnvironment::default()),
                DeviceChoice::Cpu,
            ),
            out: "out".into(),
            json: Json::No,
            is_traced: false,
            device: DeviceKind::Cpu,
            bandwidth: BandwidthConfig::default(),
        }
    }

    fn job(case: Case) -> PlannedJob {
        let sweep = BandwidthSweep { cases: vec![case], ..sweep() };
        sweep.jobs().expect("a plan").remove(0)
    }

    fn exited(code: i32) -> ProcessOutcome {
        ProcessOutcome::Exited(ExitStatus::from_raw(code << 8), None)
    }

    fn miss() -> BandwidthRecord {
        BandwidthRecord { failure_kind: Some(FailureKind::BelowMinimum), ..record(Some("too slow")) }
    }

    fn failure(end: ProcessOutcome, record: Result<BandwidthRecord, String>) -> Option<String> {
        end.failure_with_record(Starter::Mpirun, &record)
    }

    #[test]
    fn record_failure_takes_precedence_over_mpirun() {
        let reason = |end, record| failure(end, record).expect("valid record");
        assert_eq!(failure(exited(0), Ok(record(None))), None);
        expect!["3 elements are wrong"].assert_eq(&reason(exited(1), Ok(record(Some("3 elements are wrong")))));
        expect!["mpirun exited with status 7"].assert_eq(&reason(exited(7), Ok(record(None))));
        expect!["mpirun exited with status 7"].assert_eq(&reason(exited(7), Err("no record".to_owned())));
        assert_eq!(reason(exited(0), Err("no record".to_owned())), "no record");
        assert_eq!(reason(ProcessOutcome::Interrupted, Ok(miss())), "interrupted");
    }

    #[test]
    fn too_slow_differs_from_failed() {
        assert!(exited(1).is_miss(&miss()));
        // Slow as well, but the results are wrong; or ended from outside.
        let failure_kind = Some(FailureKind::WrongResults);
        let wrong = BandwidthRecord { failure_kind, ..record(Some("3 elements are wrong")) };
        assert!(!exited(1).is_miss(&wrong));
        assert!(!ProcessOutcome::Interrupted.is_miss(&miss()));
        assert!(!exited(0).is_miss(&record(None)));
    }

    #[test]
    fn table_has_a_row_per_completed_case() {
        let stolen = HostUse { cores: 2, elapsed: Seconds(10.0), steal: Seconds(10.0), ..HostUse::default() };
        let disturbed = BandwidthRecord { host_use: vec![stolen], ..record(None) };
        let outcomes = [
            ("1n2g", JobOutcome::Sound(record(None))),
            ("1n8g", JobOutcome::Sound(disturbed)),
            ("2n8g", JobOutcome::Missed(record(None), "too slow".to_owned())),
            ("4n8g", JobOutcome::Failed(Failure::Explained("mpirun exited with status 7".to_owned()))),
        ];
        let ended = outcomes.map(|(case, outcome)| {
            let job = job(case.parse().expect("a case"));
            EndedJob::new(job, Some(Duration::ZERO), false, outcome)
        });
        assert_eq!(
            table(&answer(&ended)),
            "
case  ranks  avg busbw  best busbw     of size  other load  failure
                  GB/s        GB/s           B           %
---------------------------------------------------------------------------------------
1n2g      2      10.00       10.00  1000000000           -  -
1n8g      8    (17.50)     (17.50)  1000000000        50.0  -
2n8g     16      18.75       18.75  1000000000           -  too slow
4n8g     32          -           -           -           -  mpirun exited with status 7
in parentheses: unreliable, other processes used more than 25 % of the cores during or before the run: stop them and measure again"
        );
    }

    #[test]
    fn each_operation_has_its_own_job_and_row() {
        let operations = vec![Operation::AllReduce, Operation::AllGather];
        let sweep = BandwidthSweep { operations, ..sweep() };
        let jobs = sweep.jobs().expect("a plan");
        let titles: Vec<&str> = jobs.iter().map(|job| job.title.as_str()).collect();
        assert_eq!(titles, ["1n2g", "1n2g all_gather"]);
        let logs: Vec<String> = jobs.iter().map(|job| job.files.log.display().to_string()).collect();
        assert_eq!(logs, ["out/1n2g/bandwidth.log", "out/1n2g/bandwidth_all_gather.log"]);
        assert!(jobs[1].arguments.join(" ").contains("--op all_gather"), "{:?}", jobs[1].arguments);
        let ended: Vec<_> = jobs
            .into_iter()
            .map(|job| EndedJob::new(job, Some(Duration::ZERO), false, JobOutcome::Sound(record(None))))
            .collect();
        // 10 GB/s of algorithm bandwidth, of which an all-gather of two ranks counts half.
        assert_eq!(
            table(&answer(&ended)),
            "
case  operation   ranks  avg busbw  best busbw     of size  other load  failure
                              GB/s        GB/s           B           %
-------------------------------------------------------------------------------
1n2g  all_reduce      2      10.00       10.00  1000000000           -  -
1n2g  all_gather      2       5.00        5.00  1000000000           -  -"
        );
    }

    #[test]
    fn default_cases_have_several_ranks() {
        let cases = |hosts: &str| -> Vec<String> {
            let hosts = Hosts::parse_list(hosts).expect("hosts");
            default_cases(&hosts, DeviceKind::Cuda).iter().map(Case::to_string).collect()
        };
        assert_eq!(cases("a:1"), ["1n1g"]);
        assert_eq!(cases("a:2"), ["1n2g"]);
        assert_eq!(cases("a:64"), ["1n2g", "1n4g", "1n8g", "1n64g"]);
        assert_eq!(cases("a:4,b:4"), ["1n2g", "1n4g", "2n4g"]);
        assert_eq!(cases("a:1,b:1"), ["2n1g"]);
        assert_eq!(cases("a:8,b:8,c:8,d:8"), ["1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]);
    }
}
