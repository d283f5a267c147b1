//! Activity of hosts, ranks and GPUs during the iterations: counters read before and after the timed loop, never inside
//! it, and gathered. Their interpretation is in ringmark_core's validity.

use std::time::Instant;

use anyhow::{Context, Result};
use ringmark_core::dimension::Seconds;
use ringmark_core::host::{HostUse, RankUse};
use serde::{Deserialize, Serialize};

use crate::host::counters::{HostCounters, RankCounters};
use crate::host::gpu::GpuState;
use crate::host::telemetry::Readings;
use crate::job::cores;
use crate::job::device::DeviceOfRank;
use crate::job::heartbeat;
use crate::job::world::World;

/// First reading of the counters.
pub struct HostWatch {
    /// Present on the first rank of every host.
    readings: Option<Readings>,
    gpu: Option<GpuState>,
    started: Instant,
    host: HostCounters,
    rank: RankCounters,
}

/// Activity of all hosts and ranks between the two readings.
pub struct CountersOfRun {
    /// Hosts in the order of their first ranks.
    pub hosts: Vec<HostUse>,
    /// Ranks in rank order.
    pub ranks: Vec<RankUse>,
}

impl HostWatch {
    /// Takes the first reading. All ranks call this together, right before the timed loop.
    pub fn start(world: &World, own: &DeviceOfRank) -> Result<HostWatch> {
        let gpu = gpu_state(own);
        let gpus = world
            .gather_values(&(world.host().to_owned(), own.bus_id.clone()))
            .context("cannot parse the GPU of a rank")?;
        let here = gpus.into_iter().filter(|(host, _): &(String, Option<String>)| host == world.host());
        let readings = (world.local_rank() == 0)
            .then(|| Readings::start(here.filter_map(|(_, gpu)| gpu).collect(), heartbeat::iteration))
            .transpose()?;
        // nvidia-smi on other ranks must not count as load.
        world.sleeping_barrier();
        Ok(HostWatch { readings, gpu, started: Instant::now(), host: HostCounters::read(), rank: RankCounters::read() })
    }

    /// Takes the second reading. All ranks call this together, right after the timed loop.
    pub fn end(self, world: &World, own: &DeviceOfRank) -> Result<CountersOfRun> {
        // A host's counters include all its ranks, so they are read at the same time on all of them.
        world.sleeping_barrier();
        let (elapsed, host, rank) = (self.started.elapsed(), HostCounters::read(), RankCounters::read());
        // Before nvidia-smi runs: a waiting device draws less power.
        let telemetry = self.readings.map(Readings::end);
        world.sleeping_barrier();
        let gpu = self.gpu.zip(gpu_state(own)).map(|(before, after)| before.until(&after));
        let cores_of_ranks = cores::local_rank_cores(world);
        let own = CountersOfRank {
            host: (world.local_rank() == 0).then(|| HostUse {
                host: world.host().to_owned(),
                cores_of_ranks,
                elapsed: Seconds(elapsed.as_secs_f64()),
                telemetry,
                ..self.host.until(&host)
            }),
            rank: RankUse { gpu, ..self.rank.until(&rank) },
        };
        let all = world.gather_values(&own).context("cannot parse the counters of a rank")?;
        let (hosts, ranks): (Vec<Option<HostUse>>, Vec<RankUse>) =
            all.into_iter().map(|counters| (counters.host, counters.rank)).unzip();
        Ok(CountersOfRun { hosts: hosts.into_iter().flatten().collect(), ranks })
    }
}

fn gpu_state(own: &DeviceOfRank) -> Option<GpuState> {
    own.bus_id.as_deref().and_then(GpuState::read)
}

#[derive(Serialize, Deserialize)]
struct CountersOfRank {
    /// Set on the first rank of every host.
    host: Option<HostUse>,
    rank: RankUse,
}
