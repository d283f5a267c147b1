//! Progress of a running command: a small file in its folder, replaced once a second, for other programs to watch. It
//! is not a result, and no figure is computed from it.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::mem;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::BenchmarkKind;
use crate::dimension::{Bytes, Case, Seconds, UnitsPerSecond, WorkUnit};
use crate::file::run_name::{PROGRESS, RunName};
use crate::file::{atomic_file, schema};
use crate::host::heartbeat;

/// Version of this file format.
pub const SCHEMA: u32 = 2;

/// Kind of file, in its first field.
pub const KIND: &str = "ringmark-progress";

/// Time between two updates of the file.
pub const INTERVAL: Seconds = Seconds(1.0);

/// State of a running command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Always `ringmark-progress`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// Benchmark being run.
    pub benchmark: BenchmarkKind,
    /// Host of the launcher.
    pub host: String,
    /// Process ID of the launcher.
    pub process: u32,
    /// Start time, in seconds since 1970 by that host's clock.
    pub started: Seconds,
    /// Time of this update, by the same clock.
    #[serde(alias = "said")]
    pub updated: Seconds,
    /// Job counts.
    pub jobs: JobCounts,
    /// Valid runs that have ended, in the order in which they ended; in a resumed sweep those of earlier sessions
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedRun>,
    /// Estimated time until the last job ends; `null` if the speed is not known.
    pub left: Option<Seconds>,
    /// Current job.
    pub job: Option<JobProgress>,
    /// Present once the command has ended.
    pub end: Option<CommandEnd>,
}

/// Job counts of this command; in a resumed sweep they include the finished ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// Current job, from 1.
    pub number: usize,
    /// Total number of jobs.
    pub of: usize,
    /// Number of jobs that have ended and are valid.
    pub finished: usize,
}

/// Row of a sweep's table: a valid run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FinishedRun {
    /// Name in messages.
    pub title: String,
    /// All images or tokens over all time after warm-up.
    #[serde(alias = "images_per_second")]
    pub units_per_second: UnitsPerSecond,
    /// Unit of the speed; images if absent.
    #[serde(default, skip_serializing_if = "WorkUnit::is_image")]
    pub unit: WorkUnit,
    /// Ratio to the median of 1n1g; `null` for 1n1g and if 1n1g has not run.
    pub speedup: Option<f64>,
    /// `speedup / ranks`, a share.
    pub efficiency: Option<f64>,
    /// True if the efficiency is above the limit of its strategy, so that 1n1g was disturbed; false if absent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_impossible_efficiency: bool,
    /// Top-1 accuracy on the validation images at the end of the last epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_1: Option<f64>,
    /// Wall-clock time of its job; `null` if an earlier session ran it.
    pub took: Option<Seconds>,
    /// Number of warnings in its record.
    pub warnings: usize,
}

/// Outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandEnd {
    /// Reason for the failure; `null` if there was none.
    pub failure: Option<String>,
    /// True if the user interrupted the command; `failure` then describes its state.
    #[serde(default)]
    pub is_interrupted: bool,
}

/// State of a running job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobProgress {
    /// Name in messages.
    pub title: String,
    /// Run that the job produces, if it is one of a sweep.
    pub run: Option<RunName>,
    /// Nodes and GPUs per node.
    pub case: Case,
    /// Time since the job was started.
    pub elapsed: Seconds,
    /// Current iteration of the rank that is furthest behind, including warm-up; 0 before the first.
    pub iteration: u32,
    /// Total number of iterations.
    pub iterations: Option<u32>,
    /// Number of warm-up iterations, which are not measured.
    pub warmup: u32,
    /// Stage of the rank that is furthest behind.
    pub stage: Option<String>,
    /// Speed of all ranks in the last iteration.
    #[serde(alias = "images_per_second")]
    pub units_per_second: Option<UnitsPerSecond>,
    /// All images or tokens over all time after warm-up.
    #[serde(alias = "mean_images_per_second")]
    pub mean_units_per_second: Option<UnitsPerSecond>,
    /// Unit of the speeds; images if absent.
    #[serde(default, skip_serializing_if = "WorkUnit::is_image")]
    pub unit: WorkUnit,
    /// Half-width of the 95 % confidence interval of that mean, as a share of it.
    pub margin: Option<f64>,
    /// Time between two reports of a rank; longer in jobs of many ranks.
    #[serde(default = "JobProgress::default_report_interval")]
    pub report_interval: Seconds,
    /// Each rank that has reported, servers last; in a large job only those of the hosts that are silent or slowest.
    pub ranks: Vec<RankProgress>,
    /// Summary of all ranks, if `ranks` does not contain all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_ranks: Option<AllRanks>,
}

/// Summary of all ranks of a large job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllRanks {
    /// Ranks and servers that have reported.
    pub ranks: usize,
    /// Number of their hosts.
    pub hosts: usize,
    /// Lowest and highest iteration of a rank.
    pub iterations: [u32; 2],
    /// Number of ranks in each stage.
    pub stages: BTreeMap<String, usize>,
    /// Number of ranks that wait for others.
    pub waiting: usize,
    /// Number of ranks that have missed several reports.
    pub silent: usize,
}

/// State of a rank, by its last report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankProgress {
    /// Rank, from 0; servers are numbered separately.
    pub rank: u32,
    /// True if it is a server of a kv-store.
    pub is_server: bool,
    /// Name of its host.
    pub host: String,
    /// Iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// Current stage, or how the rank ended.
    pub stage: String,
    /// True if it waits for other ranks.
    pub is_waiting: bool,
    /// Duration of its last iteration.
    pub step: Option<Seconds>,
    /// Part of `step` before the first all-reduce, in which the rank waits for no other rank. All of it if nothing is
    /// exchanged, and `null` if nothing is computed.
    pub before_allreduce: Option<Seconds>,
    /// Time since its last report; one is due every `report_interval`.
    #[serde(alias = "unheard")]
    pub since_report: Seconds,
    /// Memory that is available on its host.
    pub available_memory: Option<Bytes>,
}

impl JobProgress {
    fn default_report_interval() -> Seconds {
        heartbeat::INTERVAL
    }

    /// Returns the time without a report after which a rank is silent.
    pub fn silence(&self) -> Seconds {
        heartbeat::silence(self.report_interval)
    }

    /// Keeps only the ranks of the silent and slowest hosts if there are more than `most` ranks, and adds a summary of
    /// all: a file written once a second must not grow with the job.
    pub fn keep_slowest_hosts(&mut self, most: usize) {
        if self.ranks.len() <= most {
            return;
        }
        let silence = self.silence();
        let workers = || self.ranks.iter().filter(|rank| !rank.is_server).map(|rank| rank.iteration);
        let mut stages: BTreeMap<String, usize> = BTreeMap::new();
        // Longest silence and longest own time of each host.
        let mut hosts: HashMap<&str, (f64, f64)> = HashMap::new();
        for rank in &self.ranks {
            *stages.entry(rank.stage.clone()).or_default() += 1;
            let slowness = hosts.entry(&rank.host).or_default();
            slowness.0 = slowness.0.max(if rank.since_report.0 > silence.0 { rank.since_report.0 } else { 0.0 });
            slowness.1 = slowness.1.max(rank.before_allreduce.map_or(0.0, |time| time.0));
        }
        let all = AllRanks {
            ranks: self.ranks.len(),
            hosts: hosts.len(),
            iterations: [workers().min().unwrap_or(0), workers().max().unwrap_or(0)],
            stages,
            waiting: self.ranks.iter().filter(|rank| rank.is_waiting).count(),
            silent: self.ranks.iter().filter(|rank| rank.since_report.0 > silence.0).count(),
        };
        let mut order: Vec<(&str, (f64, f64))> = hosts.into_iter().collect();
        order.sort_by(|(one_name, one), (other_name, other)| {
            other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)).then(one_name.cmp(other_name))
        });
        // At most as many hosts as ranks are kept.
        let kept: HashMap<String, usize> =
            order.into_iter().take(most).enumerate().map(|(place, (host, _))| (host.to_owned(), place)).collect();
        let place = |rank: &RankProgress| kept.get(&rank.host).copied();
        let mut ranks: Vec<RankProgress> = mem::take(&mut self.ranks);
        ranks.retain(|rank| place(rank).is_some());
        ranks.sort_by_key(place);
        ranks.truncate(most);
        ranks.sort_by_key(|rank| (rank.is_server, rank.rank));
        (self.ranks, self.all_ranks) = (ranks, Some(all));
    }

    /// Returns the rank with the longest own time, in which it waits for no other rank; `None` if fewer than two report
    /// it.
    pub fn slowest<'a>(ranks: impl IntoIterator<Item = &'a RankProgress>) -> Option<(&'a RankProgress, Seconds)> {
        let timed: Vec<(&RankProgress, Seconds)> =
            ranks.into_iter().filter_map(|rank| Some((rank, rank.before_allreduce?))).collect();
        let slowest = timed.iter().copied().max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
        slowest.filter(|_| timed.len() > 1)
    }
}

impl Progress {
    /// Creates the state before the first job.
    pub fn begin(benchmark: BenchmarkKind, host: String, process: u32, now: Seconds) -> Progress {
        Progress {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            benchmark,
            host,
            process,
            started: now,
            updated: now,
            jobs: JobCounts::default(),
            finished: Vec::new(),
            left: None,
            job: None,
            end: None,
        }
    }

    /// Reads a progress file, after checking its header.
    pub fn read(input: impl Read) -> anyhow::Result<Progress> {
        schema::read_document(input, KIND, SCHEMA, "progress file")
    }

    /// Reads the progress file of the command that writes into `folder`, or was the last to.
    pub fn read_in(folder: &Path) -> anyhow::Result<Progress> {
        Progress::read(atomic_file::open(&folder.join(PROGRESS))?)
    }

    /// Returns the content of the file.
    pub fn text(&self) -> String {
        // Plain data, which JSON can always represent.
        serde_json::to_string(self).expect("progress is JSON") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u32, own: Option<f64>, step: Option<f64>) -> RankProgress {
        RankProgress {
            rank,
            is_server: false,
            host: "a".to_owned(),
            iteration: 3,
            stage: "forward".to_owned(),
            is_waiting: false,
            step: step.map(Seconds),
            before_allreduce: own.map(Seconds),
            since_report: Seconds(0.5),
            available_memory: Some(Bytes(1 << 30)),
        }
    }

    #[test]
    fn progress_round_trips() {
        let job = JobProgress {
            title: "1n2g".to_owned(),
            run: Some("1n2g/rn50_b8_fp32_1.log".parse().expect("a name")),
            case: "1n2g".parse().expect("a case"),
            elapsed: Seconds(2.5),
            iteration: 3,
            iterations: Some(12),
            warmup: 2,
            stage: Some("forward".to_owned()),
            units_per_second: Some(UnitsPerSecond(20.5)),
            mean_units_per_second: None,
            unit: WorkUnit::Image,
            margin: None,
            report_interval: Seconds(1.0),
            ranks: vec![rank(0, Some(0.25), Some(0.5))],
            all_ranks: None,
        };
        let begun = Progress::begin(BenchmarkKind::Train, "a".to_owned(), 7, Seconds(1.7e9));
        let end = Some(CommandEnd { failure: Some("interrupted".to_owned()), is_interrupted: true });
        let progress = Progress { job: Some(job), end, ..begun };
        let text = progress.text();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(Progress::read(text.as_bytes()).expect("one of ours"), progress);
        let error = Progress::read(&b"{\"kind\":\"ringmark-sweep\",\"schema\":2}"[..]).expect_err("a manifest");
        assert!(format!("{error:#}").contains("expected a progress file of kind"), "{error:#}");
    }

    #[test]
    fn large_job_keeps_slowest_hosts_and_totals() {
        let mut job = JobProgress {
            title: String::new(),
            run: None,
            case: "8192n8g".parse().expect("a case"),
            elapsed: Seconds(2.5),
            iteration: 3,
            iterations: None,
            warmup: 0,
            stage: None,
            units_per_second: None,
            mean_units_per_second: None,
            unit: WorkUnit::Image,
            margin: None,
            report_interval: Seconds(16.0),
            ranks: (0..65_536)
                .map(|number| RankProgress { host: format!("n{}", number / 8), ..rank(number, Some(0.1), Some(0.5)) })
                .collect(),
            all_ranks: None,
        };
        // A rank whose next report is not due yet is not silent.
        job.ranks[80].since_report = Seconds(40.0);
        job.ranks[65_000].since_report = Seconds(100.0);
        job.ranks[40_000].before_allreduce = Some(Seconds(0.2));
        job.ranks[7].iteration = 2;
        let mut all = job.clone();
        job.keep_slowest_hosts(24);
        let numbers: Vec<u32> = job.ranks.iter().map(|rank| rank.rank).collect();
        assert_eq!(numbers, (0..8).chain(40_000..40_008).chain(65_000..65_008).collect::<Vec<u32>>());
        let stages = BTreeMap::from([("forward".to_owned(), 65_536)]);
        let together = AllRanks { ranks: 65_536, hosts: 8192, iterations: [2, 3], stages, waiting: 0, silent: 1 };
        assert_eq!(job.all_ranks, Some(together));
        all.keep_slowest_hosts(65_536);
        assert_eq!((all.ranks.len(), all.all_ranks), (65_536, None));
    }

    #[test]
    fn slowest_rank_has_most_compute_time() {
        let ranks = [rank(0, Some(0.2), Some(0.5)), rank(1, Some(0.4), Some(0.5)), rank(2, None, Some(0.3))];
        let slowest = JobProgress::slowest(&ranks).map(|(rank, time)| (rank.rank, time));
        assert_eq!(slowest, Some((1, Seconds(0.4))));
        assert_eq!(JobProgress::slowest(&ranks[..1]), None, "of one rank none is slowest");
        assert_eq!(
            JobProgress::slowest(&[rank(0, None, Some(0.5)), rank(1, None, Some(0.6))]),
            None,
            "all of it is shared"
        );
    }
}
