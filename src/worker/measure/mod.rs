//! Time measurements on host and device.

pub mod fingerprint;
pub mod mark;
pub mod matrix_product;
pub mod memory_copy;
pub mod page_cache;
pub mod repeated;
pub mod step_timer;
pub mod timed;
pub mod trace;

use anyhow::Result;

use crate::job::world::World;

/// Returns the rates that `measure` returns on every rank, with all ranks measuring at once; empty if it fails on one.
/// All ranks call this together.
fn on_all_ranks(world: &World, measure: impl FnOnce() -> Result<f64>) -> Vec<f64> {
    world.barrier();
    let all = world.gather(&[measure().unwrap_or(f64::NAN)]).concat();
    if all.iter().all(|rate| rate.is_finite()) { all } else { Vec::new() }
}
