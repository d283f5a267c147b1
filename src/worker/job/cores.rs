//! Number of cores that the ranks of a host share, according to affinity and control groups.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::host::control_group;

use crate::host::facts;
use crate::job::world::World;

/// Requested number of CPU threads of a rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestedThreads {
    /// Number of threads; `None` is an even share of the cores that this process may use.
    pub number: Option<u32>,
    /// Number of ranks that share the cores; `None` is that of the host.
    pub cores_divided_by: Option<u32>,
}

impl RequestedThreads {
    /// Returns the number of threads of this rank, at least one.
    pub fn for_rank(self, world: &World) -> u32 {
        let ranks = self.cores_divided_by.unwrap_or_default().max(world.local_ranks());
        self.number.unwrap_or(facts::cores() / ranks).max(1)
    }
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
    let times = world.gather(&[f64::from(facts::cores())]).concat();
    let ranks = lists.iter().zip(groups).zip(times).zip(&hosts).filter(|(_, host)| *host == world.host());
    available_cores(ranks.map(|(((list, group), cores), _)| (processors(list), group, cores as u32)))
}

/// Returns the number of cores of ranks with these processors, control groups and [`facts::cores`]. Ranks may be bound
/// to one core each, so their union counts; and the quota of a group may allow its ranks less time than it has
/// processors.
fn available_cores(ranks: impl Iterator<Item = (Vec<u32>, String, u32)>) -> u32 {
    let mut all = BTreeSet::new();
    let mut groups = BTreeMap::new();
    for (processors, group, cores) in ranks {
        let quota = if (cores as usize) < processors.len() { cores } else { u32::MAX };
        groups.insert(group, quota);
        all.extend(processors);
    }
    groups.into_values().fold(0, u32::saturating_add).min(all.len() as u32)
}

/// Parses a list of processors: `0-3,8` is 0, 1, 2, 3 and 8.
fn processors(list: &str) -> Vec<u32> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_limited_by_affinity_and_quotas() {
        let rank = |list: &str, group: &str, cores| (processors(list), group.to_owned(), cores);
        let together = |ranks: &[(Vec<u32>, String, u32)]| available_cores(ranks.iter().cloned());
        assert_eq!(together(&[rank("0-3", "/", 4), rank("0-3", "/", 4)]), 4);
        assert_eq!(together(&[rank("0", "/", 1), rank("1", "/", 1)]), 2);
        assert_eq!(together(&[rank("0", "/", 1), rank("0", "/", 1)]), 1);
        // A container with a quota of two cores for all its ranks; then separate groups.
        assert_eq!(together(&[rank("0-63", "/docker/a", 2), rank("0-63", "/docker/a", 2)]), 2);
        assert_eq!(together(&[rank("0-3", "/a", 1), rank("0-3", "/b", 1)]), 2);
        assert_eq!(together(&[rank("0-1", "/a", 1), rank("0-1", "/", 2)]), 2);
    }

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(processors("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(processors("7"), [7]);
        assert_eq!(processors(""), Vec::<u32>::new());
    }
}
