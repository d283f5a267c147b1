//! Warnings from readings of hosts and GPUs during the iterations: clocks that dropped, retransmitted segments, memory
//! errors.

use crate::benchmark::train::Iteration;
use crate::benchmark::warning::{Warning, WarningKind};
use crate::host::telemetry::throttle_reasons;
use crate::host::{Observed, Quantity, Series, Telemetry};
use crate::number_text::percent;
use crate::stats::summary::{mean, median};
use crate::validity::iterations::steps;
use crate::validity::subject::warning;
use crate::validity::thresholds::{CLOCK_DROP, CLOCK_DROP_SLOWDOWN, MIN_READINGS, MIN_SEGMENTS, RETRANSMITTED};

/// Consecutive readings in which a clock was low, and their iterations.
struct ClockDrop {
    readings: std::ops::RangeInclusive<usize>,
    iterations: std::ops::RangeInclusive<u32>,
    /// Clock in MHz in the other readings and in these.
    clocks: [f64; 2],
}

/// Returns the longest range in which a clock was below its usual value, the median of the upper half of the readings.
///
/// For 1980 MHz in ten readings, then 1400 in five and 1980 in five, the range is the five readings, a drop from 1980
/// to 1400.
fn clock_drop(telemetry: &Telemetry, series: &Series, warmup: u32) -> Option<ClockDrop> {
    let counted = telemetry.counted(warmup);
    let values: Vec<(usize, f64)> =
        counted.into_iter().filter_map(|index| Some((index, series.values.get(index).copied().flatten()?))).collect();
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = median(&sorted[sorted.len() / 2..])?;
    let is_low = |value: f64| value < (1.0 - CLOCK_DROP) * usual;
    let ranges = values.chunk_by(|one, other| is_low(one.1) == is_low(other.1)).filter(|range| is_low(range[0].1));
    let longest = ranges.max_by_key(|range| range.len()).filter(|range| range.len() >= MIN_READINGS)?;
    let [first, last] = [longest.first()?.0, longest.last()?.0];
    let low = mean(&longest.iter().map(|(_, value)| *value).collect::<Vec<f64>>())?;
    // A reading covers the time before it.
    let iterations = telemetry.iteration[first - 1].max(1)..=telemetry.iteration[last];
    Some(ClockDrop { readings: first..=last, iterations, clocks: [usual, low] })
}

/// Returns the hosts that have readings, with their names.
fn hosts<'a>(seen: &Observed<'a>) -> impl Iterator<Item = (&'a str, &'a Telemetry)> {
    seen.host_use.iter().filter_map(|host| Some((host.host.as_str(), host.telemetry.as_ref()?)))
}

/// Warns about clocks that dropped while the iterations became slower. A lower clock without slower iterations does not
/// affect the run.
pub(super) fn clock_drops(counted: &[Iteration], seen: &Observed) -> Vec<Warning> {
    let Some(warmup) = counted.first().map(|first| first.iteration.saturating_sub(1)) else { return Vec::new() };
    let times = steps(counted);
    let warn = |host: &str, telemetry: &Telemetry, series: &Series| {
        let ClockDrop { readings, iterations, clocks: [usual, low] } = clock_drop(telemetry, series, warmup)?;
        let split = |is_inside: bool| -> Vec<f64> {
            let each = counted.iter().zip(&times);
            each.filter(|(it, _)| iterations.contains(&it.iteration) == is_inside).map(|(_, time)| *time).collect()
        };
        let factor = median(&split(true))? / median(&split(false))?;
        let of_device = |quantity: Quantity| telemetry.series_of(quantity).find(|other| other.of == series.of);
        let highest = |quantity: Quantity| {
            let values = of_device(quantity)?.values.get(readings.clone())?.iter().flatten();
            values.copied().max_by(f64::total_cmp)
        };
        let reasons = of_device(Quantity::ThrottleReasons).and_then(|reasons| reasons.values.get(readings.clone()));
        let reasons = reasons.map_or(0, |values| values.iter().flatten().fold(0, |all, bits| all | *bits as u64));
        let heat = highest(Quantity::Temperature).map(|degrees| format!("{degrees:.0} degrees"));
        let why = throttle_reasons(reasons).into_iter().map(str::to_owned).chain(heat).collect::<Vec<_>>().join(", ");
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        let about = format!("{} of host {host}", series.of);
        let text = format!(
            "the clock of {about} fell from {usual:.0} to {low:.0} MHz in iterations {} to {}{why}, which took \
             {factor:.2} times as long as the others: check its cooling, power supply and power limit, and repeat the \
             run",
            iterations.start(),
            iterations.end()
        );
        (factor >= 1.0 + CLOCK_DROP_SLOWDOWN).then(|| warning(WarningKind::Clock, about, text))
    };
    hosts(seen)
        .flat_map(|(host, read)| read.series_of(Quantity::Clock).filter_map(move |series| warn(host, read, series)))
        .collect()
}

/// Warns about hosts that lose packets.
pub(super) fn retransmissions(seen: &Observed) -> Vec<Warning> {
    let warn = |(host, telemetry): (&str, &Telemetry)| {
        let rate = |quantity: Quantity| telemetry.mean_sum(quantity, 0, |_| true);
        let (sent, again) = (rate(Quantity::Segments)?, rate(Quantity::Retransmissions)?);
        let text = format!(
            "host {host} retransmitted {} of its TCP segments ({again:.0} per second); its network loses packets: check cables, counters of card and switch (ethtool -S) and shared links",
            percent(again / sent)
        );
        let is_lossy = sent >= MIN_SEGMENTS && again >= RETRANSMITTED * sent;
        is_lossy.then(|| warning(WarningKind::Network, format!("host {host}"), text))
    };
    hosts(seen).filter_map(warn).collect()
}

pub(super) fn memory_errors(seen: &Observed) -> Vec<Warning> {
    let warn = |host: &str, series: &Series| {
        let about = format!("{} of host {host}", series.of);
        let text = format!(
            "the memory of {about} had uncorrected errors, so its results cannot be trusted: check nvidia-smi -q -d \
             ECC and Xid in dmesg, and exclude it"
        );
        let has_errors = series.values.iter().flatten().any(|rate| *rate > 0.0);
        has_errors.then(|| warning(WarningKind::MemoryErrors, about, text))
    };
    hosts(seen)
        .flat_map(|(host, read)| {
            read.series_of(Quantity::UncorrectedErrors).filter_map(move |series| warn(host, series))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::{Phases, Seconds};
    use crate::host::resource_use::HostUse;

    /// Returns a host with a reading every two iterations.
    fn host(series: &[(Quantity, &str, &[f64])]) -> HostUse {
        let length = series[0].2.len();
        let series = series.iter().map(|(quantity, of, values)| Series {
            quantity: *quantity,
            of: (*of).to_owned(),
            values: values.iter().copied().map(Some).collect(),
        });
        let telemetry = Telemetry {
            at: (0..length).map(|index| Seconds(index as f64)).collect(),
            iteration: (0..length).map(|index| 2 * index as u32).collect(),
            series: series.collect(),
            ..Telemetry::default()
        };
        HostUse { host: "b".to_owned(), telemetry: Some(telemetry), ..HostUse::default() }
    }

    fn seen(host_use: &[HostUse]) -> Observed<'_> {
        Observed::new(&[], host_use, &[], 40, None)
    }

    /// Returns iterations from number 11 on, with longer steps in those that are slow.
    fn iterations(is_slow: impl Fn(u32) -> bool) -> Vec<Iteration> {
        let iteration = |iteration: u32| Iteration {
            iteration,
            step: vec![Seconds(if is_slow(iteration) { 0.13 } else { 0.1 })],
            phases: Phases::from_fn(|_| vec![Seconds(0.0)]),
            before_allreduce: vec![Seconds(0.0)],
            loss: vec![1.0],
            loss_scale: 1.0,
            skipped: false,
        };
        (11..=40).map(iteration).collect()
    }

    #[test]
    fn fallen_clock_names_delayed_iterations() {
        let clock: Vec<f64> = (0..=20).map(|index| if (13..=16).contains(&index) { 1400.0 } else { 1980.0 }).collect();
        let reasons: Vec<f64> = (0..=20).map(|index| if index == 14 { 36.0 } else { 0.0 }).collect();
        let heat = vec![83.0; 21];
        let all = [
            (Quantity::Clock, "GPU 3", clock.as_slice()),
            (Quantity::ThrottleReasons, "GPU 3", reasons.as_slice()),
            (Quantity::Temperature, "GPU 3", heat.as_slice()),
        ];
        let hosts = [host(&all)];
        let found = clock_drops(&iterations(|iteration| (25..=32).contains(&iteration)), &seen(&hosts));
        let [warning] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((warning.kind, warning.about.as_str()), (WarningKind::Clock, "GPU 3 of host b"));
        let text = "the clock of GPU 3 of host b fell from 1980 to 1400 MHz in iterations 24 to 32 (power cap, heat, \
                    83 degrees), which took 1.30 times as long as the others: check";
        assert!(warning.text.starts_with(text), "{}", warning.text);
        // No iteration was slower, or the clock was low at other times, mainly in warm-up.
        assert_eq!(clock_drops(&iterations(|_| false), &seen(&hosts)), []);
        assert_eq!(clock_drops(&iterations(|_| true), &seen(&hosts)), []);
        let early: Vec<f64> = (0..=20).map(|index| if index < 5 { 1400.0 } else { 1980.0 }).collect();
        let hosts = [host(&[(Quantity::Clock, "GPU 3", &early)])];
        assert_eq!(clock_drops(&iterations(|iteration| iteration < 20), &seen(&hosts)), []);
    }

    #[test]
    fn packet_loss_gets_a_warning() {
        let of = |sent: f64, again: f64| {
            let (sent, again) = (vec![sent; 5], vec![again; 5]);
            let host = host(&[(Quantity::Segments, "TCP", &sent), (Quantity::Retransmissions, "TCP", &again)]);
            retransmissions(&seen(&[host])).into_iter().map(|warning| warning.text).collect::<Vec<_>>()
        };
        let found = of(20_000.0, 400.0);
        assert!(
            found.len() == 1
                && found[0].starts_with("host b retransmitted 2.0 % of its TCP segments (400 per second); "),
            "{found:?}"
        );
        assert!(of(20_000.0, 10.0).is_empty() && of(20.0, 10.0).is_empty());
    }

    #[test]
    fn memory_errors_get_a_warning() {
        let of = |rates: &[f64]| memory_errors(&seen(&[host(&[(Quantity::UncorrectedErrors, "GPU 0", rates)])])).len();
        assert_eq!([of(&[0.0, 0.0]), of(&[0.0, 1.0])], [0, 1]);
    }
}
