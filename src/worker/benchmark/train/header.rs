//! The first line of a training run's record: what was asked, what it runs on, how gradients are exchanged.

use anyhow::{Result, ensure};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::run::{RunHeader, SCHEMA, Tuning};
use ringmark_record::units::Bytes;

use crate::cli::RunLabel;
use crate::ffi::nccl::Nccl;
use crate::host::facts;
use crate::job::device::DeviceOfRank;
use crate::job::environment;
use crate::job::world::World;

/// How gradients are exchanged, as it came out.
pub struct ExchangeFacts {
    /// What sums them.
    pub backend: &'static str,
    /// Sizes of the buckets as fp32, in the order of backward.
    pub buckets: Vec<Bytes>,
    /// What `--autotune` tried and chose.
    pub tuning: Option<Tuning>,
}

/// The record's first line; every rank calls it, because it gathers where all of them are.
pub fn header(
    config: &TrainConfig,
    label: RunLabel,
    world: &World,
    own: &DeviceOfRank,
    nccl: Option<&Nccl>,
    exchange: ExchangeFacts,
) -> Result<RunHeader> {
    let ranks = environment::places(world, own);
    let nodes = ranks.iter().filter(|place| place.local_rank == 0).count() as u32;
    if let Some(case) = label.case {
        // Ranks whose launcher and MPI library do not speak to each other are each a job of its own, and train.
        ensure!(
            case.ranks() == world.ranks(),
            "case {case} has {} ranks and MPI shows {}: start it by the mpirun of the MPI library that ringmark-worker has \
             (ldd tells), or by an srun with its PMIx",
            case.ranks(),
            world.ranks()
        );
    }
    let case = label.case.unwrap_or(Case { nodes, gpus_per_node: world.ranks().div_ceil(nodes) });
    Ok(RunHeader {
        schema: SCHEMA,
        case,
        run: label.run,
        profile: label.profile,
        started: facts::now(),
        config: config.clone(),
        collective: exchange.backend.to_owned(),
        buckets: exchange.buckets,
        tuning: exchange.tuning,
        environment: environment::environment(own, nccl)?,
        ranks,
    })
}
