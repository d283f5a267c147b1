//! Choice of the backend from the options and the location of the ranks.

use anyhow::{Context, Result, bail};
use ringmark_core::benchmark::exchange::{BackendChoice, ExchangeConfig};
use ringmark_core::dimension::BackendName;
use tch::Device;

use crate::exchange::backend::Backend;
use crate::exchange::backend::mpi::Mpi;
use crate::exchange::backend::nccl::NcclBackend;
use crate::exchange::backend::none::NoExchange;
use crate::exchange::backend::shared_memory::SharedMemory;
use crate::exchange::memory::{Memory, MemoryShape};
use crate::job::session::Session;
use crate::job::world::World;

/// Creates the backend that `config` requests for all ranks, with memory of `shape`. All ranks call this together.
pub fn new(config: &ExchangeConfig, shape: MemoryShape, session: &Session) -> Result<Box<dyn Backend>> {
    for_ranks(session.world, config, shape, session)
}

/// Creates the backend for the ranks of `world`, of which this rank is one. All ranks of the job call this together.
pub fn for_ranks(
    world: &World,
    config: &ExchangeConfig,
    shape: MemoryShape,
    session: &Session,
) -> Result<Box<dyn Backend>> {
    let device = session.device();
    config.check_hierarchical(session.own.kind.into())?;
    if device == Device::Cpu {
        // Memory is overcommitted: one rank's allocation may succeed and another rank be killed later, on first touch.
        shape.check_fits(session.world)?;
        session.world.barrier();
    }
    let private = || Memory::private(shape, device);
    if config.backend == BackendChoice::Auto && world.ranks() == 1 {
        return Ok(Box::new(NoExchange::new(BackendName::Solo, private()?)));
    }
    match (config.backend_on(session.own.kind), device) {
        (BackendChoice::None, _) => Ok(Box::new(NoExchange::new(BackendName::None, private()?))),
        (BackendChoice::Nccl, Device::Cuda(index)) => {
            let nccl = session.nccl.clone().context("NCCL is not loaded")?;
            Ok(Box::new(NcclBackend::new(nccl, world, index, private()?)?))
        }
        (BackendChoice::Nccl, _) => {
            bail!("--backend nccl needs a GPU, but this rank uses the CPU: use shared-memory, mpi or auto")
        }
        (BackendChoice::SharedMemory, Device::Cpu) => Ok(Box::new(SharedMemory::new(config, shape, world)?)),
        (BackendChoice::SharedMemory, _) => {
            bail!("--backend shared-memory sums in host memory, but this rank uses a GPU: use nccl or auto")
        }
        (BackendChoice::Mpi | BackendChoice::Auto, _) => Ok(Box::new(Mpi::new(config.chunk_kb, private()?, world)?)),
    }
}
