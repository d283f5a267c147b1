//! Rate of a copy within the memory of the device: the upper limit of operations that compute little, such as
//! normalization and the update. It finds slow memory, which matrix products hardly use.

use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};
use ringmark_core::dimension::{GigabytesPerSecond, Seconds};
use tch::{Device, Kind, Tensor};

use crate::job::world::World;
use crate::measure::mark::Mark;
use crate::measure::on_all_ranks;

/// Elements of 4 bytes of the first buffers; they double while a copy takes less than [`MIN_TIME`].
const FIRST: i64 = 1 << 20;

/// Elements of the last buffers: two of 512 MiB, more than the caches of any GPU.
const LAST: i64 = 128 << 20;

/// Duration in seconds of a copy from which the buffers of all ranks exceed the caches of a host.
const MIN_TIME: f64 = 10e-3;

/// Number of copies that decide on the size.
const TRIALS: u32 = 4;

/// Number of further copies of the last size; the fastest counts.
const ROUNDS: u32 = 8;

/// Maximum wall time until the size of the buffers is known.
const BUDGET: Duration = Duration::from_secs(1);

/// Returns the rate of a copy on every rank, bytes read and written, with all ranks copying at once; empty if a rank has
/// too little memory, or if this takes longer than `run`, the duration of the measurement before it. All ranks call this
/// together, with no other work pending.
pub fn rates(world: &World, device: Device, run: Seconds) -> Vec<GigabytesPerSecond> {
    let budget = BUDGET.min(Duration::try_from_secs_f64(run.0).unwrap_or(BUDGET));
    on_all_ranks(world, || rate(device, budget)).into_iter().map(GigabytesPerSecond).collect()
}

/// Returns the rate in GB/s.
fn rate(device: Device, budget: Duration) -> Result<f64> {
    let _no_gradient = tch::no_grad_guard();
    let (start, mut size) = (Instant::now(), FIRST);
    loop {
        let buffer = || Tensor::f_ones([size], (Kind::Float, device));
        let (source, mut target) = (buffer()?, buffer()?);
        let mut copy = || -> Result<f64> {
            let start = Mark::set(device)?;
            target.f_copy_(&source)?;
            let end = Mark::set(device)?;
            end.wait(|| Ok(()))?;
            end.seconds_since(&start)
        };
        let mut fastest_of =
            |rounds: u32| (0..rounds).try_fold(f64::INFINITY, |best, _| Ok::<f64, Error>(best.min(copy()?)));
        // The first copy is a warm-up, and on a busy machine single ones are interrupted.
        let best = fastest_of(TRIALS)?;
        ensure!(start.elapsed() < budget, "no time");
        if best < MIN_TIME && size < LAST {
            size *= 2;
            continue;
        }
        return Ok(2.0 * 4.0 * size as f64 / best.min(fastest_of(ROUNDS)?) / 1e9);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    #[test]
    fn cpu_copy_has_a_rate() {
        let _generator = seeded(1);
        let rate_within = |budget| rate(Device::Cpu, budget);
        let rate = rate_within(Duration::from_secs(60)).expect("memory for two buffers");
        // Plausible range for one thread of any processor.
        assert!((0.1..1000.0).contains(&rate), "{rate} GB/s");
        assert!(rate_within(Duration::ZERO).is_err());
    }
}
