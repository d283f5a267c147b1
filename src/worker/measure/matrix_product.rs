//! The rate of plain matrix products: what the device can do at most in the precision of the step, and so what a network's
//! rate is a share of. Not for what libraries reach with convolutions.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringmark_core::dimension::{Dtype, Seconds, TeraflopsPerSecond};
use tch::{Device, Kind, Tensor};

use crate::ffi::memory::element::Element;
use crate::job::world::World;
use crate::measure::mark::Mark;

/// Rows and columns of the first matrices; they double while a product takes no longer than [`LONG_ENOUGH`].
const FIRST: i64 = 256;

/// Of the last: three of them in fp32 take 800 MB.
const LAST: i64 = 8192;

/// Seconds of a product whose time is known well.
const LONG_ENOUGH: f64 = 5e-3;

/// Products that are timed at least, however long the first of them takes to choose and load its kernel.
const FEWEST: u32 = 3;

/// Wall time that is spent at most, but for the last product.
const BUDGET: Duration = Duration::from_millis(200);

/// The highest rate of square products `A B` on every rank, `2 n^3` floating-point operations each, all ranks at once; empty
/// where a rank has no memory for them. All ranks call it together, when nothing else is under way. Beyond the [`FEWEST`] it
/// takes no longer than `run`, the time of what they are held against.
pub fn rates(world: &World, device: Device, dtype: Dtype, run: Seconds) -> Vec<TeraflopsPerSecond> {
    world.barrier();
    let budget = BUDGET.min(Duration::try_from_secs_f64(run.0).unwrap_or(BUDGET));
    let own = rate(device, dtype, budget).unwrap_or(f64::NAN);
    let all = world.gather(&[own]).concat();
    let is_known = all.iter().all(|rate| rate.is_finite());
    if is_known { all.into_iter().map(TeraflopsPerSecond).collect() } else { Vec::new() }
}

/// In 1e12 operations a second.
fn rate(device: Device, dtype: Dtype, budget: Duration) -> Result<f64> {
    let kind = Element::from(dtype).kind();
    let _no_gradient = tch::no_grad_guard();
    // Random: constant numbers cost a GPU less power, and it would run faster than with a network's.
    let random = |size| Tensor::f_rand([size, size], (Kind::Float, device))?.f_to_kind(kind);
    let seconds_of = |matrix: &Tensor| -> Result<f64> {
        let start = Mark::set(device)?;
        let _ = matrix.f_matmul(matrix)?;
        let end = Mark::set(device)?;
        end.wait(|| Ok(()))?;
        end.seconds_since(&start)
    };
    let (begun, mut size, mut best, mut timed) = (Instant::now(), FIRST, 0.0_f64, 0);
    // Once before it counts: the first product of a size chooses and loads its kernel.
    let warm = |size| -> Result<Tensor> {
        let matrix = random(size)?;
        seconds_of(&matrix)?;
        Ok(matrix)
    };
    let mut matrix = warm(size)?;
    loop {
        let wall = Instant::now();
        let seconds = seconds_of(&matrix)?;
        best = best.max(2.0 * (size as f64).powi(3) / seconds / 1e12);
        timed += 1;
        if begun.elapsed() >= budget && timed >= FEWEST {
            return Ok(best);
        }
        // Eight times the operations of this one, twice.
        let has_time = begun.elapsed() + 16 * wall.elapsed() < budget;
        if seconds < LONG_ENOUGH && size < LAST && has_time {
            size *= 2;
            matrix = warm(size)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    #[test]
    fn a_processor_has_a_rate() {
        let _generator = seeded(1);
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            for budget in [Duration::ZERO, BUDGET] {
                let rate = rate(Device::Cpu, dtype, budget).expect("memory for a few matrices");
                // One thread of anything that runs libtorch.
                assert!((1e-4..10.0).contains(&rate), "{dtype}: {rate} TFLOP/s");
            }
        }
    }
}
