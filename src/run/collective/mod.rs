//! How gradients are summed over the ranks: buckets, the reducer that starts them as backward fills them, and the
//! engines behind one trait. Knows nothing of models; shapes are static, so there is no negotiation and no coordinator.

pub mod bucket;
mod mpi;
mod nccl;
pub mod reducer;
mod solo;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ringmark_record::config::{CollectiveChoice, MpiThread, TrainConfig};
use tch::{Device, Tensor};

use crate::ffi::nccl::Nccl;
use crate::world::World;

/// An engine that sums buckets over all ranks.
pub trait Collective: Send {
    /// As in the record.
    fn name(&self) -> &'static str;

    /// Starts the sum of `bucket` over all ranks, in place. Every rank starts the same buckets in the same order.
    /// An engine without asynchronous progress ends it here.
    fn start(&mut self, bucket: &Tensor) -> Result<()>;

    /// Orders every started sum before whatever the caller does next: on the CPU they are done when this returns, on
    /// CUDA the caller's stream waits for them and the host does not.
    fn finish(&mut self) -> Result<()>;
}

/// The engine that `config` asks for on `device`; `nccl` is there where CUDA is.
pub fn new(
    config: &TrainConfig,
    world: &World,
    device: Device,
    nccl: Option<&Arc<Nccl>>,
) -> Result<Box<dyn Collective>> {
    let choice = match (config.collective, device) {
        (CollectiveChoice::Auto, _) if world.ranks() == 1 => return Ok(Box::new(solo::Solo { name: "solo" })),
        (CollectiveChoice::Auto, Device::Cuda(_)) => CollectiveChoice::Nccl,
        (CollectiveChoice::Auto, _) => CollectiveChoice::Mpi,
        (choice, _) => choice,
    };
    match (choice, device) {
        (CollectiveChoice::Nccl, Device::Cuda(index)) => {
            let nccl = nccl.context("NCCL is not loaded")?;
            Ok(Box::new(nccl::NcclRing::new(nccl.clone(), world, index)?))
        }
        (CollectiveChoice::Nccl, _) => {
            bail!("--collective nccl needs a GPU, this rank trains on the CPU: choose mpi or auto")
        }
        (CollectiveChoice::Mpi, _) if config.mpi_thread == MpiThread::Own => Ok(Box::new(mpi::MpiOnOwnThread::new()?)),
        (CollectiveChoice::Mpi, _) => Ok(Box::new(mpi::Mpi::new()?)),
        _ => Ok(Box::new(solo::Solo { name: "none" })),
    }
}
