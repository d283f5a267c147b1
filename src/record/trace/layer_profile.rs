//! Time by layer: what a layer of the network took in the traced iterations, and what share of the device's rate it reached.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::units::{Bytes, Seconds, TeraflopsPerSecond};
use crate::options::keyword_enum::KeywordEnum;
use crate::stats::summary;
use crate::trace::span::{Direction, Lane, LayerKind, LayerPass, RankTrace, Span};

/// A way through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PassTime {
    /// Median over ranks and traced iterations.
    pub time: Seconds,
    /// Multiplications with their additions, of a rank.
    pub multiply_adds: u64,
    /// Read and written at least, of a rank.
    pub bytes: Bytes,
}

impl PassTime {
    fn and(self, other: PassTime) -> PassTime {
        PassTime {
            time: Seconds(self.time.0 + other.time.0),
            multiply_adds: self.multiply_adds + other.multiply_adds,
            bytes: Bytes(self.bytes.0 + other.bytes.0),
        }
    }

    /// Two operations a multiplication with its addition; `None` of what multiplies nothing.
    fn rate(self) -> Option<TeraflopsPerSecond> {
        let is_rate = self.multiply_adds > 0 && self.time.0 > 0.0;
        is_rate.then(|| TeraflopsPerSecond(2.0 * self.multiply_adds as f64 / self.time.0 / 1e12))
    }
}

/// A layer, or all layers of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerTime {
    /// As its tensors are called, or what it does where it has none.
    pub name: String,
    /// What it does.
    pub kind: LayerKind,
    /// From the images.
    pub forward: PassTime,
    /// From the loss; all 0 of inference.
    pub backward: PassTime,
}

impl LayerTime {
    fn both(&self) -> PassTime {
        self.forward.and(self.backward)
    }
}

/// Time by layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LayerProfile {
    /// Ranks times iterations that the medians are of.
    pub passes: u32,
    /// In the order of forward.
    pub layers: Vec<LayerTime>,
    /// Forward and backward of the step, of which the layers are parts; `None` of inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Seconds>,
}

impl LayerProfile {
    /// Of what was traced.
    pub fn of(ranks: &[RankTrace]) -> LayerProfile {
        // By layer and direction: its name and work, and its time in each pass.
        type Pass<'a> = (&'a str, LayerPass, BTreeMap<(u32, u32), i64>);
        let mut passes: BTreeMap<(u32, Direction), Pass> = BTreeMap::new();
        let mut steps: BTreeMap<(u32, u32), i64> = BTreeMap::new();
        for rank in ranks {
            for Span { lane, name, iteration, length_ns, layer, .. } in &rank.spans {
                let pass = (rank.rank, *iteration);
                if let Some(layer) = layer {
                    let key = (layer.layer, layer.direction);
                    let (_, _, times) = passes.entry(key).or_insert_with(|| (name, *layer, BTreeMap::new()));
                    *times.entry(pass).or_default() += length_ns;
                } else if *lane == Lane::Step && ["forward", "backward"].contains(&name.as_str()) {
                    *steps.entry(pass).or_default() += length_ns;
                }
            }
        }
        let seconds = |times: &BTreeMap<(u32, u32), i64>| {
            let seconds: Vec<f64> = times.values().map(|time| *time as f64 / 1e9).collect();
            summary::median(&seconds).map(Seconds)
        };
        let count = passes.values().map(|(_, _, times)| times.len()).max().unwrap_or(0) as u32;
        let mut layers: BTreeMap<u32, LayerTime> = BTreeMap::new();
        for ((number, direction), (name, pass, times)) in &passes {
            let empty = || LayerTime {
                name: (*name).to_owned(),
                kind: pass.kind,
                forward: PassTime::default(),
                backward: PassTime::default(),
            };
            let layer = layers.entry(*number).or_insert_with(empty);
            let LayerPass { multiply_adds, bytes, .. } = *pass;
            let time = PassTime { time: seconds(times).unwrap_or_default(), multiply_adds, bytes };
            match direction {
                Direction::Forward => layer.forward = time,
                Direction::Backward => layer.backward = time,
            }
        }
        LayerProfile { passes: count, layers: layers.into_values().collect(), step: seconds(&steps) }
    }

    /// All layers of each kind, the one that takes longest first; named by the kind and how many they are.
    pub fn kinds(&self) -> Vec<LayerTime> {
        let mut kinds = Vec::new();
        for kind in LayerKind::ALL {
            let layers: Vec<&LayerTime> = self.layers.iter().filter(|layer| layer.kind == *kind).collect();
            let sum = |way: fn(&LayerTime) -> PassTime| {
                layers.iter().fold(PassTime::default(), |sum, layer| sum.and(way(layer)))
            };
            if !layers.is_empty() {
                let name = format!("{} x {kind}", layers.len());
                let (forward, backward) = (sum(|layer| layer.forward), sum(|layer| layer.backward));
                kinds.push(LayerTime { name, kind: *kind, forward, backward });
            }
        }
        kinds.sort_by(|one, other| other.both().time.0.total_cmp(&one.both().time.0));
        kinds
    }

    /// A table: every layer, then every kind, then what is outside of layers. `rate` is that of a plain matrix product on
    /// this device, of which each has a share.
    pub fn lines(&self, rate: Option<TeraflopsPerSecond>) -> Vec<String> {
        let whole: f64 = self.layers.iter().map(|layer| layer.both().time.0).sum();
        let whole = self.step.map_or(whole, |step| step.0);
        let width = self.layers.iter().map(|layer| layer.name.len()).chain([24]).max().unwrap_or(0);
        let row = |layer: &LayerTime| {
            let both = layer.both();
            let number =
                |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            let reached = both.rate().map(|rate| rate.0);
            let share = reached.zip(rate).map(|(reached, rate)| 100.0 * reached / rate.0);
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
                number(share, 0),
                number(gigabytes, 1),
            )
        };
        let share = rate.map_or(String::new(), |TeraflopsPerSecond(rate)| {
            format!("; % of product: of a matrix product's {rate:.3} TFLOP/s on this device")
        });
        let mut lines = vec![
            format!("time by layer, a rank: medians of {} passes{share}", self.passes),
            format!(
                "{:width$} {:>11} {:>9} {:>9} {:>6} {:>8} {:>8} {:>7} {:>7}",
                "layer", "kind", "fwd ms", "bwd ms", "%", "GMAC", "TFLOP/s", "% prod.", "GB/s"
            ),
        ];
        lines.extend(self.layers.iter().map(row));
        lines.extend(self.kinds().iter().map(row));
        if let Some(Seconds(step)) = self.step {
            let outside = step - self.layers.iter().map(|layer| layer.both().time.0).sum::<f64>();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::timeline::tests::timeline;

    #[test]
    fn a_layer_has_the_median_of_its_passes() {
        let mut timeline = timeline();
        // The second rank's takes twice as long.
        for span in timeline.ranks[1].spans.iter_mut().filter(|span| span.layer.is_some()) {
            span.length_ns *= 2;
        }
        let profile = LayerProfile::of(&timeline.ranks);
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
        assert!(lines[4].starts_with("outside of layers"), "{lines:?}");
    }
}
