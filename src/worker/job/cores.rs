//! How many cores the ranks of a host have together: by affinity and by control group.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::host::control_group;

use crate::host::facts;
use crate::job::world::World;

/// CPU threads that a rank is asked to have.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct AskedThreads {
    /// As many; `None` is a part of the cores that this process may use.
    pub number: Option<u32>,
    /// Ranks that divide the cores; `None` are those of the host.
    pub cores_divided_by: Option<u32>,
}

impl AskedThreads {
    /// At least one.
    pub fn of_rank(self, world: &World) -> u32 {
        let ranks = self.cores_divided_by.unwrap_or_default().max(world.local_ranks());
        self.number.unwrap_or(facts::cores() / ranks).max(1)
    }
}

/// Whether this host's ranks, of `threads` threads each, have cores enough; all ranks call it together.
pub fn has_cores_for(threads: u32, world: &World) -> bool {
    world.local_ranks() * threads <= cores_of_ranks(world)
}

/// Cores that this host's ranks may use together; all ranks call it together.
pub fn cores_of_ranks(world: &World) -> u32 {
    let hosts = world.gather_text(world.host());
    let lists = world.gather_text(&facts::allowed_processors());
    let groups = world.gather_text(&control_group::list());
    let times = world.gather(&[f64::from(facts::cores())]).concat();
    let ranks = lists.iter().zip(groups).zip(times).zip(&hosts).filter(|(_, host)| *host == world.host());
    cores_together(ranks.map(|(((list, group), cores), _)| (processors(list), group, cores as u32)))
}

/// Of ranks with these processors, control groups, and cores that [`facts::cores`] counts for each: ranks may be bound to a core each,
/// and what they have together counts; a group may allow its ranks together less time than there are processors.
fn cores_together(ranks: impl Iterator<Item = (Vec<u32>, String, u32)>) -> u32 {
    let mut all = BTreeSet::new();
    let mut groups = BTreeMap::new();
    for (processors, group, cores) in ranks {
        let quota = if (cores as usize) < processors.len() { cores } else { u32::MAX };
        groups.insert(group, quota);
        all.extend(processors);
    }
    groups.into_values().fold(0, u32::saturating_add).min(all.len() as u32)
}

/// `0-3,8` is 0, 1, 2, 3 and 8.
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
    fn ranks_have_together_what_affinity_and_quotas_leave() {
        let rank = |list: &str, group: &str, cores| (processors(list), group.to_owned(), cores);
        let together = |ranks: &[(Vec<u32>, String, u32)]| cores_together(ranks.iter().cloned());
        assert_eq!(together(&[rank("0-3", "/", 4), rank("0-3", "/", 4)]), 4);
        assert_eq!(together(&[rank("0", "/", 1), rank("1", "/", 1)]), 2);
        assert_eq!(together(&[rank("0", "/", 1), rank("0", "/", 1)]), 1);
        // A container with a quota of two cores, however many ranks it has; groups of their own.
        assert_eq!(together(&[rank("0-63", "/docker/a", 2), rank("0-63", "/docker/a", 2)]), 2);
        assert_eq!(together(&[rank("0-3", "/a", 1), rank("0-3", "/b", 1)]), 2);
        assert_eq!(together(&[rank("0-1", "/a", 1), rank("0-1", "/", 2)]), 2);
    }

    #[test]
    fn lists_of_processors_are_counted_out() {
        assert_eq!(processors("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(processors("7"), [7]);
        assert_eq!(processors(""), Vec::<u32>::new());
    }
}
