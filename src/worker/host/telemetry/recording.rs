//! Recorded readings, as series of equal length with a limit.

use std::collections::BTreeMap;

use ringmark_core::dimension::Seconds;
use ringmark_core::host::telemetry::MAX_READINGS;
use ringmark_core::host::{Energy, Quantity, Series, Telemetry};

use crate::host::telemetry::reading::{Reading, Value};

/// Quantity and name of the component.
type Key = (Quantity, String);

/// Series of readings, extended by one reading at a time.
#[derive(Debug, Default)]
pub struct Recording {
    /// Reasons why some quantities cannot be read.
    pub missing: Vec<String>,
    pub processor_time: Seconds,
    at: Vec<Seconds>,
    iteration: Vec<u32>,
    series: BTreeMap<Key, Vec<Option<f64>>>,
    /// Last cumulative totals and their times.
    totals: BTreeMap<Key, (f64, Seconds)>,
    energy: BTreeMap<String, f64>,
    /// Number of times that pairs of readings were merged.
    halved: u32,
}

impl Recording {
    /// Adds a reading; returns the number of intervals to wait for the next one.
    pub fn add(&mut self, at: Seconds, iteration: u32, readings: Vec<Reading>) -> u32 {
        let before = self.at.len();
        self.at.push(at);
        self.iteration.push(iteration);
        for Reading { quantity, instance, value } in readings {
            let key = (quantity, instance);
            let value = match value {
                Value::Gauge(value) => Some(value),
                Value::Counter(total) => self.rate(&key, total, at).map(|(_, rate)| rate),
                // The kernel's I/O wait times may decrease, and the total with them.
                Value::Share { part, whole } => self.rate(&key, part, Seconds(whole)).map(|(_, share)| share.min(1.0)),
                Value::Joules(total) => self.rate(&key, total, at).map(|(joules, rate)| {
                    *self.energy.entry(key.1.clone()).or_default() += joules;
                    rate
                }),
            };
            let values = self.series.entry(key).or_default();
            // Earlier readings of a new component are unknown.
            values.resize(before, None);
            values.push(value);
        }
        self.series.values_mut().for_each(|values| values.resize(before + 1, None));
        if self.at.len() > MAX_READINGS {
            let mut telemetry = self.telemetry();
            telemetry.halve();
            self.at = telemetry.at;
            self.iteration = telemetry.iteration;
            self.series =
                telemetry.series.into_iter().map(|series| ((series.quantity, series.of), series.values)).collect();
            self.halved += 1;
        }
        1 << self.halved.min(16)
    }

    /// Returns the increase since the last reading and its rate per second; `None` for the first reading and after a
    /// counter reset.
    fn rate(&mut self, key: &Key, total: f64, at: Seconds) -> Option<(f64, f64)> {
        let (last, then) = self.totals.insert(key.clone(), (total, at))?;
        let (more, time) = (total - last, at.0 - then.0);
        (more >= 0.0 && time > 0.0).then(|| (more, more / time))
    }

    /// Returns all series, except those of network cards and errors that never changed.
    pub fn telemetry(&self) -> Telemetry {
        use Quantity::{CorrectedErrors, Received, Sent, UncorrectedErrors};
        let is_shown = |quantity: Quantity, values: &[Option<f64>]| {
            let is_of_events = matches!(quantity, Sent | Received | CorrectedErrors | UncorrectedErrors);
            !is_of_events || values.iter().flatten().any(|value| *value != 0.0)
        };
        let shown = self.series.iter().filter(|((quantity, _), values)| is_shown(*quantity, values));
        let series = shown.map(|((quantity, of), values)| Series {
            quantity: *quantity,
            of: of.clone(),
            values: values.clone(),
        });
        let energy = self.energy.iter().map(|(of, joules)| Energy { of: of.clone(), joules: *joules });
        Telemetry {
            at: self.at.clone(),
            iteration: self.iteration.clone(),
            series: series.collect(),
            energy: energy.collect(),
            missing: self.missing.clone(),
            processor_time: self.processor_time,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(quantity: Quantity, instance: &str, value: Value) -> Reading {
        Reading { quantity, instance: instance.to_owned(), value }
    }

    #[test]
    fn totals_become_rates_and_late_series_start_empty() {
        let mut recording = Recording::default();
        let joules = |total| reading(Quantity::Power, "package-0", Value::Joules(total));
        let sent = |instance: &str, total| reading(Quantity::Sent, instance, Value::Counter(total));
        recording.add(Seconds(0.0), 0, vec![joules(1000.0), sent("eth0", 5.0), sent("eth1", 7.0)]);
        recording.add(Seconds(2.0), 3, vec![joules(1100.0), sent("eth0", 25.0), sent("eth1", 7.0)]);
        let clock = reading(Quantity::Clock, "cores", Value::Gauge(2000.0));
        // The energy counter starts again, as after a reload of the driver.
        recording.add(Seconds(4.0), 6, vec![joules(10.0), sent("eth0", 25.0), sent("eth1", 7.0), clock]);
        recording.add(Seconds(5.0), 9, vec![joules(60.0)]);
        let read = recording.telemetry();
        let named = |quantity: Quantity| -> Vec<(&str, Vec<Option<f64>>)> {
            read.series_of(quantity).map(|series| (series.of.as_str(), series.values.clone())).collect()
        };
        assert_eq!(named(Quantity::Power), [("package-0", vec![None, Some(50.0), None, Some(50.0)])]);
        assert_eq!(named(Quantity::Sent), [("eth0", vec![None, Some(10.0), Some(0.0), None])]);
        assert_eq!(named(Quantity::Clock), [("cores", vec![None, None, Some(2000.0), None])]);
        assert_eq!(read.energy, [Energy { of: "package-0".to_owned(), joules: 150.0 }]);
        assert_eq!(read.iteration, [0, 3, 6, 9]);
    }

    #[test]
    fn shares_are_at_most_one() {
        let mut recording = Recording::default();
        // Readings with increasing delays.
        for (at, part, whole) in [(0.0, 10.0, 20.0), (0.6, 11.0, 22.0), (2.9, 13.0, 26.0), (3.0, 15.0, 27.0)] {
            let share = reading(Quantity::Utilization, "cores", Value::Share { part, whole });
            recording.add(Seconds(at), 1, vec![share]);
        }
        assert_eq!(recording.telemetry().series[0].values, [None, Some(0.5), Some(0.5), Some(1.0)]);
    }

    #[test]
    fn long_runs_are_downsampled() {
        let mut recording = Recording::default();
        let mut intervals = Vec::new();
        let mut second = 0;
        while second < 5000 {
            let watts = reading(Quantity::Power, "GPU 0", Value::Gauge(300.0));
            let wait = recording.add(Seconds(f64::from(second)), second, vec![watts]);
            intervals.push(wait);
            second += wait;
        }
        let read = recording.telemetry();
        assert!(read.at.len() <= MAX_READINGS && read.at.len() >= MAX_READINGS / 2, "{}", read.at.len());
        assert_eq!(intervals.last(), Some(&16));
        assert_eq!(read.mean_sum(Quantity::Power, 0, |_| true), Some(300.0));
        assert!(read.at.is_sorted() && read.at[0] == Seconds(0.0), "{:?}", read.at);
    }
}
