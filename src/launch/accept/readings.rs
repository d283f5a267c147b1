//! Readings of a job from its record.

use std::collections::BTreeSet;

use ringmark_core::accept::{HostState, JobFingerprints, Metric, Reading};
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MessageResult};
use ringmark_core::benchmark::input::{InputRecord, PageCache};
use ringmark_core::benchmark::train::{Fingerprints, RunRecord};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::telemetry::{Quantity, Series, Telemetry};
use ringmark_core::stats::busbw::{Bus, busbw};
use ringmark_core::stats::summary::{mean, median, percentile};

/// Returns the speed of each rank's own computation, of the whole job if it has several ranks, and each rank's rates of
/// matrix products and memory copies. Medians over the iterations leave out single disturbances.
pub fn training(record: &RunRecord) -> Vec<Reading> {
    let config = &record.header.config;
    let counted = record.iterations.get(config.warmup as usize..).unwrap_or_default();
    let units = config.batch().units_per_sample();
    let samples = record.header.samples();
    let speed =
        |samples: f64, times: &[f64]| median(times).filter(|time| *time > 0.0).map(|time| samples * units / time);
    let of_rank = |(rank, samples): (usize, &u32)| {
        let times: Vec<f64> = counted.iter().filter_map(|one| Some(one.before_allreduce.get(rank)?.0)).collect();
        Some(Reading {
            metric: Metric::TrainingSpeed,
            value: speed(f64::from(*samples), &times)?,
            rank: Some(rank as u32),
        })
    };
    let mut readings: Vec<Reading> = samples.iter().enumerate().filter_map(of_rank).collect();
    if samples.len() > 1 {
        let slowest = |times: &Vec<Seconds>| times.iter().map(|time| time.0).fold(0.0, f64::max);
        let times: Vec<f64> = counted.iter().map(|one| slowest(&one.step)).collect();
        let all = samples.iter().map(|samples| f64::from(*samples)).sum();
        let value = speed(all, &times);
        readings.extend(value.map(|value| Reading { metric: Metric::TrainingSpeed, value, rank: None }));
    }
    let rates = record.end.iter().flat_map(|end| &end.matrix_product).zip(0..);
    readings.extend(rates.map(|(rate, rank)| Reading { metric: Metric::MatrixRate, value: rate.0, rank: Some(rank) }));
    let rates = record.end.iter().flat_map(|end| &end.memory_copy).zip(0..);
    readings.extend(rates.map(|(rate, rank)| Reading { metric: Metric::MemoryRate, value: rate.0, rank: Some(rank) }));
    readings
}

/// Returns the fingerprints of a job. Differences between ranks with different devices or threads are left out: these
/// add in another order.
pub fn fingerprints(record: &RunRecord) -> Option<JobFingerprints> {
    let environment = &record.header.environment;
    let ranks = &record.header.ranks;
    let devices: BTreeSet<String> =
        ranks.iter().map(|rank| format!("{}, {} threads", rank.device_name, rank.threads)).collect();
    let text = |version: &Option<String>| version.clone().unwrap_or_else(|| "none".to_owned());
    let values = record.end.as_ref()?.fingerprints.clone()?;
    let difference = values.difference.filter(|_| devices.len() == 1);
    let software = [
        format!("ringmark {}, libtorch {}", environment.ringmark_version, environment.libtorch_version),
        format!("CUDA {}, driver {}", text(&environment.cuda_version), text(&environment.driver_version)),
        format!("{} ranks", ranks.len()),
    ];
    let platform: Vec<String> = software.into_iter().chain(devices).collect();
    Some(JobFingerprints { platform: platform.join("; "), values: Fingerprints { difference, ..values } })
}

/// Returns the state of the host of a job on one host, after its warm-up: of the GPUs, or of the processors without GPUs.
pub fn host_state(record: &RunRecord) -> Option<HostState> {
    let [host] = &record.end.as_ref()?.host_use[..] else { return None };
    host.telemetry.as_ref().map(|telemetry| state_after(telemetry, record.header.config.warmup))
}

fn state_after(telemetry: &Telemetry, warmup: u32) -> HostState {
    let counted = &telemetry.counted(warmup);
    let values = |quantity: Quantity| {
        let has_gpus = telemetry.series_of(quantity).any(Series::is_of_gpu);
        let series = telemetry.series_of(quantity).filter(move |series| series.is_of_gpu() == has_gpus);
        series.flat_map(move |series| {
            counted.iter().filter_map(move |index| series.values.get(*index).copied().flatten())
        })
    };
    let errors = [Quantity::CorrectedErrors, Quantity::UncorrectedErrors].map(|quantity| telemetry.events(quantity));
    HostState {
        clock: mean(&values(Quantity::Clock).collect::<Vec<f64>>()),
        temperature: values(Quantity::Temperature).reduce(f64::max),
        memory_errors: errors
            .into_iter()
            .flatten()
            .reduce(|one, other| one + other)
            .map(|errors| errors.round() as u64),
    }
}

/// Returns the images/s of one host from memory and from the disk. A pass that did not read from where it should has no
/// reading: other programs may keep the files in memory.
pub fn input(record: &InputRecord) -> Vec<Reading> {
    let speed = |(metric, cache)| {
        let value = record.ceiling(0, cache)?.speed.0;
        Some(Reading { metric, value, rank: None })
    };
    Metric::INPUTS.into_iter().zip([PageCache::Warm, PageCache::Cold]).filter_map(speed).collect()
}

/// Returns the bus bandwidth at the median time of each size, smallest size first.
pub fn exchange(record: &BandwidthRecord) -> Vec<Reading> {
    let bus = Bus::all_reduce(record.ranks.len() as u32);
    let metrics = [Metric::SmallBandwidth, Metric::MediumBandwidth, Metric::LargeBandwidth];
    let reading = |(metric, result): (Metric, &MessageResult)| {
        let timing = result.in_place.as_ref().or(result.out_of_place.as_ref())?;
        let time = percentile(&timing.pooled(), 50.0).map(Seconds)?;
        Some(Reading { metric, value: busbw(result.bytes, time, bus).0, rank: None })
    };
    metrics.into_iter().zip(&record.results).filter_map(reading).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_is_that_of_the_gpus_after_warm_up() {
        let series = |quantity, of: &str, values: [f64; 3]| Series {
            quantity,
            of: of.to_owned(),
            values: values.map(Some).to_vec(),
        };
        let mut telemetry = Telemetry {
            at: [0.0, 1.0, 3.0].map(Seconds).to_vec(),
            iteration: vec![0, 6, 9],
            series: vec![
                series(Quantity::Clock, "cores", [3000.0; 3]),
                series(Quantity::Clock, "GPU 0", [300.0, 1900.0, 1800.0]),
                series(Quantity::Clock, "GPU 1", [300.0, 1900.0, 1900.0]),
                series(Quantity::Temperature, "package-0", [90.0; 3]),
                series(Quantity::Temperature, "GPU 1", [80.0, 60.0, 70.0]),
                series(Quantity::CorrectedErrors, "GPU 0", [0.0, 0.0, 1.0]),
                series(Quantity::UncorrectedErrors, "GPU 1", [0.0, 1.0, 0.0]),
            ],
            ..Telemetry::default()
        };
        let found = state_after(&telemetry, 5);
        // Two corrected errors in the last 2 s, and one before.
        let expected = HostState { clock: Some(1850.0), temperature: Some(70.0), memory_errors: Some(3) };
        assert_eq!(found, expected);
        telemetry.series.retain(|series| !series.is_of_gpu());
        let without = HostState { clock: Some(3000.0), temperature: Some(90.0), memory_errors: None };
        assert_eq!(state_after(&telemetry, 5), without);
        assert_eq!(state_after(&Telemetry::default(), 5), HostState::default());
    }
}
