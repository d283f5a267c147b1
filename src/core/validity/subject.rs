//! Subjects of warnings, and the format of their numbers.

use std::collections::HashMap;

use crate::benchmark::warning::{Warning, WarningKind};
use crate::host::RankPlace;

/// Subject of a warning that no rank or host causes.
pub(super) const RUN: &str = "the run";

pub(super) fn warning(kind: WarningKind, about: impl Into<String>, text: String) -> Warning {
    Warning { kind, about: about.into(), text }
}

/// Formats a rank's name: `rank 3 on host d`.
pub(super) fn name(place: &RankPlace) -> String {
    format!("rank {} on host {}", place.rank, place.host)
}

/// Returns the subjects with the indices of their ranks; a host replaces its ranks if all of them are selected.
pub(super) fn subjects(ranks: &[RankPlace], is_selected: impl Fn(usize) -> bool) -> Vec<(String, Vec<usize>)> {
    let mut subjects = Vec::new();
    for (host, here) in by_host(ranks) {
        if here.len() > 1 && here.iter().all(|rank| is_selected(*rank)) {
            subjects.push((format!("host {host}"), here));
        } else {
            let meant = here.into_iter().filter(|rank| is_selected(*rank));
            subjects.extend(meant.map(|rank| (name(&ranks[rank]), vec![rank])));
        }
    }
    subjects
}

/// Returns the hosts in the order of their first ranks, each with the indices of its ranks.
fn by_host(ranks: &[RankPlace]) -> Vec<(&str, Vec<usize>)> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut hosts: Vec<(&str, Vec<usize>)> = Vec::new();
    for (rank, place) in ranks.iter().enumerate() {
        let host = *places.entry(&place.host).or_insert_with(|| {
            hosts.push((&place.host, Vec::new()));
            hosts.len() - 1
        });
        hosts[host].1.push(rank);
    }
    hosts
}
