//! Time by layer in the traced iterations, and the share of the device's rate that each layer reached.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, Seconds, TeraflopsPerSecond};
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::summary;
use crate::trace::span::{Direction, EXCHANGE_OF_CALLER, Lane, LayerKind, LayerPass, RankTrace, Span};

const BACKWARD: &str = "backward";

/// Forward or backward pass of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PassTime {
    /// Median over ranks and traced iterations.
    pub time: Seconds,
    /// Multiply-adds of a rank. If ranks have different numbers of images, the number that the median rate completes in
    /// `time`.
    pub multiply_adds: u64,
    /// Minimum of bytes read and written by a rank, by the same rule.
    pub bytes: Bytes,
}

impl PassTime {
    /// Computes the median of passes, given with their times in nanoseconds.
    fn median(passes: &[(i64, LayerPass)]) -> PassTime {
        let seconds: Vec<f64> = passes.iter().map(|(time, _)| *time as f64 / 1e9).collect();
        let time = summary::median(&seconds).unwrap_or(0.0);
        let at_median_rate = |work: fn(&LayerPass) -> u64| -> u64 {
            let first = passes.first().map_or(0, |(_, pass)| work(pass));
            if passes.iter().all(|(_, pass)| work(pass) == first) {
                return first;
            }
            let timed = passes.iter().zip(&seconds).filter(|(_, seconds)| **seconds > 0.0);
            let rates: Vec<f64> = timed.map(|((_, pass), seconds)| work(pass) as f64 / seconds).collect();
            (summary::median(&rates).unwrap_or(0.0) * time).round() as u64
        };
        PassTime {
            time: Seconds(time),
            multiply_adds: at_median_rate(|pass| pass.multiply_adds),
            bytes: Bytes(at_median_rate(|pass| pass.bytes.0)),
        }
    }

    fn plus(self, other: PassTime) -> PassTime {
        PassTime {
            time: Seconds(self.time.0 + other.time.0),
            multiply_adds: self.multiply_adds + other.multiply_adds,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
        }
    }

    /// Returns the rate, with two operations per multiply-add; `None` if nothing is multiplied.
    fn rate(self) -> Option<TeraflopsPerSecond> {
        let is_rate = self.multiply_adds > 0 && self.time.0 > 0.0;
        is_rate.then(|| TeraflopsPerSecond(2.0 * self.multiply_adds as f64 / self.time.0 / 1e12))
    }
}

/// A layer, or all layers of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerTime {
    /// Name of its tensors, or its function if it has none.
    pub name: String,
    /// Kind of the layer.
    pub kind: LayerKind,
    /// Forward pass.
    pub forward: PassTime,
    /// Backward pass; all 0 for inference.
    pub backward: PassTime,
}

impl LayerTime {
    fn total(&self) -> PassTime {
        self.forward.plus(self.backward)
    }
}

/// Times of all layers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerProfile {
    /// Number of passes in each median: ranks times iterations.
    pub passes: u32,
    /// Layers in forward order.
    pub layers: Vec<LayerTime>,
    /// Forward and backward of the step, forward alone for inference, of which the layers are parts. As in the record's
    /// phases, sums inside backward are excluded. `None` if nothing was traced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Seconds>,
}

impl LayerProfile {
    /// Computes the profile of the traced ranks.
    pub fn from_traces(ranks: &[RankTrace]) -> LayerProfile {
        // Name, kind and pass times of each layer and direction.
        type Layer<'a> = (&'a str, LayerKind, BTreeMap<(u32, u32), (i64, LayerPass)>);
        let mut passes: BTreeMap<(u32, Direction), Layer> = BTreeMap::new();
        let mut steps: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        for rank in ranks {
            let backward = backward(rank);
            for Span { lane, name, iteration, begin_ns, length_ns, layer, .. } in &rank.spans {
                let pass = (rank.rank, *iteration);
                if let Some(layer) = layer {
                    let key = (layer.layer, layer.direction);
                    let (_, _, times) = passes.entry(key).or_insert_with(|| (name, layer.kind, BTreeMap::new()));
                    times.entry(pass).or_insert((0, *layer)).0 += length_ns;
                } else if *lane == Lane::Step && ["forward", BACKWARD].contains(&name.as_str()) {
                    *steps.entry(pass).or_default() += length_ns;
                } else if (*lane, name.as_str()) == (Lane::Exchange, EXCHANGE_OF_CALLER)
                    && backward.get(iteration).is_some_and(|backward| backward.contains(begin_ns))
                {
                    *steps.entry(pass).or_default() -= length_ns;
                }
            }
        }
        let count = passes.values().map(|(_, _, times)| times.len()).max().unwrap_or(0) as u32;
        let mut layers: BTreeMap<u32, LayerTime> = BTreeMap::new();
        for ((number, direction), (name, kind, times)) in &passes {
            let empty = || LayerTime {
                name: (*name).to_owned(),
                kind: *kind,
                forward: PassTime::default(),
                backward: PassTime::default(),
            };
            let layer = layers.entry(*number).or_insert_with(empty);
            let time = PassTime::median(&times.values().copied().collect::<Vec<_>>());
            match direction {
                Direction::Forward => layer.forward = time,
                Direction::Backward => layer.backward = time,
            }
        }
        let steps: Vec<f64> = steps.values().map(|time| *time as f64 / 1e9).collect();
        LayerProfile {
            passes: count,
            layers: layers.into_values().collect(),
            step: summary::median(&steps).map(Seconds),
        }
    }

    /// Returns the totals of all layers of each kind, the slowest first, named by the kind and the number of layers.
    pub fn kinds(&self) -> Vec<LayerTime> {
        let mut kinds = Vec::new();
        for kind in LayerKind::ALL {
            let layers: Vec<&LayerTime> = self.layers.iter().filter(|layer| layer.kind == *kind).collect();
            let sum = |way: fn(&LayerTime) -> PassTime| {
                layers.iter().fold(PassTime::default(), |sum, layer| sum.plus(way(layer)))
            };
            if !layers.is_empty() {
                let name = format!("{} x {kind}", layers.len());
                let (forward, backward) = (sum(|layer| layer.forward), sum(|layer| layer.backward));
                kinds.push(LayerTime { name, kind: *kind, forward, backward });
            }
        }
        kinds.sort_by(|one, other| other.total().time.0.total_cmp(&one.total().time.0));
        kinds
    }

    /// Formats a table: every layer, then every kind, then the time outside layers. `rate` is that of a plain matrix
    /// product on this device; each rate is also printed as a share of it.
    pub fn lines(&self, rate: Option<TeraflopsPerSecond>) -> Vec<String> {
        let whole: f64 = self.layers.iter().map(|layer| layer.total().time.0).sum();
        let whole = self.step.map_or(whole, |step| step.0);
        let width = self.layers.iter().map(|layer| layer.name.len()).chain([24]).max().unwrap_or(0);
        let row = |layer: &LayerTime| {
            let both = layer.total();
            let number =
                |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            let reached = both.rate().map(|rate| rate.0);
            let share = reached.zip(rate).map(|(reached, rate)| reached / rate.0);
            let gigabytes = (both.time.0 > 0.0).then(|| both.bytes.0 as f64 / both.time.0 / 1e9);
            format!(
                "{:width$} {:>11} {:>9.3} {:>9.3} {:>6.1} {:>8.3} {:>8} {:>7} {:>7}",
                layer.name,
                layer.kind,
                1e3 * layer.forward.time.0,
                1e3 * layer.backward.time.0,
                100.0 * both.time.0 / whole,
                both.multiply_adds as f64 / 1e9,
                number(reached, 3),
                share.map_or("-".to_owned(), |share| if share > 1.0 {
                    ">100".to_owned()
                } else {
                    format!("{:.0}", 100.0 * share)
                }),
                number(gigabytes, 1),
            )
        };
        let share = rate.map_or(String::new(), |TeraflopsPerSecond(rate)| {
            let is_exceeded =
                self.kinds().iter().filter_map(|kind| kind.total().rate()).any(|reached| reached.0 > rate);
            let remark = if is_exceeded {
                ", which layers exceed: it was disturbed, or they need fewer operations than counted"
            } else {
                ""
            };
            format!("; % prod.: share of a matrix product's {rate:.3} TFLOP/s on this device{remark}")
        });
        let mut lines = vec![
            format!("time per layer and rank: medians of {} passes{share}", self.passes),
            format!(
                "{:width$} {:>11} {:>9} {:>9} {:>6} {:>8} {:>8} {:>7} {:>7}",
                "layer", "kind", "fwd ms", "bwd ms", "%", "GMAC", "TFLOP/s", "% prod.", "GB/s"
            ),
        ];
        lines.extend(self.layers.iter().map(row));
        lines.extend(self.kinds().iter().map(row));
        if let Some(Seconds(step)) = self.step {
            let outside = step - self.layers.iter().map(|layer| layer.total().time.0).sum::<f64>();
            lines.push(format!(
                "{:width$} {:>11} {:>19.3} {:>6.1}",
                "outside of layers",
                "",
                1e3 * outside,
                100.0 * outside / step
            ));
        }
        lines
    }
}

/// Returns a rank's backward phase in each iteration, in nanoseconds of its clock.
fn backward(rank: &RankTrace) -> BTreeMap<u32, Range<i64>> {
    let own = rank.spans.iter().filter(|span| span.lane == Lane::Step && span.name == BACKWARD);
    own.map(|span| (span.iteration, span.begin_ns..span.end_ns())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::timeline;

    #[test]
    fn layer_time_is_the_median_of_passes() {
        let mut timeline = timeline();
        // The second rank takes twice as long.
        for span in timeline.ranks[1].spans.iter_mut().filter(|span| span.layer.is_some()) {
            span.length_ns *= 2;
        }
        let profile = LayerProfile::from_traces(&timeline.ranks);
        assert_eq!(profile.passes, 2);
        let [layer] = &profile.layers[..] else { panic!("one layer: {profile:?}") };
        assert_eq!((layer.name.as_str(), layer.kind), ("conv1", LayerKind::Convolution));
        assert!((layer.forward.time.0 - 4.5e-6).abs() < 1e-12, "{layer:?}");
        assert!((layer.backward.time.0 - 7.5e-6).abs() < 1e-12, "{layer:?}");
        // Forward and backward take 10 us on rank 0 and 12 us on rank 1.
        assert!((profile.step.expect("training").0 - 11e-6).abs() < 1e-12, "{profile:?}");
        let lines = profile.lines(Some(TeraflopsPerSecond(0.001)));
        // 2 x 3,000 operations in 12 us are 0.0005 TFLOP/s, half of the product's rate.
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            ["conv1", "convolution", "0.005", "0.008", "109.1", "0.000", "0.001", "50", "0.0"],
            "{lines:?}"
        );
        assert!(lines[3].starts_with("1 x convolution"), "{lines:?}");
        assert!(lines[0].ends_with("on this device"), "{lines:?}");
        // A product that other programs slowed down is not a limit.
        let disturbed = profile.lines(Some(TeraflopsPerSecond(0.0002)));
        assert!(disturbed[0].ends_with("or they need fewer operations than counted"), "{disturbed:?}");
        assert_eq!(disturbed[2].split_whitespace().nth(7), Some(">100"), "{disturbed:?}");
        assert!(lines[4].starts_with("outside of layers"), "{lines:?}");
    }

    #[test]
    fn blocking_exchange_is_not_backward_time() {
        let mut timeline = timeline();
        let spans = &mut timeline.ranks[0].spans;
        let sum = spans.iter().find(|span| span.lane == Lane::Exchange).expect("there").clone();
        let backward = spans.iter().find(|span| span.name == "backward").expect("there").clone();
        let named = |begin_ns, name: &str| Span { begin_ns, length_ns: 1_000, name: name.to_owned(), ..sum.clone() };
        // A concurrent one, one after backward, and one inside it.
        spans.push(named(backward.begin_ns + 100, "all-reduce"));
        spans.push(named(backward.end_ns(), EXCHANGE_OF_CALLER));
        let step = |timeline: &crate::trace::timeline::Timeline| {
            LayerProfile::from_traces(&timeline.ranks).step.expect("a step").0
        };
        assert!((step(&timeline) - 11e-6).abs() < 1e-12);
        timeline.ranks[0].spans.push(named(backward.begin_ns + 100, EXCHANGE_OF_CALLER));
        assert!((step(&timeline) - 10.5e-6).abs() < 1e-12);
    }

    #[test]
    fn ranks_with_different_work_use_median_rate() {
        let mut timeline = timeline();
        // Four times the work takes twice the time.
        for span in &mut timeline.ranks[1].spans {
            if let Some(pass) = &mut span.layer {
                pass.multiply_adds *= 4;
                span.length_ns *= 2;
            }
        }
        let forward = LayerProfile::from_traces(&timeline.ranks).layers[0].forward;
        // 1000 in 3 us and 4000 in 6 us: one third and two thirds of 1e9 per second.
        assert!((forward.time.0 - 4.5e-6).abs() < 1e-12);
        assert_eq!((forward.multiply_adds, forward.bytes.0), (2250, 64));
    }
}
