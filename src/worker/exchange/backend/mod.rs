//! The engines that sum gradients over the ranks, behind one trait. Not for what is summed, or when.

mod mpi;
mod nccl;
pub mod nccl_log;
mod none;
mod shared_memory;

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ringmark_record::config::{CollectiveChoice, ExchangeConfig};
use tch::Device;

use crate::exchange::memory::{Memory, Shape};
use crate::ffi::nccl::Nccl;
use crate::job::world::World;

/// An engine that sums stretches of its memory over all ranks.
pub trait Collective: Send {
    /// As in the record.
    fn name(&self) -> &'static str;

    /// What is summed, and where the sums go.
    fn memory(&mut self) -> &mut Memory;

    /// Starts the sum of these elements over all ranks. Every rank starts the same stretches in the same order, none twice
    /// before [`finish`](Collective::finish), and leaves them alone until then. An engine without asynchronous progress ends it here.
    fn start(&mut self, elements: Range<usize>) -> Result<()>;

    /// Orders every started sum before whatever the caller does next: on the CPU they are done when this returns, on
    /// CUDA the caller's stream waits for them and the host does not.
    fn finish(&mut self) -> Result<()>;

    /// Looks for errors of sums that are under way, without waiting; how many sums are done since the start, for an
    /// engine that goes on beside its caller.
    fn check(&mut self) -> Result<usize> {
        Ok(0)
    }

    /// Whether this engine sums by MPI, in pieces.
    fn calls_mpi(&self) -> bool {
        false
    }

    /// Sets the longest stretch that one MPI call sums, in kB; 0 is no limit.
    fn set_piece(&mut self, _kilobytes: u32) {}
}

/// The engine that `config` asks for on `device`, with memory of `shape`; `nccl` is there where CUDA is. Called by all
/// ranks together.
pub fn new(
    config: &ExchangeConfig,
    shape: Shape,
    world: &World,
    device: Device,
    nccl: Option<&Arc<Nccl>>,
) -> Result<Box<dyn Collective>> {
    if device == Device::Cpu {
        // One rank's allocation may succeed and be the end of another, later, at its first touch.
        shape.check_fits(world)?;
        world.barrier();
    }
    let private = || Memory::private(shape, device);
    match (config.collective, device) {
        (CollectiveChoice::Auto, _) if world.ranks() == 1 => Ok(Box::new(none::Solo::new("solo", private()?))),
        (CollectiveChoice::None, _) => Ok(Box::new(none::Solo::new("none", private()?))),
        (CollectiveChoice::Auto | CollectiveChoice::Nccl, Device::Cuda(index)) => {
            let nccl = nccl.context("NCCL is not loaded")?;
            Ok(Box::new(nccl::NcclRing::new(nccl.clone(), world, index, private()?)?))
        }
        (CollectiveChoice::Nccl, _) => {
            bail!("--collective nccl needs a GPU, this rank is on the CPU: choose shared-memory, mpi or auto")
        }
        (CollectiveChoice::Auto | CollectiveChoice::SharedMemory, Device::Cpu) => {
            Ok(Box::new(shared_memory::SharedMemory::new(config, shape, world)?))
        }
        (CollectiveChoice::SharedMemory, _) => {
            bail!("--collective shared-memory sums host memory, this rank is on a GPU: choose nccl or auto")
        }
        _ => Ok(Box::new(mpi::Mpi::new(config.piece_kb, private()?)?)),
    }
}
