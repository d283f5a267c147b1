//! Where a command is while it runs: a small file in its folder, replaced once a second, by which others watch it. No
//! result, and no figure is computed from it.

use std::io::Read;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::BenchmarkKind;
use crate::dimension::case::Case;
use crate::dimension::units::{Bytes, ImagesPerSecond, Seconds};
use crate::file::run_name::{PROGRESS, RunName};
use crate::file::{schema, whole_file};

/// Version of this file format.
pub const SCHEMA: u32 = 1;

/// What the file is, in its first field.
pub const KIND: &str = "ringmark-progress";

/// Between two of them.
pub const INTERVAL: Seconds = Seconds(1.0);

/// A command on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Always `ringmark-progress`.
    pub kind: String,
    /// Version of the format.
    pub schema: u32,
    /// What is measured.
    pub benchmark: BenchmarkKind,
    /// The host on which the launcher runs.
    pub host: String,
    /// Its process number there.
    pub process: u32,
    /// When it began, since 1970, by that host's clock.
    pub started: Seconds,
    /// When this was said, by the same clock.
    pub said: Seconds,
    /// How many jobs there are.
    pub jobs: JobCounts,
    /// Roughly until the last of them ends; `null` where nothing says how fast they are.
    pub left: Option<Seconds>,
    /// The job under way.
    pub job: Option<JobProgress>,
    /// Once the command has ended.
    pub end: Option<CommandEnd>,
}

/// Jobs of this command; of a sweep that is resumed those that were missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct JobCounts {
    /// The job under way, from 1.
    pub number: usize,
    /// All of them.
    pub of: usize,
    /// Those that have ended and count.
    pub finished: usize,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandEnd {
    /// Why it failed; `null` where it did not.
    pub failure: Option<String>,
}

/// A job on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobProgress {
    /// What messages call it.
    pub title: String,
    /// The run that comes of it, where it is one of a sweep.
    pub run: Option<RunName>,
    /// Shape.
    pub case: Case,
    /// Since it was started.
    pub elapsed: Seconds,
    /// The iteration under way, warm-up included, by the rank that is furthest behind; 0 before the first.
    pub iteration: u32,
    /// How many there will be.
    pub iterations: Option<u32>,
    /// The first of them, which do not count.
    pub warmup: u32,
    /// What the rank that is furthest behind does.
    pub stage: Option<String>,
    /// Of all ranks, in the last iteration.
    pub images_per_second: Option<ImagesPerSecond>,
    /// All images over all time after warm-up.
    pub mean_images_per_second: Option<ImagesPerSecond>,
    /// Half-width of that mean's 95 % confidence interval, as a share of it.
    pub margin: Option<f64>,
    /// Each rank that has reported, servers last.
    pub ranks: Vec<RankProgress>,
}

/// A rank on its way, by its last report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankProgress {
    /// From 0; servers are counted by themselves.
    pub rank: u32,
    /// Whether it is a server of a kv-store.
    pub is_server: bool,
    /// Name of its host.
    pub host: String,
    /// From 1; 0 before the first.
    pub iteration: u32,
    /// What it does there, or how it ended.
    pub stage: String,
    /// Whether it waits for other ranks.
    pub is_waiting: bool,
    /// What its last iteration took.
    pub step: Option<Seconds>,
    /// Of that, what came before its first all-reduce, in which it waits for no other rank; all of it where nothing is
    /// exchanged, and `null` where nothing else is done.
    pub before_allreduce: Option<Seconds>,
    /// Since its last report, of which one is due every second.
    pub unheard: Seconds,
    /// Memory that its host has left.
    pub available_memory: Option<Bytes>,
}

impl JobProgress {
    /// The rank that needs most time of its own, in which it waits for nobody; `None` of fewer than two that have said so.
    pub fn slowest<'a>(ranks: impl IntoIterator<Item = &'a RankProgress>) -> Option<(&'a RankProgress, Seconds)> {
        let timed: Vec<(&RankProgress, Seconds)> =
            ranks.into_iter().filter_map(|rank| Some((rank, rank.before_allreduce?))).collect();
        let slowest = timed.iter().copied().max_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
        slowest.filter(|_| timed.len() > 1)
    }
}

impl Progress {
    /// What is known before the first job.
    pub fn begin(benchmark: BenchmarkKind, host: String, process: u32, now: Seconds) -> Progress {
        Progress {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            benchmark,
            host,
            process,
            started: now,
            said: now,
            jobs: JobCounts::default(),
            left: None,
            job: None,
            end: None,
        }
    }

    /// Reads one, after its head is checked.
    pub fn read(input: impl Read) -> anyhow::Result<Progress> {
        schema::read_document(input, KIND, SCHEMA, "progress file")
    }

    /// That of the command that writes into `folder`, or was the last to.
    pub fn read_in(folder: &Path) -> anyhow::Result<Progress> {
        Progress::read(whole_file::open(&folder.join(PROGRESS))?)
    }

    /// As the file holds it.
    pub fn text(&self) -> String {
        // Plain data: there is nothing in it that JSON cannot hold.
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
            unheard: Seconds(0.5),
            available_memory: Some(Bytes(1 << 30)),
        }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let job = JobProgress {
            title: "1n2g".to_owned(),
            run: Some("1n2g/rn50_b8_fp32_1.log".parse().expect("a name")),
            case: "1n2g".parse().expect("a case"),
            elapsed: Seconds(2.5),
            iteration: 3,
            iterations: Some(12),
            warmup: 2,
            stage: Some("forward".to_owned()),
            images_per_second: Some(ImagesPerSecond(20.5)),
            mean_images_per_second: None,
            margin: None,
            ranks: vec![rank(0, Some(0.25), Some(0.5))],
        };
        let begun = Progress::begin(BenchmarkKind::Train, "a".to_owned(), 7, Seconds(1.7e9));
        let end = Some(CommandEnd { failure: Some("interrupted".to_owned()) });
        let progress = Progress { job: Some(job), end, ..begun };
        let text = progress.text();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(Progress::read(text.as_bytes()).expect("one of ours"), progress);
        let error = Progress::read(&b"{\"kind\":\"ringmark-sweep\",\"schema\":2}"[..]).expect_err("a manifest");
        assert!(format!("{error:#}").contains("a progress file is of kind"), "{error:#}");
    }

    #[test]
    fn the_slowest_rank_has_most_time_of_its_own() {
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
