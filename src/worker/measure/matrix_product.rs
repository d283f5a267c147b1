//! Rate of plain matrix products: the upper limit of the device in the precision of the step, with which a network's
//! rate is compared.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringmark_core::dimension::{Dtype, Seconds, TeraflopsPerSecond};
use tch::{Device, Kind, Tensor};

use crate::ffi::memory::element::Element;
use crate::job::world::World;
use crate::measure::mark::Mark;
use crate::measure::on_all_ranks;

/// Rows and columns of the first matrices; they double while a product takes less than [`MIN_TIME`].
const FIRST: i64 = 256;

/// Rows and columns of the last matrices: three of them in fp32 need 800 MB.
const LAST: i64 = 8192;

/// Duration in seconds from which a product is measured accurately.
const MIN_TIME: f64 = 5e-3;

/// Minimum number of timed products, even if choosing and loading their kernels takes long: on a busy machine most of
/// them are interrupted, and the fastest counts.
const MIN_ROUNDS: u32 = 8;

/// Maximum wall time, not counting the last product.
const BUDGET: Duration = Duration::from_millis(200);

/// Returns the highest rate of square products `A B` on every rank, `2 n^3` floating-point operations each, with all
/// ranks computing at once; empty if a rank has too little memory. All ranks call this together, with no other work
/// pending. Apart from [`MIN_ROUNDS`] products this takes at most `run`, the duration of the measurement that it is
/// compared with.
pub fn rates(world: &World, device: Device, dtype: Dtype, run: Seconds) -> Vec<TeraflopsPerSecond> {
    let budget = BUDGET.min(Duration::try_from_secs_f64(run.0).unwrap_or(BUDGET));
    on_all_ranks(world, || rate(device, dtype, budget)).into_iter().map(TeraflopsPerSecond).collect()
}

/// A square matrix whose product with itself is timed.
pub struct MatrixProduct {
    matrix: Tensor,
    device: Device,
}

impl MatrixProduct {
    /// Creates a random matrix of this size and computes its product once, which chooses and loads the kernel.
    fn new(size: i64, device: Device, dtype: Dtype) -> Result<MatrixProduct> {
        // Random: with constant values a GPU draws less power and runs faster than it would with a network's.
        let matrix = Tensor::f_rand([size, size], (Kind::Float, device))?.f_to_kind(Element::from(dtype).kind())?;
        let product = MatrixProduct { matrix, device };
        product.seconds()?;
        Ok(product)
    }

    /// Creates the smallest matrix whose product is measured accurately: it takes at least [`MIN_TIME`].
    pub fn measurable(device: Device, dtype: Dtype) -> Result<MatrixProduct> {
        let mut size = FIRST;
        loop {
            let product = MatrixProduct::new(size, device, dtype)?;
            if size >= LAST || product.seconds()? >= MIN_TIME {
                return Ok(product);
            }
            size *= 2;
        }
    }

    /// Computes the product; returns the seconds that it took.
    pub fn seconds(&self) -> Result<f64> {
        let _no_gradient = tch::no_grad_guard();
        let start = Mark::set(self.device)?;
        let _ = self.matrix.f_matmul(&self.matrix)?;
        let end = Mark::set(self.device)?;
        end.wait(|| Ok(()))?;
        end.seconds_since(&start)
    }
}

/// Returns the rate in TFLOP/s.
fn rate(device: Device, dtype: Dtype, budget: Duration) -> Result<f64> {
    let (begun, mut size, mut best, mut timed) = (Instant::now(), FIRST, 0.0_f64, 0);
    let mut product = MatrixProduct::new(size, device, dtype)?;
    loop {
        let wall = Instant::now();
        let seconds = product.seconds()?;
        best = best.max(2.0 * (size as f64).powi(3) / seconds / 1e12);
        timed += 1;
        if begun.elapsed() >= budget && timed >= MIN_ROUNDS {
            return Ok(best);
        }
        // The next size has eight times the operations, and runs twice.
        let has_time = begun.elapsed() + 16 * wall.elapsed() < budget;
        if seconds < MIN_TIME && size < LAST && has_time {
            size *= 2;
            product = MatrixProduct::new(size, device, dtype)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    #[test]
    fn cpu_matrix_product_has_a_rate() {
        let _generator = seeded(1);
        for dtype in [Dtype::Fp32, Dtype::Bf16] {
            for budget in [Duration::ZERO, BUDGET] {
                let rate = rate(Device::Cpu, dtype, budget).expect("memory for a few matrices");
                // Plausible range for one thread of any processor that runs libtorch.
                assert!((1e-4..10.0).contains(&rate), "{dtype}: {rate} TFLOP/s");
            }
        }
    }
}
