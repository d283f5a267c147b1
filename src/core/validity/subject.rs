//! Whom a warning is about, and how it says a number.

use std::collections::HashMap;

use crate::benchmark::warning::{Warning, WarningKind};
use crate::dimension::Seconds;
use crate::host::RankPlace;

/// About what no rank or host is to blame for.
pub(super) const RUN: &str = "the run";

pub(super) fn warning(kind: WarningKind, about: impl Into<String>, text: String) -> Warning {
    Warning { kind, about: about.into(), text }
}

/// `rank 3 on host d`.
pub(super) fn name(place: &RankPlace) -> String {
    format!("rank {} on host {}", place.rank, place.host)
}

/// What is said of all ranks of a host is said of the host: names, each with its ranks as places in the list.
pub(super) fn subjects(ranks: &[RankPlace], is_meant: impl Fn(usize) -> bool) -> Vec<(String, Vec<usize>)> {
    let mut subjects = Vec::new();
    for (host, here) in by_host(ranks) {
        if here.len() > 1 && here.iter().all(|rank| is_meant(*rank)) {
            subjects.push((format!("host {host}"), here));
        } else {
            let meant = here.into_iter().filter(|rank| is_meant(*rank));
            subjects.extend(meant.map(|rank| (name(&ranks[rank]), vec![rank])));
        }
    }
    subjects
}

/// Hosts in the order of their first ranks, each with its ranks as places in the list.
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

pub(super) fn milliseconds(time: Seconds) -> String {
    format!("{:.1} ms", time.0 * 1e3)
}
