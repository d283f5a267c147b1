//! Change of a host's speed during the soak: the last third of its measurements alone, compared with the first.
//!
//! ```text
//! change   = geometric mean of the last third / that of the first - 1
//! interval = of Welch's test on the logarithms, 95 %
//! defect   : change < -smallest_defect, and the interval at confidence 1 - p lies below 0
//! p        = false_alarms / 4 stages / hosts
//! ```
//!
//! The comparison with other hosts cannot find a change that is common to all of them, such as warmer air.

use std::collections::BTreeMap;

use crate::accept::fleet::{FleetHost, HostState, Measurement, Metric, Stage};
use crate::accept::verdict::Drift;
use crate::number_text::percent;
use crate::stats::comparison::{Thresholds, compare};
use crate::stats::summary::mean;

/// Returns the drift of each host with enough measurements: three in each third. `significance` is the rate of false
/// alarms of one host.
pub fn drifts(fleet: &[FleetHost], smallest_defect: f64, significance: f64, done: &[Measurement]) -> Vec<Drift> {
    let mut hosts: BTreeMap<usize, Vec<(f64, Option<HostState>)>> = BTreeMap::new();
    for done in done.iter().filter(|done| done.stage == Stage::Soak) {
        if let ([host], Some(speed)) = (&done.job.hosts[..], done.values(fleet).get(&Metric::TrainingSpeed)) {
            hosts.entry(*host).or_default().push((*speed, done.state));
        }
    }
    let drift = |(host, jobs): (usize, Vec<(f64, Option<HostState>)>)| {
        let third = jobs.len() / 3;
        let (first, last) = (&jobs[..third], &jobs[jobs.len() - third..]);
        let speeds = |jobs: &[(f64, Option<HostState>)]| jobs.iter().map(|(speed, _)| *speed).collect::<Vec<f64>>();
        let at = |significance| {
            let thresholds = Thresholds { significance, ..Thresholds::default() };
            compare(&speeds(first), &speeds(last), thresholds)
        };
        let (shown, decisive) = (at(Thresholds::default().significance)?, at(significance)?);
        let (ratio, interval) = (shown.ratio, shown.interval?);
        let change_of = |read: fn(&HostState) -> Option<f64>| {
            let typical = |jobs: &[(f64, Option<HostState>)]| {
                mean(&jobs.iter().filter_map(|(_, state)| read(state.as_ref()?)).collect::<Vec<f64>>())
            };
            Some(typical(last)? - typical(first)?)
        };
        let errors: Vec<u64> = jobs.iter().filter_map(|(_, state)| state.as_ref()?.memory_errors).collect();
        Some(Drift {
            host,
            name: fleet[host].name.clone(),
            measurements: jobs.len() as u32,
            speed: ratio - 1.0,
            low: interval.low - 1.0,
            high: interval.high - 1.0,
            clock: change_of(|state| state.clock),
            temperature: change_of(|state| state.temperature),
            memory_errors: (!errors.is_empty()).then(|| errors.iter().sum()),
            is_defect: ratio < 1.0 - smallest_defect && decisive.interval.is_some_and(|interval| interval.high < 1.0),
        })
    };
    hosts.into_iter().filter_map(drift).collect()
}

impl Drift {
    /// Describes the change: `training-speed -8.1 % (95 % interval -9.4 % .. -6.9 %) in 45 measurements; clock -120 MHz`.
    pub fn text(&self) -> String {
        let Drift { measurements, speed, low, high, clock, temperature, memory_errors, .. } = self;
        let [speed, low, high] = [speed, low, high].map(|share| percent(*share));
        let mut text = format!("training-speed {speed} (95 % interval {low} .. {high}) in {measurements} measurements");
        let clock = clock.map(|change| format!("; clock {change:+.0} MHz"));
        let temperature = temperature.map(|change| format!("; temperature {change:+.0} \u{b0}C"));
        let errors = memory_errors.filter(|errors| *errors > 0).map(|errors| format!("; {errors} memory errors"));
        text.extend([clock, temperature, errors].into_iter().flatten());
        text
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::accept::fleet::{Job, Outcome, Reading, Test};
    use crate::accept::simulation::SimulatedFleet;

    /// Returns the drift of a host whose speed falls by this share of each measurement.
    fn drift(measurements: u32, fall: f64) -> Option<Drift> {
        let fleet = SimulatedFleet::new(1, 1).hosts;
        let done = |round: u32| {
            // The repeats differ by 1 %.
            let value = 1000.0 * (1.0 - fall * f64::from(round)) * if round.is_multiple_of(2) { 1.005 } else { 0.995 };
            let reading = Reading { metric: Metric::TrainingSpeed, value, rank: Some(0) };
            let step = f64::from(round);
            let state =
                HostState { clock: Some(1980.0 - step), temperature: Some(60.0 + step), memory_errors: Some(1) };
            Measurement {
                stage: Stage::Soak,
                round,
                job: Job { test: Test::Training, hosts: vec![0] },
                outcome: Outcome::Measured(vec![reading]),
                fingerprints: None,
                time: None,
                state: Some(state),
            }
        };
        drifts(&fleet, 0.05, 1e-4, &(0..measurements).map(done).collect::<Vec<_>>()).pop()
    }

    #[test]
    fn falling_speed_is_a_defect_with_its_interval() {
        let found = drift(30, 0.004).expect("enough measurements");
        assert!(found.is_defect && found.low < found.speed && found.speed < found.high, "{found:?}");
        expect!["training-speed -8.1 % (95 % interval -9.4 % .. -6.9 %) in 30 measurements; clock -20 MHz; temperature +20 °C; 30 memory errors"]
            .assert_eq(&found.text());
        let steady = drift(30, 0.0).expect("enough measurements");
        assert!(!steady.is_defect && steady.low < 0.0 && steady.high > 0.0, "{steady:?}");
        // 4 % are less than the smallest defect, and a few measurements are not certain.
        assert!(!drift(30, 0.002).expect("enough measurements").is_defect);
        assert!(!drift(9, 0.012).expect("enough measurements").is_defect);
        assert_eq!(drift(8, 0.004), None);
    }
}
