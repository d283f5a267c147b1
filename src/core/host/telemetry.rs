//! Readings of a host and its GPUs during the iterations, about one per second in order of time, each with the current
//! iteration. These are raw values: [`crate::validity`] evaluates them, and reports draw them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::Seconds;
use crate::keyword_enum;

/// Maximum number of readings; in a longer run they are further apart.
pub const MAX_READINGS: usize = 512;

keyword_enum!(
    /// Measured quantity; each has one unit.
    Quantity {
        /// Clock of cores (mean of a sample) or of a GPU's SMs, in MHz.
        Clock = "clock",
        /// Memory clock of a GPU, in MHz.
        MemoryClock = "memory-clock",
        /// Temperature of the hottest sensor of a chip, in degrees Celsius.
        Temperature = "temperature",
        /// Mean power since the previous reading, in W.
        Power = "power",
        /// Reasons for a reduced GPU clock, as NVML's bits.
        ThrottleReasons = "throttle-reasons",
        /// Share of the time in which cores or SMs were busy, 0 to 1.
        Utilization = "utilization",
        /// Memory in use, in bytes.
        Memory = "memory",
        /// Share of the time in which some process waited for cores, 0 to 1.
        CpuPressure = "cpu-pressure",
        /// Share of the time in which some process waited for memory, 0 to 1.
        MemoryPressure = "memory-pressure",
        /// Share of the time in which some process waited for disks, 0 to 1.
        IoPressure = "io-pressure",
        /// Bytes per second sent by a network card, an NVLink or a PCIe slot.
        Sent = "sent",
        /// Bytes per second received by a network card, an NVLink or a PCIe slot.
        Received = "received",
        /// TCP segments per second that the host sent.
        Segments = "segments",
        /// TCP segments per second that the host sent again.
        Retransmissions = "retransmissions",
        /// Corrected memory errors of a GPU per second.
        CorrectedErrors = "corrected-errors",
        /// Uncorrected memory errors of a GPU per second.
        UncorrectedErrors = "uncorrected-errors",
    }
);

/// Meaning of NVML's bits in [`Quantity::ThrottleReasons`] (nvml.h, nvmlClocksThrottleReasons). Idling (0x1) is
/// omitted; neither it nor clocks set by a user (0x2) are a problem.
const REASONS: [(u64, &str); 7] = [
    (0x2, "clocks as set"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "heat"),
    (0x40, "heat, by hardware"),
    (0x80, "power brake"),
];

/// Returns the reasons as text, without idling.
pub fn throttle_reasons(bits: u64) -> Vec<&'static str> {
    REASONS.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, text)| *text).collect()
}

/// Readings of one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Telemetry {
    /// Time of each reading since the first one, which is taken right before the first iteration.
    pub at: Vec<Seconds>,
    /// Iteration of the host's first rank, from 1; 0 before the first.
    pub iteration: Vec<u32>,
    /// Readings of each quantity and component.
    pub series: Vec<Series>,
    /// Energy between the first and the last reading, for every component whose power is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy: Vec<Energy>,
    /// Quantities that cannot be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Core time spent on the readings.
    pub processor_time: Seconds,
}

/// Readings of one quantity of one component.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Quantity, which defines the unit.
    pub quantity: Quantity,
    /// Component: `cores`, `GPU 3`, `package-0`, `eth0`, `GPU 3 NVLink`.
    pub of: String,
    /// Values in the order of the readings; `null` for a reading that failed, and for a rate without a previous
    /// reading.
    pub values: Vec<Option<f64>>,
}

/// Energy used by one component of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Energy {
    /// Component: `package-0`, `package-0 dram`, `GPU 3`.
    pub of: String,
    /// Energy in joules.
    pub joules: f64,
}

impl Series {
    /// Returns true for readings of a GPU or of its links.
    pub fn is_of_gpu(&self) -> bool {
        self.of.starts_with("GPU ")
    }
}

impl Telemetry {
    /// Returns the indices of the readings whose interval since the previous reading lies in iterations after the first
    /// `warmup`; all but the first reading if there are none.
    pub fn counted(&self, warmup: u32) -> Vec<usize> {
        let all = 1..self.at.len();
        let counted: Vec<usize> = all.clone().filter(|index| self.iteration[index - 1] > warmup).collect();
        if counted.is_empty() { all.collect() } else { counted }
    }

    /// Returns the series of one quantity.
    pub fn series_of(&self, quantity: Quantity) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.quantity == quantity)
    }

    /// Returns the time-weighted means of the series that `is_selected` selects, over the counted readings, summed up. The
    /// quantity must be additive. `None` if no series is selected, or if one of them was never read.
    ///
    /// A GPU that uses 400 W for 1 s and 300 W for 3 s, and a package that uses 100 W, give 425 W.
    pub fn mean_sum(&self, quantity: Quantity, warmup: u32, is_selected: impl Fn(&Series) -> bool) -> Option<f64> {
        let counted = self.counted(warmup);
        let mean = |series: &Series| {
            let each = counted.iter().filter_map(|index| {
                let time = self.at[*index].0 - self.at[index - 1].0;
                Some((series.values.get(*index).copied().flatten()? * time, time))
            });
            let (sum, time) = each.fold((0.0, 0.0), |(sum, all), (value, time)| (sum + value, all + time));
            (time > 0.0).then(|| sum / time)
        };
        let meant = self.series_of(quantity).filter(|series| is_selected(series));
        let means: Option<Vec<f64>> = meant.map(mean).collect();
        means.filter(|means| !means.is_empty()).map(|means| means.iter().sum())
    }

    /// Returns the number of events that a rate per second stands for, over all readings and components. `None` if it was
    /// never read.
    pub fn events(&self, quantity: Quantity) -> Option<f64> {
        let events = |series: &Series| -> Option<f64> {
            let times = self.at.windows(2).map(|pair| pair[1].0 - pair[0].0);
            let events = series.values.iter().skip(1).zip(times).filter_map(|(rate, time)| Some((*rate)? * time));
            events.reduce(|one, other| one + other)
        };
        self.series_of(quantity).filter_map(events).reduce(|one, other| one + other)
    }

    /// Merges each pair of readings after the first, so that the readings of a longer run do not take more memory.
    pub fn halve(&mut self) {
        let last = |index: usize| index.is_multiple_of(2);
        let keep = |index: &usize| last(*index) || index + 1 == self.at.len();
        let kept: Vec<usize> = (0..self.at.len()).filter(keep).collect();
        let times: Vec<f64> = self.at.iter().map(|at| at.0).collect();
        for series in &mut self.series {
            let merged = |index: &usize| match *index {
                0 => series.values[0],
                // The last of an even number has no reading to be merged with.
                index if !last(index) => series.values[index],
                index => merged(series.quantity, [index - 1, index], &series.values, &times),
            };
            series.values = kept.iter().map(merged).collect();
        }
        self.at = kept.iter().map(|index| self.at[*index]).collect();
        self.iteration = kept.iter().map(|index| self.iteration[*index]).collect();
    }
}

/// Merges two adjacent readings: their mean weighted by time, or the union of bits.
fn merged(quantity: Quantity, pair: [usize; 2], values: &[Option<f64>], times: &[f64]) -> Option<f64> {
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
    fn power_is_the_time_mean_after_warm_up() {
        let read = telemetry(&[("GPU 0", &[400.0, 300.0, 700.0]), ("package-0", &[100.0; 3])]);
        assert_eq!(read.counted(20), [1, 2, 3]);
        assert_eq!(read.counted(2), [2, 3]);
        assert_eq!(read.mean_sum(Quantity::Power, 2, |_| true), Some((3.0 * 300.0 + 700.0) / 4.0 + 100.0));
        assert_eq!(read.mean_sum(Quantity::Power, 20, |_| true), Some((400.0 + 3.0 * 300.0 + 700.0) / 5.0 + 100.0));
        assert_eq!(read.mean_sum(Quantity::Clock, 2, |_| true), None);
        // The sum is unknown if one component was never read.
        let mut partly = read;
        partly.series[0].values = vec![None; 4];
        assert_eq!(partly.mean_sum(Quantity::Power, 2, |_| true), None);
        assert_eq!(Telemetry::default().mean_sum(Quantity::Power, 0, |_| true), None);
        // As a rate: 2 in 1 s, then 1 in 3 s.
        let rates = telemetry(&[("GPU 0", &[2.0, 0.0, 0.0]), ("GPU 1", &[0.0, 1.0 / 3.0, 0.0])]);
        assert_eq!((rates.events(Quantity::Power), rates.events(Quantity::Clock)), (Some(3.0), None));
    }

    #[test]
    fn halved_readings_keep_the_mean() {
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
