//! What a host and its GPUs were like while the iterations ran: readings in the order of time, about one a second, each with
//! the iteration that was under way. Facts alone: [`crate::validity`] judges them, readers draw them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Seconds;
use crate::keyword_enum;

/// A longer run has readings that are further apart.
pub const MOST_READINGS: usize = 512;

keyword_enum!(
    /// What readings are of, each in one unit.
    Quantity {
        /// Of cores, the mean of some, or of a GPU's SMs; MHz.
        Clock = "clock",
        /// Of a GPU's memory; MHz.
        MemoryClock = "memory-clock",
        /// Of the hottest sensor of a chip; degrees Celsius.
        Temperature = "temperature",
        /// Mean since the reading before; W.
        Power = "power",
        /// Why a GPU's clock was held down; NVML's bits.
        ThrottleReasons = "throttle-reasons",
        /// Share of the time in which cores or SMs had work; 0 to 1.
        Utilization = "utilization",
        /// In use; bytes.
        Memory = "memory",
        /// Share of the time in which some process waited for cores; 0 to 1.
        CpuPressure = "cpu-pressure",
        /// The same for memory.
        MemoryPressure = "memory-pressure",
        /// The same for disks.
        IoPressure = "io-pressure",
        /// By a network card, an NVLink or a PCIe slot; bytes a second.
        Sent = "sent",
        /// The same.
        Received = "received",
        /// TCP segments that the host sent; a second.
        Segments = "segments",
        /// TCP segments that it sent again; a second.
        Retransmissions = "retransmissions",
        /// Errors of a GPU's memory that were corrected; a second.
        CorrectedErrors = "corrected-errors",
        /// Errors of a GPU's memory that were not; a second.
        UncorrectedErrors = "uncorrected-errors",
    }
);

/// What NVML's bits of [`Quantity::ThrottleReasons`] mean (nvml.h, nvmlClocksThrottleReasons); idling and clocks that somebody
/// chose are no trouble.
const REASONS: [(u64, &str); 7] = [
    (0x2, "clocks as set"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "heat"),
    (0x40, "heat, by hardware"),
    (0x80, "power brake"),
];

/// In words, without idling.
pub fn throttle_reasons(bits: u64) -> Vec<&'static str> {
    REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| *text).collect()
}

/// Of one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Telemetry {
    /// When each reading was taken, since the first one, which is right before the first iteration.
    pub at: Vec<Seconds>,
    /// The iteration that the host's first rank was in, from 1; 0 before the first.
    pub iteration: Vec<u32>,
    /// What was read.
    pub series: Vec<Series>,
    /// Between the first and the last reading, of everything whose power is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<Energy>,
    /// What cannot be read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Core time that the readings took.
    pub processor_time: Seconds,
}

/// One quantity of one thing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// What is read, and its unit.
    pub quantity: Quantity,
    /// Of what: `cores`, `GPU 3`, `package-0`, `eth0`, `GPU 3 NVLink`.
    pub of: String,
    /// In the order of the readings; `null` where one could not be taken, and where a rate has no reading before it.
    pub values: Vec<Option<f64>>,
}

/// What one part of a host took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Energy {
    /// `package-0`, `package-0 dram`, `GPU 3`.
    pub of: String,
    /// Joules.
    pub joules: f64,
}

impl Series {
    /// Whether it is of a GPU, or of a GPU's links.
    pub fn is_of_gpu(&self) -> bool {
        self.of.starts_with("GPU ")
    }
}

impl Telemetry {
    /// Readings whose time since the reading before is in iterations after the first `warmup`; all but the first one where
    /// none is.
    pub fn counted(&self, warmup: u32) -> Vec<usize> {
        let all = 1..self.at.len();
        let counted: Vec<usize> = all.clone().filter(|index| self.iteration[index - 1] > warmup).collect();
        if counted.is_empty() { all.collect() } else { counted }
    }

    /// Of one quantity.
    pub fn of(&self, quantity: Quantity) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.quantity == quantity)
    }

    /// Mean over the time of the counted readings of all that is meant and read of a quantity that adds up, in its unit. `None`
    /// where nothing is.
    ///
    /// A GPU that takes 400 W for 1 s and 300 W for 3 s, and a package that takes 100 W, take 425 W.
    pub fn mean_sum(&self, quantity: Quantity, warmup: u32, is_meant: impl Fn(&Series) -> bool) -> Option<f64> {
        let counted = self.counted(warmup);
        let mean = |series: &Series| {
            let each = counted.iter().filter_map(|index| {
                let time = self.at[*index].0 - self.at[index - 1].0;
                Some((series.values.get(*index).copied().flatten()? * time, time))
            });
            let (sum, time) = each.fold((0.0, 0.0), |(sum, all), (value, time)| (sum + value, all + time));
            (time > 0.0).then(|| sum / time)
        };
        let meant = self.of(quantity).filter(|series| is_meant(series));
        let means: Option<Vec<f64>> = meant.map(mean).collect();
        means.filter(|means| !means.is_empty()).map(|means| means.iter().sum())
    }

    /// Joins each two readings after the first to one: what is read of a longer run takes no more room.
    pub fn halve(&mut self) {
        let last = |index: usize| index.is_multiple_of(2);
        let keep = |index: &usize| last(*index) || index + 1 == self.at.len();
        let kept: Vec<usize> = (0..self.at.len()).filter(keep).collect();
        let times: Vec<f64> = self.at.iter().map(|at| at.0).collect();
        for series in &mut self.series {
            let joined = |index: &usize| match *index {
                0 => series.values[0],
                // The last one of an even number has nothing before it to be joined with.
                index if !last(index) => series.values[index],
                index => joined(series.quantity, [index - 1, index], &series.values, &times),
            };
            series.values = kept.iter().map(joined).collect();
        }
        self.at = kept.iter().map(|index| self.at[*index]).collect();
        self.iteration = kept.iter().map(|index| self.iteration[*index]).collect();
    }
}

/// Two neighbours: their mean by time, of bits those of either.
fn joined(quantity: Quantity, pair: [usize; 2], values: &[Option<f64>], times: &[f64]) -> Option<f64> {
    let [one, other] = pair.map(|index| values[index]);
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    if quantity == Quantity::ThrottleReasons {
        return Some((one as u64 | other as u64) as f64);
    }
    let [first, second] = pair.map(|index| times[index] - times[index - 1]);
    let all = first + second;
    Some(if all > 0.0 { (one * first + other * second) / all } else { other })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry(power: &[(&str, &[f64])]) -> Telemetry {
        let series = |(of, values): &(&str, &[f64])| Series {
            quantity: Quantity::Power,
            of: (*of).to_owned(),
            values: [None].into_iter().chain(values.iter().copied().map(Some)).collect(),
        };
        Telemetry {
            at: [0.0, 1.0, 4.0, 5.0].map(Seconds).to_vec(),
            iteration: vec![0, 3, 8, 10],
            series: power.iter().map(series).collect(),
            ..Telemetry::default()
        }
    }

    #[test]
    fn power_is_the_mean_over_time_of_what_is_behind_the_warm_up() {
        let read = telemetry(&[("GPU 0", &[400.0, 300.0, 700.0]), ("package-0", &[100.0; 3])]);
        assert_eq!(read.counted(20), [1, 2, 3]);
        assert_eq!(read.counted(2), [2, 3]);
        assert_eq!(read.mean_sum(Quantity::Power, 2, |_| true), Some((3.0 * 300.0 + 700.0) / 4.0 + 100.0));
        assert_eq!(read.mean_sum(Quantity::Power, 20, |_| true), Some((400.0 + 3.0 * 300.0 + 700.0) / 5.0 + 100.0));
        assert_eq!(read.mean_sum(Quantity::Clock, 2, |_| true), None);
        // What one part never says, the sum does not know.
        let mut partly = read;
        partly.series[0].values = vec![None; 4];
        assert_eq!(partly.mean_sum(Quantity::Power, 2, |_| true), None);
        assert_eq!(Telemetry::default().mean_sum(Quantity::Power, 0, |_| true), None);
    }

    #[test]
    fn fewer_readings_have_the_same_mean() {
        let mut read = telemetry(&[("GPU 0", &[400.0, 300.0, 700.0])]);
        let before = read.mean_sum(Quantity::Power, 20, |_| true);
        read.halve();
        assert_eq!((read.at.len(), read.iteration.clone()), (3, vec![0, 8, 10]));
        assert_eq!(read.series[0].values, [None, Some(325.0), Some(700.0)]);
        assert_eq!(read.mean_sum(Quantity::Power, 20, |_| true), before);
        read.series[0] = Series {
            quantity: Quantity::ThrottleReasons,
            of: "GPU 0".to_owned(),
            values: vec![Some(1.0), Some(4.0), Some(2.0)],
        };
        read.halve();
        assert_eq!(read.series[0].values, [Some(1.0), Some(6.0)]);
    }
}
