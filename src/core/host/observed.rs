//! Observations from which the warnings of any benchmark are derived.

use std::collections::HashMap;

use crate::dimension::DeviceKind;
use crate::host::{HostUse, InitialLoad, RankPlace, RankUse};

/// Observations of ranks and hosts during the iterations of any benchmark.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    /// Location of every rank.
    pub ranks: &'a [RankPlace],
    /// Resource use of every host; empty in older records.
    pub host_use: &'a [HostUse],
    /// Resource use of every rank; empty in older records.
    pub rank_use: &'a [RankUse],
    /// Number of iterations that ran.
    pub iterations: u32,
    /// Load of other programs before the first job of the command.
    pub load_before: Option<&'a InitialLoad>,
    /// Use and rank sums of a host by its name: with 8,192 hosts, a linear search for every rank takes too long.
    hosts: HashMap<&'a str, (&'a HostUse, RankSums)>,
    /// Rank sums of all hosts of a machine, by the machine's name.
    machines: HashMap<&'a str, RankSums>,
}

/// Sums over the ranks of a host or a machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RankSums {
    pub ranks: u64,
    /// Threads of ranks that compute on cores.
    pub threads: u64,
    /// Core time in seconds; 0 unless the record has the use of every rank.
    pub core_time: f64,
}

impl RankSums {
    fn add(&mut self, place: &RankPlace, used: Option<&RankUse>) {
        self.ranks += 1;
        self.threads += if place.device == DeviceKind::Cpu { u64::from(place.threads) } else { 0 };
        self.core_time += used.map_or(0.0, |used| used.core_time.0);
    }
}

impl<'a> Observed<'a> {
    /// Computes the sums over the ranks of every host and machine.
    pub fn new(
        ranks: &'a [RankPlace],
        host_use: &'a [HostUse],
        rank_use: &'a [RankUse],
        iterations: u32,
        load_before: Option<&'a InitialLoad>,
    ) -> Observed<'a> {
        let mut hosts: HashMap<&str, (&HostUse, RankSums)> = HashMap::with_capacity(host_use.len());
        for host in host_use {
            hosts.entry(&host.host).or_insert((host, RankSums::default()));
        }
        let mut machines: HashMap<&str, RankSums> = HashMap::new();
        let rank_use_or_none = if rank_use.len() == ranks.len() { rank_use } else { &[] };
        for (rank, place) in ranks.iter().enumerate() {
            let Some((host, sums)) = hosts.get_mut(place.host.as_str()) else { continue };
            sums.add(place, rank_use_or_none.get(rank));
            machines.entry(&host.machine).or_default().add(place, rank_use_or_none.get(rank));
        }
        Observed { ranks, host_use, rank_use, iterations, load_before, hosts, machines }
    }

    pub(crate) fn host_of(&self, place: &RankPlace) -> Option<&'a HostUse> {
        self.hosts.get(place.host.as_str()).map(|(host, _)| *host)
    }

    /// Returns the sums over the ranks of a host.
    pub(crate) fn on_host(&self, host: &HostUse) -> RankSums {
        self.hosts.get(host.host.as_str()).map(|(_, sums)| *sums).unwrap_or_default()
    }

    /// Returns the sums over the ranks of all hosts of a machine.
    pub(crate) fn on_machine(&self, machine: &str) -> RankSums {
        self.machines.get(machine).copied().unwrap_or_default()
    }
}
