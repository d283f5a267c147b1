//! Cores of the ranks of a host: the part of each, to which it may be bound, and the number that all share according to
//! affinity and control groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ringmark_core::host::processors::{self, NumberSet, Topology};
use ringmark_core::host::{BindChoice, Binding, BindingMode, control_group};
use ringmark_core::number_text::count;

use crate::host::facts;
use crate::job::world::World;

/// Request of a rank for a part of its host's cores.
#[derive(Debug, Clone, Copy)]
pub struct CoreRequest {
    /// Number of threads; `None` is the number of cores of the part.
    pub threads: Option<u32>,
    /// Number of ranks that share the cores; `None` is that of the host.
    pub cores_divided_by: Option<u32>,
    pub bind: BindChoice,
}

/// A rank's part of its host's cores.
#[derive(Debug, Clone, Default)]
pub struct RankCores {
    /// Number of compute threads, at least one.
    pub threads: u32,
    /// Number of cores of an equal part, at least one.
    pub part: u32,
    /// Number of cores that the process could use when it was started.
    pub of_process: u32,
    pub binding: Option<Binding>,
}

impl CoreRequest {
    /// Returns the request of a server: servers share the cores of ranks, so that they get no cores of their own.
    pub fn for_server(self) -> CoreRequest {
        let bind = if self.bind == BindChoice::Core { BindChoice::Numa } else { self.bind };
        CoreRequest { threads: None, cores_divided_by: None, bind }
    }

    /// Binds this process as requested, unless it was bound when it was started. `bus_id` is the PCI address of its GPU.
    /// All processes of this role on the host call this together, before libtorch starts threads and allocates arrays.
    pub fn bind(self, world: &World, bus_id: Option<&str>) -> Result<RankCores> {
        let (topology, of_process, list) = (Topology::read(), facts::cores(), facts::allowed_processors());
        let near = world.gather_text_on_host(&bus_id.map(facts::processors_near).unwrap_or_default());
        // Ranks with the same list may share the processors of a container or of a Slurm job.
        let lists = world.gather_text_on_host(&list);
        let is_bound = lists.iter().any(|other| *other != list) || (lists.len() == 1 && facts::is_bound());
        let ranks = self.cores_divided_by.unwrap_or_default().max(world.local_ranks());
        // A rank with few threads gets few cores; the threads of a rank with a GPU hardly compute.
        let by_threads = self.threads.filter(|_| bus_id.is_none()).map_or(0, |threads| topology.cores() / threads);
        let part = topology.part(&near, world.local_rank(), ranks.max(by_threads));
        let equal = of_process / ranks;
        let (binding, cores) = match self.mode(is_bound, &topology) {
            None => (None, equal),
            Some(BindingMode::Launcher) => (Some(topology.binding(BindingMode::Launcher)), equal),
            Some(mode) => {
                ensure!(
                    mode == BindingMode::Numa || part.parts <= part.pool.cores(),
                    "--bind core: {} ranks of host {} share {}: use --bind none or fewer ranks",
                    part.parts,
                    world.host(),
                    count(part.pool.cores(), "core"),
                );
                let bound_to = part.cores(mode);
                match bind_threads(&bound_to.processors()) {
                    Ok(()) => {
                        processors::set_cores(&bound_to);
                        (Some(bound_to.binding(mode)), equal.min(part.pool.cores() / part.parts))
                    }
                    Err(_) if self.bind == BindChoice::Auto => (None, equal),
                    Err(error) => return Err(error.context(format!("--bind {mode}: use --bind none"))),
                }
            }
        };
        let cores = cores.max(1);
        Ok(RankCores { threads: self.threads.unwrap_or(cores), part: cores, of_process, binding })
    }

    fn mode(self, is_bound: bool, topology: &Topology) -> Option<BindingMode> {
        match self.bind {
            _ if is_bound => Some(BindingMode::Launcher),
            BindChoice::Auto if topology.cores_per_node().len() > 1 => Some(BindingMode::Numa),
            BindChoice::Auto | BindChoice::None => None,
            BindChoice::Numa => Some(BindingMode::Numa),
            BindChoice::Core => Some(BindingMode::Core),
        }
    }
}

/// Binds every thread of this process: those of MPI, CUDA and the heartbeat exist already.
fn bind_threads(processors: &NumberSet) -> Result<()> {
    let mut set = CpuSet::new();
    let failed = || format!("host {}: cannot bind to processors {processors}", facts::host_name());
    processors.0.iter().try_for_each(|processor| set.set(*processor as usize)).with_context(failed)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(failed)?;
    for thread in fs::read_dir("/proc/self/task")?.flatten() {
        if let Some(id) = thread.file_name().to_str().and_then(|name| name.parse().ok()) {
            // It may have ended.
            let _ = sched_setaffinity(Pid::from_raw(id), &set);
        }
    }
    Ok(())
}

/// Returns true if this host has enough cores for its ranks with `threads` threads each. All ranks call this together.
pub fn has_cores_for(threads: u32, world: &World) -> bool {
    world.local_ranks() * threads <= local_rank_cores(world)
}

/// Returns the number of cores that this host's ranks may use together. All ranks call this together.
pub fn local_rank_cores(world: &World) -> u32 {
    let hosts = world.gather_text(world.host());
    let lists = world.gather_text(&facts::allowed_processors());
    let groups = world.gather_text(&control_group::list());
    let times = world.gather(&[f64::from(processors::processors())]).concat();
    let ranks = lists.iter().zip(groups).zip(times).zip(&hosts).filter(|(_, host)| *host == world.host());
    available_cores(ranks.map(|(((list, group), cores), _)| (NumberSet::parse(list), group, cores as u32)))
}

/// Returns the number of cores of ranks with these processors, control groups and [`processors::processors`]. Ranks may
/// be bound to one core each, so their union counts; and the quota of a group may allow its ranks less time than it has
/// processors.
fn available_cores(ranks: impl Iterator<Item = (NumberSet, String, u32)>) -> u32 {
    let mut all = BTreeSet::new();
    let mut groups = BTreeMap::new();
    for (processors, group, cores) in ranks {
        let quota = if (cores as usize) < processors.0.len() { cores } else { u32::MAX };
        groups.insert(group, quota);
        all.extend(processors.0);
    }
    groups.into_values().fold(0, u32::saturating_add).min(all.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_limited_by_affinity_and_quotas() {
        let rank = |list: &str, group: &str, cores| (NumberSet::parse(list), group.to_owned(), cores);
        let together = |ranks: &[(NumberSet, String, u32)]| available_cores(ranks.iter().cloned());
        assert_eq!(together(&[rank("0-3", "/", 4), rank("0-3", "/", 4)]), 4);
        assert_eq!(together(&[rank("0", "/", 1), rank("1", "/", 1)]), 2);
        assert_eq!(together(&[rank("0", "/", 1), rank("0", "/", 1)]), 1);
        // A container with a quota of two cores for all its ranks; then separate groups.
        assert_eq!(together(&[rank("0-63", "/docker/a", 2), rank("0-63", "/docker/a", 2)]), 2);
        assert_eq!(together(&[rank("0-3", "/a", 1), rank("0-3", "/b", 1)]), 2);
        assert_eq!(together(&[rank("0-1", "/a", 1), rank("0-1", "/", 2)]), 2);
    }
}
