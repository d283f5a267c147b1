//! `--autotune`: a short search for bucket, tail and chunk size before the first iteration, like Horovod's. It runs
//! real steps without their update, so that training starts as it would without the search. With three or more ranks,
//! sums may round differently with other chunks.

use anyhow::Result;
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::benchmark::train::{Trial, Tuning};
use ringmark_core::dimension::Seconds;
use ringmark_core::stats::summary;

use crate::benchmark::train::step::Step;
use crate::job::world::World;

/// Bucket sizes to try, from small buckets to all gradients at once.
const BUCKETS_MB: [f64; 6] = [1.0, 4.0, 10.0, 25.0, 50.0, 200.0];

/// Lengths of one MPI call to try; 0 is a whole bucket.
const CHUNKS_KB: [u32; 4] = [250, 1000, 4000, 0];

/// Tail sizes to try: the last bucket of backward, from no separate tail to a quarter of the gradients.
const TAILS_MB: [f64; 5] = [0.0, 0.5, 1.0, 4.0, 25.0];

/// Measured steps, after one warm-up step.
const STEPS: usize = 3;

/// A smaller gain is noise, and the requested setting stays.
const NOISE: f64 = 0.01;

/// Tries bucket sizes, then tail or chunk sizes, whichever matter, with the best bucket size, and configures the
/// exchange with the best of all. `requested` is the requested configuration. All ranks call this together and
/// make the same choice.
pub fn search(requested: ExchangeConfig, world: &World, step: &mut Step) -> Result<Tuning> {
    let statistics = step.model.copy_of_statistics();
    // The first attempt warms up caches and clocks, so its times are too long.
    attempt(requested, world, step)?;
    let mut trials = vec![attempt(requested, world, step)?];
    let mut chosen = 0;
    for bucket_mb in BUCKETS_MB.into_iter().filter(|size| *size != requested.bucket_mb) {
        trials.push(attempt(ExchangeConfig { bucket_mb, ..requested }, world, step)?);
        chosen = better(&trials, chosen);
    }
    if step.exchange.reducer().sink_facts().is_asynchronous {
        let bucket_mb = trials[chosen].bucket_mb;
        for tail_mb in TAILS_MB.into_iter().filter(|size| *size != requested.tail_mb) {
            trials.push(attempt(ExchangeConfig { bucket_mb, tail_mb, ..requested }, world, step)?);
            chosen = better(&trials, chosen);
        }
    }
    if step.exchange.reducer().sink_facts().has_chunks {
        let bucket_mb = trials[chosen].bucket_mb;
        for chunk_kb in CHUNKS_KB.into_iter().filter(|size| *size != requested.chunk_kb) {
            trials.push(attempt(ExchangeConfig { bucket_mb, chunk_kb, ..requested }, world, step)?);
            chosen = better(&trials, chosen);
        }
    }
    let Trial { bucket_mb, chunk_kb, tail_mb, .. } = trials[chosen];
    step.exchange.set_sizes(&ExchangeConfig { bucket_mb, chunk_kb, tail_mb, ..requested })?;
    step.model.restore(&statistics)?;
    Ok(Tuning { trials, chosen })
}

/// Returns the index of the last trial if it is faster than the chosen one by more than noise.
fn better(trials: &[Trial], chosen: usize) -> usize {
    let last = trials.len() - 1;
    if trials[last].step.0 < trials[chosen].step.0 * (1.0 - NOISE) { last } else { chosen }
}

/// Returns the median over a few steps of the slowest rank's time.
fn attempt(sizes: ExchangeConfig, world: &World, step: &mut Step) -> Result<Trial> {
    step.exchange.set_sizes(&sizes)?;
    let mut times = Vec::new();
    for number in 0..=STEPS {
        let own = step.timed_rehearsal(world)?;
        let slowest = world.gather(&[own.0]).concat().into_iter().fold(0.0, f64::max);
        if number > 0 {
            times.push(slowest);
        }
    }
    let step = Seconds(summary::median(&times).unwrap_or_default());
    let ExchangeConfig { bucket_mb, chunk_kb, tail_mb, .. } = sizes;
    Ok(Trial { bucket_mb, chunk_kb, tail_mb, step })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faster_setting_must_exceed_noise() {
        let trial = |step| Trial { bucket_mb: 1.0, chunk_kb: 0, tail_mb: 0.0, step: Seconds(step) };
        assert_eq!(better(&[trial(1.0), trial(0.98)], 0), 1);
        assert_eq!(better(&[trial(1.0), trial(0.995)], 0), 0);
        assert_eq!(better(&[trial(1.0), trial(0.9), trial(0.95)], 1), 1);
    }
}
