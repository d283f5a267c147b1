//! The bandwidth record: one JSON document with every sample. Writer and parser.

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::bandwidth::config::BandwidthConfig;
use crate::benchmark::bandwidth::gradients_use::GradientsUse;
use crate::benchmark::bandwidth::nullable;
use crate::benchmark::document_record::document_record;
use crate::dimension::{BackendName, Bytes, GigabytesPerSecond, Seconds, Wire};
use crate::keyword_enum;
use crate::stats::busbw::Bus;
use crate::stats::summary;

keyword_enum!(
    /// Reason why a run is not valid.
    FailureKind {
        /// Results differ from the exact ones.
        WrongResults = "wrong-results",
        /// The bus bandwidth is below `--min-busbw`, and nothing else is wrong.
        BelowMinimum = "below-minimum",
    }
);

// Version 1 of the format has other names for a few keys and is read as well.
document_record!(
    /// Record of a whole run.
    BandwidthRecord, kind: "ringmark-bandwidth", schema: 3, title: "bandwidth record",
    iterations: |record| record.config.iterations,
    is_miss: |record| record.failure_kind == Some(FailureKind::BelowMinimum) => {
        config: BandwidthConfig,
        setup {
            /// Backend that summed: `nccl`, `shared-memory`, `mpi`, `none`, `solo` for one rank, or `tcp` between ranks and servers.
            #[serde(alias = "collective")]
            backend: BackendName,
            /// Type of the additions: fp32, or the wire type if a library adds. `None` if nothing was exchanged.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            sum_dtype: Option<Wire>,
        }
        /// Location and device of every rank.
        ranks,
        results {
            /// Limit set by the memory bandwidth, measured in addition to the all-reduce; on the CPU only.
            memory: Option<MemoryLimit>,
            /// NCCL's log lines about its choices; empty without NCCL.
            nccl: Vec<String>,
            /// One result per size, or one for the gradients.
            results: Vec<MessageResult>,
            /// Traffic and errors of a network's gradients; `None` for sizes and in older records.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            gradients: Option<GradientsUse>,
        }
        /// Resource use of every host during the run; empty in older records.
        #[serde(default)]
        host_use,
        /// Resource use of every rank during the run; empty in older records.
        #[serde(default)]
        rank_use,
        /// Warnings about the figures.
        #[serde(default)]
        warnings,
        end {
            /// Kind of the failure; `None` for a valid run and in older records.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            failure_kind: Option<FailureKind>,
        }
    }
);

/// Memory bandwidth and the bus bandwidth that it allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryLimit {
    /// Rate of reads and writes by all ranks of rank 0's host together, in the fastest loop.
    pub rate: GigabytesPerSecond,
    /// Name of the fastest loop.
    pub by: String,
    /// Maximum bus bandwidth at this rate: `memory_bound` of `src/core/stats/busbw.rs`.
    pub busbw: GigabytesPerSecond,
    /// Size of each of the two arrays that a rank moves; 0 in older records.
    #[serde(default)]
    pub array: Bytes,
    /// True if the arrays of all ranks of the host fit in its last-level cache, so that this is the rate of the cache.
    #[serde(default)]
    pub is_in_cache: bool,
}

impl MemoryLimit {
    /// Returns the share of the limit that a message reached; `None` without a limit, and for messages smaller than the
    /// arrays, which may be in a faster cache.
    pub fn share(&self, message: Bytes, busbw: GigabytesPerSecond) -> Option<f64> {
        (self.busbw.0 > 0.0 && message >= self.array).then(|| busbw.0 / self.busbw.0)
    }
}

/// Result of one size, or of the gradients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageResult {
    /// Size of the array, all ranks' parts together.
    pub bytes: Bytes,
    /// Elements that the operation counts: those of one rank's part if the array is divided.
    pub count: u64,
    /// Element type as nccl-tests calls it: `float`, `half`, `bfloat16`.
    pub element: String,
    /// Sizes in memory of the reduced buckets; one for a plain size.
    pub buckets: Vec<Bytes>,
    /// Timing with separate input and output buffers; `None` for gradients.
    pub out_of_place: Option<Timing>,
    /// Timing with the output in the input buffer; `None` if the wire type makes that impossible.
    pub in_place: Option<Timing>,
}

/// Times of every measured iteration on every rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Times by rank, then by iteration.
    pub seconds: Vec<Vec<Seconds>>,
    /// Time per call by rank, for as many calls as there are iterations, enqueued back to back as in nccl-tests. Empty
    /// if calls block until completion, for gradients, and in older records.
    #[serde(default, alias = "in_a_row", skip_serializing_if = "Vec::is_empty")]
    pub back_to_back: Vec<Seconds>,
    /// Elements that differ from the exact result, over all ranks and iterations; `None` if nothing was checked.
    pub wrong: Option<u64>,
    /// Error of each iteration, `sum |got - expected| / sum |expected|`, on the worst rank (MXNet,
    /// tools/bandwidth/measure.py); `null` in the file if it is not finite.
    #[serde(with = "nullable")]
    #[schemars(with = "Vec<Option<f64>>")]
    pub error: Vec<f64>,
}

impl BandwidthRecord {
    /// Returns the mean time of a result from each sender to each receiver, `[sender][receiver]`; `None` without
    /// `--pairs`. A rank's times are those of its receptions, sender by sender.
    pub fn pair_times(&self, result: &MessageResult) -> Option<Vec<Vec<Option<Seconds>>>> {
        let timing = result.out_of_place.as_ref().filter(|_| self.config.pairs)?;
        let (ranks, iterations) = (timing.seconds.len(), self.config.iterations as usize);
        let mut times = vec![vec![None; ranks]; ranks];
        for (receiver, received) in timing.seconds.iter().enumerate() {
            let senders = (0..ranks).filter(|sender| *sender != receiver);
            for (sender, seconds) in senders.zip(received.chunks(iterations)) {
                let seconds: Vec<f64> = seconds.iter().map(|time| time.0).collect();
                times[sender][receiver] = summary::mean(&seconds).map(Seconds);
            }
        }
        Some(times)
    }

    /// Returns the operation and ranks that convert times to bus bandwidth.
    pub fn bus(&self) -> Bus {
        Bus { operation: self.config.operation, ranks: self.ranks.len() as u32 }
    }

    fn check_results(&self) -> anyhow::Result<()> {
        for result in &self.results {
            for (side, timing) in result.sides() {
                let checked = timing.map_or(Ok(()), |timing| timing.check(self.ranks.len()));
                checked.with_context(|| format!("{} of {}", side, result.bytes))?;
            }
        }
        Ok(())
    }
}

impl Timing {
    /// Returns the samples of all ranks and iterations.
    pub fn pooled(&self) -> Vec<f64> {
        self.seconds.iter().flatten().map(|seconds| seconds.0).collect()
    }

    /// Returns the mean over the iterations, for each rank.
    pub fn by_rank(&self) -> Vec<f64> {
        let mean = |rank: &Vec<Seconds>| summary::mean(&rank.iter().map(|seconds| seconds.0).collect::<Vec<_>>());
        self.seconds.iter().filter_map(mean).collect()
    }

    /// Returns the mean over the ranks, for each iteration.
    pub fn by_iteration(&self) -> Vec<f64> {
        let of_all_ranks = |iteration: usize| -> Vec<f64> {
            self.seconds.iter().filter_map(|rank| rank.get(iteration)).map(|seconds| seconds.0).collect()
        };
        (0..).map_while(|iteration| summary::mean(&of_all_ranks(iteration))).collect()
    }

    fn check(&self, ranks: usize) -> anyhow::Result<()> {
        ensure!(self.seconds.len() == ranks, "times of {} ranks, expected {ranks}", self.seconds.len());
        let iterations = self.seconds.first().map_or(0, Vec::len);
        for (rank, seconds) in self.seconds.iter().enumerate() {
            ensure!(seconds.len() == iterations, "rank {rank} has {} times, rank 0 has {iterations}", seconds.len());
            let wrong = seconds.iter().find(|time| !time.is_duration());
            ensure!(wrong.is_none(), "rank {rank} has an invalid time: {}", wrong.copied().unwrap_or_default());
        }
        Ok(())
    }

    /// Returns the time that rates are computed from: the mean over ranks of [back-to-back calls](Timing::back_to_back) if
    /// measured, otherwise the mean over ranks and iterations. `None` without samples.
    pub fn mean(&self) -> Option<Seconds> {
        let back_to_back: Vec<f64> = self.back_to_back.iter().map(|seconds| seconds.0).collect();
        summary::mean(&back_to_back).or_else(|| summary::mean(&self.pooled())).map(Seconds)
    }
}

impl MessageResult {
    /// Returns the out-of-place and the in-place timing, each with its name; `None` for one that was not measured.
    pub fn sides(&self) -> [(&'static str, Option<&Timing>); 2] {
        [("out-of-place", self.out_of_place.as_ref()), ("in-place", self.in_place.as_ref())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Record;
    use crate::host::{Environment, RankPlace};

    fn record() -> BandwidthRecord {
        let timing = Timing {
            seconds: vec![vec![Seconds(0.5)], vec![Seconds(0.25)]],
            back_to_back: Vec::new(),
            wrong: Some(0),
            error: vec![0.0],
        };
        let ranks = (0..2).map(|rank| RankPlace::on_cpu(rank, rank, "a")).collect();
        BandwidthRecord {
            backend: BackendName::Mpi,
            results: vec![MessageResult {
                bytes: Bytes(8),
                count: 2,
                element: "float".to_owned(),
                buckets: vec![Bytes(8)],
                out_of_place: None,
                in_place: Some(timing),
            }],
            ..BandwidthRecord::new(Seconds(1.7e9), BandwidthConfig::default(), Environment::default(), ranks)
        }
    }

    #[test]
    fn pair_times_are_means_by_sender_and_receiver() {
        let mut record = record();
        assert_eq!(record.pair_times(&record.results[0]), None);
        (record.config.pairs, record.config.iterations) = (true, 2);
        // Two iterations from each other rank.
        let times = [[1.0, 3.0, 5.0, 5.0], [4.0, 4.0, 6.0, 8.0], [7.0, 7.0, 9.0, 9.0]];
        let seconds = times.map(|rank| rank.map(Seconds).to_vec()).to_vec();
        let timing = Timing { seconds, back_to_back: Vec::new(), wrong: Some(0), error: Vec::new() };
        record.results[0].out_of_place = Some(timing);
        let means = |times: [f64; 3]| times.map(|time| (time > 0.0).then_some(Seconds(time))).to_vec();
        let expected = vec![means([0.0, 4.0, 7.0]), means([2.0, 0.0, 9.0]), means([5.0, 7.0, 0.0])];
        assert_eq!(record.pair_times(&record.results[0]), Some(expected));
    }

    #[test]
    fn record_round_trips() {
        let mut bytes = Vec::new();
        record().write(&mut bytes).expect("an in-memory write succeeds");
        assert_eq!(BandwidthRecord::read(&bytes[..]).expect("sound"), record());
        assert_eq!(record().results[0].in_place.as_ref().map(Timing::pooled), Some(vec![0.5, 0.25]));
    }

    #[test]
    fn failure_without_kind_is_not_a_miss() {
        let missed = BandwidthRecord {
            failure: Some("too slow".to_owned()),
            failure_kind: Some(FailureKind::BelowMinimum),
            ..record()
        };
        let mut bytes = Vec::new();
        missed.write(&mut bytes).expect("an in-memory write succeeds");
        let text = String::from_utf8(bytes).expect("JSON is UTF-8");
        let read = |text: &str| BandwidthRecord::read(text.as_bytes()).expect("sound");
        assert!(read(&text).is_miss());
        let older = read(&text.replace(",\"failure_kind\":\"below-minimum\"", ""));
        assert_eq!(older, BandwidthRecord { failure_kind: None, ..missed });
        assert!(!older.is_miss() && !record().is_miss());
    }

    #[test]
    fn non_finite_error_round_trips() {
        let mut record = record();
        record.results[0].in_place = Some(Timing {
            seconds: vec![Vec::new(); 2],
            back_to_back: Vec::new(),
            wrong: Some(1),
            error: vec![f64::NAN, 0.5],
        });
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("an in-memory write succeeds");
        let read = BandwidthRecord::read(&bytes[..]).expect("sound");
        let error = &read.results[0].in_place.as_ref().expect("it was written").error;
        assert!(error[0].is_nan() && error[1] == 0.5, "{error:?}");
    }

    #[test]
    fn times_are_averaged_by_rank_and_iteration() {
        let seconds = vec![vec![Seconds(1.0), Seconds(3.0)], vec![Seconds(2.0), Seconds(6.0)]];
        let timing = Timing { seconds, back_to_back: Vec::new(), wrong: None, error: Vec::new() };
        assert_eq!(timing.by_rank(), [2.0, 4.0]);
        assert_eq!(timing.by_iteration(), [1.5, 4.5]);
        assert_eq!(timing.mean(), Some(Seconds(3.0)));
        let row = Timing { back_to_back: vec![Seconds(0.25), Seconds(0.75)], ..timing.clone() };
        assert_eq!((row.mean(), row.by_rank()), (Some(Seconds(0.5)), timing.by_rank()));
        let nothing = Timing { seconds: vec![Vec::new(); 2], back_to_back: Vec::new(), wrong: None, error: Vec::new() };
        assert_eq!((nothing.by_rank(), nothing.by_iteration(), nothing.mean()), (Vec::new(), Vec::new(), None));
    }

    #[test]
    fn wrong_documents_are_rejected() {
        let error = |text: &str| format!("{:#}", BandwidthRecord::read(text.as_bytes()).expect_err("refused"));
        assert!(error("nonsense").contains("the bandwidth record is damaged"));
        assert!(error("{}").contains("found \"\""));
        assert!(error("{\"kind\":\"ringmark-bandwidth\",\"schema\":7}").contains("format 7"));
        let mut bytes = Vec::new();
        record().write(&mut bytes).expect("an in-memory write succeeds");
        let text = String::from_utf8(bytes).expect("JSON is UTF-8");
        assert!(error(&text.replace("0.25", "-0.25")).contains(
            "in-place of 8 bytes: rank 1 has an invalid time: \
             -0.25 s"
        ));
        assert!(error(&text.replace("[0.25]", "[0.25,0.5]")).contains("rank 1 has 2 times, rank 0 has 1"));
        assert!(error(&text.replace(",[0.25]", "")).contains("times of 1 ranks, expected 2"));
        assert!(error(&text.replace("0.25", "null")).contains("not a bandwidth record: invalid type: null"));
        assert!(error(&text[..text.len() / 2]).contains("line 1 column"));
    }
}
