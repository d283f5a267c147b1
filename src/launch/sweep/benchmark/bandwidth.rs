//! Measures all-reduce alone, one job a case, one after the other. The first failure stops the rest, and what was
//! finished stays; a bus bandwidth below the minimum is a failure that lets the others run.
//!
//! Standard output is that of the jobs, and what is added begins with `#`: a program that reads nccl-tests' output can
//! read this. With `--json` alone the figures stand there instead, and what is told goes to the standard error.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_record::bandwidth::config::BandwidthConfig;
use ringmark_record::bandwidth::figures::{self, SizeFigures};
use ringmark_record::bandwidth::record::BandwidthRecord;
use ringmark_record::bandwidth::{lines, options};
use ringmark_record::case::Case;
use ringmark_record::files::{self, BANDWIDTH_LOG, BANDWIDTH_RECORD};
use ringmark_record::units::GigabytesPerSecond;
use ringmark_record::usage::usage;
use serde::Serialize;

use crate::answer::Json;
use crate::launch::cluster::hosts::Hosts;
use crate::launch::doctor;
use crate::launch::job::planned::{self, JobFiles, LaunchConfig, Launcher, PlannedJob};
use crate::launch::job::process::{Ended, Interrupt};
use crate::launch::job::starter::Starter;

/// What a bandwidth command is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthSweep {
    /// In the order in which they run; none twice.
    pub cases: Vec<Case>,
    /// Where and how.
    pub launch: LaunchConfig,
    /// Folder of the logs and records.
    pub out: PathBuf,
    /// Where the figures go for programs.
    pub json: Json,
    /// What each job is asked to do, but for the place of its record.
    pub bandwidth: BandwidthConfig,
}

/// `results/<UTC date>T<time>Z_bandwidth`, for a command that is given no folder.
pub fn default_out(now: SystemTime) -> PathBuf {
    planned::default_out("bandwidth", now)
}

/// DLPerf's cases of several ranks that fit, and all slots of several hosts; 1n1g where there is no such case.
pub fn default_cases(hosts: &Hosts) -> Vec<Case> {
    let mut cases: Vec<Case> = Case::DLPERF.into_iter().filter(|case| case.ranks() > 1 && hosts.fit(*case)).collect();
    let whole = hosts.whole();
    if (whole.nodes > 1 || cases.is_empty()) && !cases.contains(&whole) {
        cases.push(whole);
    }
    cases
}

/// Refuses what cannot work before anything starts, then runs every case.
pub fn run(config: &BandwidthSweep) -> anyhow::Result<()> {
    config.json.check()?;
    let mut launcher = Launcher::new(&config.launch, &config.cases)?;
    if config.launch.dry_run {
        refuse_used_folder(config)?;
        launcher.copy_commands().iter().for_each(|command| println!("{command}"));
        plan(config, &launcher)?.iter().for_each(|(_, job)| println!("{}", job.command_line()));
        return Ok(());
    }
    let _lock = launcher.claim(&config.out)?;
    refuse_used_folder(config)?;
    let interrupt = Interrupt::install()?;
    let tell = |line: &str| match config.json.is_instead() {
        true => eprintln!("{line}"),
        false => println!("{line}"),
    };
    launcher.copy_worker(&interrupt, |line| tell(&format!("# {line}")))?;
    let line = doctor::before_jobs(&mut launcher, &config.out, &interrupt)?;
    line.iter().for_each(|line| tell(&format!("# {line}")));
    let jobs = plan(config, &launcher)?;
    launcher.prepare(&config.out, jobs.iter().map(|(_, job)| job.log()))?;
    let mut outcomes = Vec::new();
    for (case, job) in &jobs {
        ensure!(!interrupt.asked(), "interrupted; finished cases are in {}", config.out.display());
        tell(&format!("# {case}, ranks: {}, log: {}", case.ranks(), job.log().display()));
        let outcome = execute(*case, job, config, &interrupt)?;
        let is_last = matches!(outcome, Outcome::Failed(_));
        outcomes.push(outcome);
        if is_last {
            break;
        }
    }
    tell(&table(&config.cases, &outcomes));
    tell(&format!("# logs and records are in {}", config.out.display()));
    config.json.give(&answer(&config.cases, &outcomes))?;
    verdict(&jobs, &outcomes)
}

/// A second run of a case would replace the first one's files, or be judged by them.
fn refuse_used_folder(config: &BandwidthSweep) -> anyhow::Result<()> {
    for case in &config.cases {
        let JobFiles { log, record } = files_of(*case, &config.out, &config.out);
        if let Some(file) = [files::under_way(&log), log, record].into_iter().find(|file| file.exists()) {
            return Err(usage(anyhow!(
                "--out {} already holds {}: choose another folder, or move it away",
                config.out.display(),
                file.display()
            )));
        }
    }
    Ok(())
}

fn files_of(case: Case, out: &Path, out_of_record: &Path) -> JobFiles {
    let of = |out: &Path, name| out.join(case.to_string()).join(name);
    JobFiles { log: of(out, BANDWIDTH_LOG), record: of(out_of_record, BANDWIDTH_RECORD) }
}

/// Every case's job in order.
fn plan(config: &BandwidthSweep, launcher: &Launcher) -> anyhow::Result<Vec<(Case, PlannedJob)>> {
    let out_of_record = planned::absolute_out(&config.out)?;
    let plan_case = |case: Case| {
        let files = files_of(case, &config.out, &out_of_record);
        let bandwidth = BandwidthConfig { json: Some(files.record.clone()), ..config.bandwidth.clone() };
        let mut arguments = vec!["bandwidth".to_owned()];
        arguments.extend(options::arguments(&bandwidth));
        (case, launcher.plan(case, bandwidth.threads, arguments, files))
    };
    Ok(config.cases.iter().copied().map(plan_case).collect())
}

/// What came of a job.
enum Outcome {
    /// Figures, fast enough.
    Sound(BandwidthRecord),
    /// Figures, below the minimum; and the words for it.
    TooSlow(BandwidthRecord, String),
    /// No figures, or none to believe; and why.
    Failed(String),
}

impl Outcome {
    /// Its figures, and why it does not pass.
    fn parts(&self) -> (Option<&BandwidthRecord>, Option<&str>) {
        match self {
            Outcome::Sound(record) => (Some(record), None),
            Outcome::TooSlow(record, reason) => (Some(record), Some(reason)),
            Outcome::Failed(reason) => (None, Some(reason)),
        }
    }
}

/// Runs one job and shows its output as it comes. A failure is the last line of the log; where that cannot be written,
/// it is told nevertheless.
fn execute(case: Case, job: &PlannedJob, config: &BandwidthSweep, interrupt: &Interrupt) -> anyhow::Result<Outcome> {
    let ended = job.run(&config.launch, interrupt, |line| match config.json.is_instead() {
        true => Ok(()),
        false => {
            let mut output = io::stdout().lock();
            output.write_all(line).and_then(|()| output.flush()).context("cannot write to the standard output")
        }
    });
    let ended = ended.inspect_err(|error| job.close_failed(&format!("{error:#}")))?;
    let outcome = judge(case, job.starter(), ended, job.read_record(BandwidthRecord::read), config.bandwidth.min_busbw);
    match &outcome {
        Outcome::Sound(_) => job.close(None)?,
        Outcome::TooSlow(_, reason) | Outcome::Failed(reason) => job.close_failed(reason),
    }
    Ok(outcome)
}

/// What a job's end and its record, or why there is none, say together.
fn judge(
    case: Case,
    starter: Starter,
    ended: Ended,
    record: Result<BandwidthRecord, String>,
    minimum: Option<GigabytesPerSecond>,
) -> Outcome {
    let record = match record {
        Ok(record) => record,
        Err(missing) => return Outcome::Failed(ended.failure(starter).unwrap_or(missing)),
    };
    // Of a job that ended by itself the record knows why it failed, and mpirun or srun only that it did.
    let recorded = record.failure.clone().filter(|_| matches!(ended, Ended::Exited(..)));
    match recorded.or_else(|| ended.failure(starter)) {
        None => Outcome::Sound(record),
        Some(reason) => {
            let miss = minimum.and_then(|minimum| lines::below_minimum(&record.results, case.ranks(), minimum));
            // The worker takes its words from the same function, and any other failure goes before this one.
            if miss.as_ref() == Some(&reason) { Outcome::TooSlow(record, reason) } else { Outcome::Failed(reason) }
        }
    }
}

/// What programs are given.
#[derive(Debug, Serialize)]
struct Answer {
    /// Those that ran, in order.
    cases: Vec<CaseAnswer>,
}

/// One case; its samples are in its record.
#[derive(Debug, Serialize)]
struct CaseAnswer {
    case: Case,
    ranks: u32,
    /// Engine that summed; `null` where there are no figures.
    collective: Option<String>,
    /// In GB/s; `null` without a sample.
    average_busbw: Option<GigabytesPerSecond>,
    /// Why it does not pass.
    failure: Option<String>,
    sizes: Vec<SizeFigures>,
}

fn answer(cases: &[Case], outcomes: &[Outcome]) -> Answer {
    let of_case = |(case, outcome): (&Case, &Outcome)| {
        let (record, failure) = outcome.parts();
        let results = record.map(|record| record.results.as_slice()).unwrap_or_default();
        CaseAnswer {
            case: *case,
            ranks: case.ranks(),
            collective: record.map(|record| record.collective.clone()),
            average_busbw: figures::average_busbw(results, case.ranks()),
            failure: failure.map(str::to_owned),
            sizes: results.iter().map(|result| SizeFigures::of(result, case.ranks())).collect(),
        }
    };
    Answer { cases: cases.iter().zip(outcomes).map(of_case).collect() }
}

/// One line a case that ran, in GB/s and bytes.
fn table(cases: &[Case], outcomes: &[Outcome]) -> String {
    let line = |words: [&str; 6]| {
        let [case, ranks, average, best, size, failure] = words;
        let line = format!("# {case:>8}  {ranks:>7}  {average:>9}  {best:>10}  {size:>12}  {failure}");
        line.trim_end().to_owned()
    };
    let mut table = vec![
        "#".to_owned(),
        line(["case", "ranks", "avg busbw", "best busbw", "of size", "failure"]),
        line(["", "", "(GB/s)", "(GB/s)", "(B)", ""]),
    ];
    for (case, outcome) in cases.iter().zip(outcomes) {
        let (record, failure) = outcome.parts();
        let failure = failure.unwrap_or("-");
        let results = record.map(|record| record.results.as_slice()).unwrap_or_default();
        let (ranks, none) = (case.ranks(), || "-".to_owned());
        let average = figures::average_busbw(results, ranks).map_or_else(none, |average| format!("{:.2}", average.0));
        let (size, best) = figures::best_busbw(results, ranks)
            .map_or_else(|| (none(), none()), |(size, best)| (size.0.to_string(), format!("{:.2}", best.0)));
        table.push(line([&case.to_string(), &ranks.to_string(), &average, &best, &size, &failure.replace('\n', " ")]));
    }
    table.join("\n")
}

/// An error where a case failed, or else where any was too slow.
fn verdict(jobs: &[(Case, PlannedJob)], outcomes: &[Outcome]) -> anyhow::Result<()> {
    let mut slow = Vec::new();
    for ((case, job), outcome) in jobs.iter().zip(outcomes) {
        match outcome {
            Outcome::Sound(_) => {}
            Outcome::TooSlow(_, reason) => slow.push(format!("{case}: {reason}")),
            Outcome::Failed(reason) => bail!("{case} failed: {reason}; its log is {}", job.log().display()),
        }
    }
    ensure!(slow.is_empty(), "{}", slow.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use ringmark_record::bandwidth::record::{MessageResult, Timing};
    use ringmark_record::environment::Environment;
    use ringmark_record::units::{Bytes, Seconds};

    use super::*;

    const CASE: Case = Case { nodes: 1, gpus_per_node: 2 };

    /// 1 GB in 0.1 s: 10 GB/s.
    fn record(failure: Option<&str>) -> BandwidthRecord {
        let timing = Timing { seconds: vec![vec![Seconds(0.1)]; 2], wrong: Some(0), error: vec![0.0] };
        BandwidthRecord {
            collective: "mpi".to_owned(),
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

    fn exited(code: i32) -> Ended {
        Ended::Exited(ExitStatus::from_raw(code << 8), None)
    }

    const MINIMUM: Option<GigabytesPerSecond> = Some(GigabytesPerSecond(1000.0));

    /// The words of [`lines::below_minimum`].
    fn miss() -> String {
        lines::below_minimum(&record(None).results, 2, GigabytesPerSecond(1000.0)).expect("a miss")
    }

    fn reason(ended: Ended, record: Result<BandwidthRecord, String>) -> String {
        match judge(CASE, Starter::Mpirun, ended, record, MINIMUM) {
            Outcome::Failed(reason) => reason,
            Outcome::Sound(_) => panic!("it is sound"),
            Outcome::TooSlow(..) => panic!("it is too slow"),
        }
    }

    #[test]
    fn the_record_says_more_than_mpirun() {
        assert!(matches!(judge(CASE, Starter::Mpirun, exited(0), Ok(record(None)), None), Outcome::Sound(_)));
        assert_eq!(reason(exited(1), Ok(record(Some("3 elements are wrong")))), "3 elements are wrong");
        assert_eq!(reason(exited(7), Ok(record(None))), "mpirun ended with exit status 7");
        assert_eq!(reason(exited(7), Err("no record".to_owned())), "mpirun ended with exit status 7");
        assert_eq!(reason(exited(0), Err("no record".to_owned())), "no record");
        assert_eq!(reason(Ended::Interrupted, Ok(record(Some(&miss())))), "interrupted");
    }

    #[test]
    fn too_slow_is_told_from_failed() {
        assert!(matches!(
            judge(CASE, Starter::Mpirun, exited(1), Ok(record(Some(&miss()))), MINIMUM),
            Outcome::TooSlow(..)
        ));
        // Slow as well, but wrong before all.
        assert_eq!(reason(exited(1), Ok(record(Some("3 elements are wrong")))), "3 elements are wrong");
    }

    #[test]
    fn the_table_has_a_line_for_every_case_that_ran() {
        let cases = ["1n2g", "2n8g", "4n8g", "8n8g"].map(|case| case.parse().expect("a case"));
        let outcomes = [
            Outcome::Sound(record(None)),
            Outcome::TooSlow(record(None), "too slow".to_owned()),
            Outcome::Failed("mpirun ended with exit status 7".to_owned()),
        ];
        assert_eq!(
            table(&cases, &outcomes),
            "\
#
#     case    ranks  avg busbw  best busbw       of size  failure
#                       (GB/s)      (GB/s)           (B)
#     1n2g        2      10.00       10.00    1000000000  -
#     2n8g       16      18.75       18.75    1000000000  too slow
#     4n8g       32          -           -             -  mpirun ended with exit status 7"
        );
    }

    #[test]
    fn the_default_cases_are_those_that_exchange() {
        let cases = |hosts: &str| -> Vec<String> {
            let hosts = Hosts::parse_list(hosts).expect("hosts");
            default_cases(&hosts).iter().map(Case::to_string).collect()
        };
        assert_eq!(cases("a:1"), ["1n1g"]);
        assert_eq!(cases("a:2"), ["1n2g"]);
        assert_eq!(cases("a:64"), ["1n2g", "1n4g", "1n8g"]);
        assert_eq!(cases("a:4,b:4"), ["1n2g", "1n4g", "2n4g"]);
        assert_eq!(cases("a:1,b:1"), ["2n1g"]);
        assert_eq!(cases("a:8,b:8,c:8,d:8"), ["1n2g", "1n4g", "1n8g", "2n8g", "4n8g"]);
    }
}
