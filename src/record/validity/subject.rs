//! Whom a warning is about, and how it says a number.

use crate::benchmark::warning::{Warning, WarningKind};
use crate::dimension::units::Seconds;
use crate::host::environment::RankPlace;
use crate::host::resource_use::HostUse;
use crate::validity::observed::Observed;

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
    for host in hosts(ranks) {
        let here: Vec<usize> = (0..ranks.len()).filter(|rank| ranks[*rank].host == host).collect();
        if here.len() > 1 && here.iter().all(|rank| is_meant(*rank)) {
            subjects.push((format!("host {host}"), here));
        } else {
            let meant = here.into_iter().filter(|rank| is_meant(*rank));
            subjects.extend(meant.map(|rank| (name(&ranks[rank]), vec![rank])));
        }
    }
    subjects
}

/// In the order of their first ranks.
pub(super) fn hosts(ranks: &[RankPlace]) -> Vec<&str> {
    let mut hosts: Vec<&str> = Vec::new();
    for place in ranks {
        if !hosts.contains(&place.host.as_str()) {
            hosts.push(&place.host);
        }
    }
    hosts
}

pub(super) fn host_of<'a>(place: &RankPlace, seen: &Observed<'a>) -> Option<&'a HostUse> {
    seen.host_use.iter().find(|host| host.host == place.host)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn milliseconds(time: Seconds) -> String {
    format!("{:.1} ms", time.0 * 1e3)
}
