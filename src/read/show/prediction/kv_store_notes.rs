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
                "kv-store {store}: {}. Extremes: sent on \
                 from host to host in a chain, which takes as long over any number of hosts, or straight, H - 1 times the \
                 bytes in and out of the owner's host ({} times for {case}, {} for {reference})",
                buckets(evidence),
                case.nodes - 1,
                reference.nodes - 1
            ),
            "the weights' way back is the optimizer's time less the update, by 1n1g and the largest owner's share; nothing \
             hides it. Of the gradients' way backward hides what it hid or not a second more; that way takes at most twice \
             as long as the weights'"
                .to_owned(),
        ],
        Strategy::Servers(setup) => servers(evidence, setup, reference, case),
    };
    let middle = if evidence.strategy.has_owners() { "half way" } else { "by the bytes on the busiest link" };
    lines.push(format!(
        "the wait for the slowest rank stays, or grows as the expected maximum of more ranks, or as the exchange, which parts \
         ranks differently; compute, optimizer and rest stay as with fewer hosts; the network gives every host what it gave \
         before; band: both extremes, 95 % of the runs' spread; mid: {middle}"
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
        let bytes = setup.of_case(case, number).busiest_link();
        format!("{case} with {} {:.1} MB", count(number), bytes / 1e6)
    };
    let measured = link(reference, setup.measured_number(reference));
    let asked = link(case, setup.asked_number(case));
    let number = match (setup.asked, setup.number) {
        (Some(asked), _) => format!("{}, as asked for", count(asked)),
        (None, Some(number)) => format!("{}, as measured", count(number)),
        (None, None) => "a server for each host, as measured, and no more than the network has arrays".to_owned(),
    };
    let place = match (setup.are_on_rank_hosts, setup.shared_hosts) {
        (true, None) => "on the hosts of the ranks in turn".to_owned(),
        (false, None) => "each on a host of its own".to_owned(),
        (true, Some(hosts)) => format!("in turn on no more than {hosts} of the ranks' hosts, as measured"),
        (false, Some(hosts)) => format!("in turn on no more than {hosts} hosts of their own, as measured"),
    };
    vec![
        format!(
            "kv-store {}: {number}, {place}. A step moves over the busiest link, one way: measured {measured}, {asked}",
            evidence.kv_store
        ),
        "extremes: the exchange takes as much longer as what grows least or most of a round trip, the bytes on the busiest \
         link, the messages of a rank and of a server, a server's additions and updates, and links between switches that half \
         of the hosts share (square root of the hosts); one message more costs 1 ms at most; backward hides the same share of it, or not a second more"
            .to_owned(),
    ]
}
