//! Spans of all ranks on a common clock.

use crate::dimension::{Strategy, Wire};
use crate::trace::span::{GradientReady, RankTrace, Span};

/// An array of gradients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradientArray {
    /// Name in the network's original source.
    pub name: String,
    /// Dimensions of the array.
    pub shape: Vec<i64>,
    /// Element type during the exchange.
    pub wire: Wire,
    /// Index of the bucket that contains the array.
    pub bucket: u32,
}

/// Traces of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Title of the run: `ResNet50-v1b training, batch size 32, fp32`.
    pub title: String,
    /// Start of the timeline in seconds since 1970, by rank 0's clock.
    pub began_unix_seconds: f64,
    /// Strategy that sums gradients; `None` without an exchange, and in older files.
    pub strategy: Option<Strategy>,
    /// Backend that sums gradients, as in the record: `nccl`.
    pub exchange: String,
    /// Arrays in backward order.
    pub arrays: Vec<GradientArray>,
    /// Traces of the ranks; times are nanoseconds since the first span began, by rank 0's clock.
    pub ranks: Vec<RankTrace>,
}

impl Timeline {
    /// Converts the ranks' times to rank 0's clock, starting at 0, and sorts spans by start, the longer of two first.
    /// Returns the start of the first span in nanoseconds, by rank 0's clock.
    pub fn align(&mut self) -> i64 {
        for RankTrace { clock, spans, gradients, .. } in &mut self.ranks {
            for span in spans.iter_mut() {
                let end = clock.to_rank_0(span.end_ns());
                span.begin_ns = clock.to_rank_0(span.begin_ns);
                span.length_ns = (end - span.begin_ns).max(0);
            }
            gradients.iter_mut().for_each(|ready| ready.at_ns = clock.to_rank_0(ready.at_ns));
        }
        let begins = self.ranks.iter().flat_map(|rank| &rank.spans).map(|span| span.begin_ns);
        let zero = begins.min().unwrap_or(0);
        for RankTrace { spans, gradients, .. } in &mut self.ranks {
            spans.iter_mut().for_each(|span| span.begin_ns -= zero);
            gradients.iter_mut().for_each(|ready| ready.at_ns -= zero);
            spans.sort_by_key(|span: &Span| (span.begin_ns, -span.length_ns));
            gradients.sort_by_key(|ready: &GradientReady| ready.at_ns);
        }
        zero
    }

    /// Returns the largest remaining error of a rank's clock, in nanoseconds.
    pub fn residual_ns(&self) -> i64 {
        self.ranks.iter().map(|rank| rank.clock.residual_ns()).max().unwrap_or(0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dimension::Bytes;
    use crate::trace::clock::{ClockMethod, ClockReading, RankClock};
    use crate::trace::span::{Direction, Lane, LayerKind, LayerPass};

    /// Returns an unaligned timeline of two ranks; the second rank's clock is 1 ms ahead and its gradient is ready 2 us
    /// later.
    pub fn timeline() -> Timeline {
        let rank = |rank: u32| {
            let ahead_ns = i64::from(rank) * 1_000_000;
            let late = i64::from(rank) * 2_000;
            let reading = ClockReading { at_ns: 0, ahead_ns, residual_ns: 0 };
            let span = |lane, name: &str, begin: i64, length: i64| Span {
                lane,
                name: name.to_owned(),
                iteration: 3,
                begin_ns: 5_000_000 + ahead_ns + begin,
                length_ns: length,
                layer: None,
                bucket: None,
            };
            let pass = |direction, multiply_adds, bytes| {
                let (layer, kind) = (0, LayerKind::Convolution);
                Some(LayerPass { layer, kind, direction, multiply_adds, bytes: Bytes(bytes) })
            };
            let forward = pass(Direction::Forward, 1_000, 64);
            let backward = pass(Direction::Backward, 2_000, 128);
            RankTrace {
                rank,
                host: "a".to_owned(),
                clock: RankClock { method: ClockMethod::SameHost, first: reading, last: reading },
                spans: vec![
                    Span { bucket: Some(0), ..span(Lane::Exchange, "all-reduce", 10_000 + late, 4_000 - late) },
                    span(Lane::Step, "forward", 0, 4_000),
                    span(Lane::Step, "backward", 4_000, 6_000 + late),
                    Span { layer: forward, ..span(Lane::Layers, "conv1", 0, 3_000) },
                    Span { layer: backward, ..span(Lane::Layers, "conv1", 4_000, 5_000) },
                    Span { bucket: Some(0), ..span(Lane::Bucket(0), "bucket 0", 9_000 + late, 5_000 - late) },
                ],
                gradients: vec![GradientReady { iteration: 3, array: 0, at_ns: 5_009_000 + ahead_ns + late }],
            }
        };
        Timeline {
            title: "LeNet training".to_owned(),
            began_unix_seconds: 1_700_000_000.0,
            strategy: Some(Strategy::AllReduce),
            exchange: "shared-memory".to_owned(),
            arrays: vec![GradientArray {
                name: "conv1.weight".to_owned(),
                shape: vec![8, 1, 5, 5],
                wire: Wire::Fp16,
                bucket: 0,
            }],
            ranks: vec![rank(0), rank(1)],
        }
    }

    #[test]
    fn ranks_are_aligned_to_one_clock() {
        let mut timeline = timeline();
        assert_eq!(timeline.align(), 5_000_000);
        let begins = |rank: usize| -> Vec<(i64, i64)> {
            timeline.ranks[rank].spans.iter().map(|span| (span.begin_ns, span.length_ns)).collect()
        };
        assert_eq!(begins(0), [(0, 4000), (0, 3000), (4000, 6000), (4000, 5000), (9000, 5000), (10_000, 4000)]);
        assert_eq!(begins(1)[4..], [(11_000, 3000), (12_000, 2000)]);
        assert_eq!(timeline.ranks[1].gradients[0].at_ns, 11_000);
    }
}
