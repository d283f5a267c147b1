//! Assumptions of predictions for kv-stores without all-reduce, as sentences.

use ringmark_core::dimension::{Case, DeviceKind, KvStore};

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::strategy::{ServerSetup, Strategy};

/// Returns the assumptions for `case`, which is predicted from the measured case `reference`.
pub fn assumptions(evidence: &Evidence, reference: Case, case: Case) -> Vec<String> {
    let store = evidence.kv_store;
    let mut lines = match &evidence.strategy {
        // The assumptions for ring are in `notes`.
        Strategy::AllReduce => Vec::new(),
        Strategy::Owners { .. } => vec![
            format!(
                "kv-store {store}: {}. Extremes: a chain from host to host, which takes the same time over any number of \
                 hosts, or direct transfers, with H - 1 times the bytes in and out of the owner's host ({} times for {case}, \
                 {} for {reference})",
                buckets(evidence),
                case.nodes - 1,
                reference.nodes - 1
            ),
            "the return of the weights takes the optimizer's time minus the update (from 1n1g and the largest owner's share), \
             and nothing hides it. Backward hides the same share of the gradients' transfer, or the same number of seconds; \
             that transfer takes at most twice as long as the return"
                .to_owned(),
        ],
        Strategy::Servers(setup) => servers(evidence, setup, reference, case),
    };
    let middle = if evidence.strategy.has_owners() {
        "half way between the extremes"
    } else {
        "from the bytes on the busiest link"
    };
    lines.push(format!(
        "the wait for the slowest rank stays the same, or grows as the expected maximum over more ranks, or as the exchange; \
         compute, optimizer and the rest take as long as with fewer hosts; every host keeps its bandwidth; band: both extremes, \
         95 % of the runs' spread; mid: {middle}"
    ));
    lines
}

/// Describes how buckets move to owners: on CPUs they are sent directly, to several owners concurrently.
fn buckets(evidence: &Evidence) -> &'static str {
    match (evidence.kv_store, evidence.conditions) {
        (KvStore::Device, Some((DeviceKind::Cpu, _))) => {
            "buckets go straight to their owners, to several at once, and their weights come back"
        }
        _ => "one bucket after the other goes to its owner, and its weights come back",
    }
}

fn servers(evidence: &Evidence, setup: &ServerSetup, reference: Case, case: Case) -> Vec<String> {
    let count = |number: u32| format!("{number} server{}", if number == 1 { "" } else { "s" });
    let link = |case: Case, number: u32| {
        let bytes = setup.servers_for(case, number).busiest_link();
        format!("{case} with {} {:.1} MB", count(number), bytes / 1e6)
    };
    let measured = link(reference, setup.measured_number(reference));
    let asked = link(case, setup.asked_number(case));
    let number = match (setup.asked, setup.number) {
        (Some(asked), _) => format!("{}, as requested", count(asked)),
        (None, Some(number)) => format!("{}, as measured", count(number)),
        (None, None) => "a server for each host, as measured, and no more than the network has arrays".to_owned(),
    };
    let place = match (setup.are_on_rank_hosts, setup.shared_hosts) {
        (true, None) => "round-robin on the hosts of the ranks".to_owned(),
        (false, None) => "each on a host of its own".to_owned(),
        (true, Some(hosts)) => format!("round-robin on no more than {hosts} of the ranks' hosts, as measured"),
        (false, Some(hosts)) => format!("round-robin on no more than {hosts} hosts of their own, as measured"),
    };
    vec![
        format!(
            "kv-store {}: {number}, {place}. A step moves over the busiest link, one way: measured {measured}, {asked}",
            evidence.kv_store
        ),
        "extremes: the exchange grows as the part that grows least, or most, of: a round trip, the bytes on the busiest link, \
         the messages of a rank and of a server, a server's additions and updates, and links between switches that half of the \
         hosts share (square root of the hosts); an additional message costs at most 1 ms; backward hides the same share of \
         the exchange, or the same number of seconds"
            .to_owned(),
    ]
}
