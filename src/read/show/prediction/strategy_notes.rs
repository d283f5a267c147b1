//! Assumptions of predictions for shards, owners and servers, as sentences.

use ringmark_core::dimension::{Case, DeviceKind, Strategy};
use ringmark_core::number_text;
use ringmark_core::stats::allreduce_model::Algorithm;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::exchange_pattern::{ExchangePattern, ServerSetup};

/// Limits of the hidden part of an exchange.
const HIDDEN: &str = "backward hides the same share of it (lower limit), or the same number of seconds (upper limit)";

/// Returns the assumptions for `case`, which is predicted from the measured case `reference`.
pub fn assumptions(evidence: &Evidence, reference: Case, case: Case) -> Vec<String> {
    let store = evidence.point.strategy;
    let mut lines = match &evidence.pattern {
        // The other assumptions for collectives are in `notes`.
        ExchangePattern::AllReduce | ExchangePattern::Shards { .. } | ExchangePattern::HybridShards => Vec::new(),
        ExchangePattern::Owners { .. } => vec![
            format!("strategy {store}: {}", buckets(evidence)),
            "lower limit of the exchange: a chain of hosts, whose time does not depend on the number of hosts".to_owned(),
            format!(
                "upper limit of the exchange: direct transfers, with H - 1 times the bytes in and out of the owner's host \
                 ({} times for {case}, {} for {reference})",
                case.nodes - 1,
                reference.nodes - 1
            ),
            "return of the weights: the optimizer phase minus the update (from 1n1g and the share of the largest owner); \
             backward cannot hide it"
                .to_owned(),
            format!("transfer of the gradients: at most twice as long as the return; {HIDDEN}"),
        ],
        ExchangePattern::Servers(setup) => servers(evidence, setup, reference, case),
    };
    let (unchanged, middle) = match evidence.pattern.has_owners() {
        true => ("compute and the rest of the step", "the step halfway between the limits"),
        false => ("compute, optimizer and the rest of the step", "from the bytes on the busiest link"),
    };
    lines.extend([
        "wait for the slowest rank: unchanged (lower limit), or grows as the expected maximum over more ranks or as the \
         exchange (upper limit)"
            .to_owned(),
        format!("unchanged: {unchanged}; the bandwidth of each host"),
        format!("range: both limits plus the 95 % spread of the runs; mid: {middle}"),
    ]);
    lines
}

/// Returns the assumptions for shards in `case`, which is predicted from the measured case `reference`; empty for other
/// strategies.
pub fn shards(evidence: &Evidence, reference: Option<Case>, case: Case) -> Vec<String> {
    let megabytes = |case: Case| format!("{:.1} MB for {case}", evidence.whole_cost(case).bytes / 1e6);
    let measured = reference.map_or_else(String::new, |reference| format!("{} (measured), ", megabytes(reference)));
    let (sums, gathers) = match evidence.pattern {
        ExchangePattern::Shards { sums, gathers } => (sums, gathers),
        ExchangePattern::HybridShards => {
            let host = Case { nodes: 1, ..case };
            return vec![
                "strategy hsdp: between hosts, an all-reduce of every rank's part of each bucket, which backward can hide"
                    .to_owned(),
                format!("bytes that each host sends to others per step: {measured}{}", megabytes(case)),
                format!(
                    "exchange inside a host: for each bucket reduce-scatters and all-gathers, exposed as in {host} on any \
                     number of hosts; the update of a rank's part is unchanged"
                ),
            ];
        }
        _ => return Vec::new(),
    };
    let passes = if sums > 1 { format!(" in each of {sums} passes") } else { String::new() };
    let gathered = match gathers {
        0 => "an all-gather of its weights after the update, which nothing hides".to_owned(),
        _ => format!("an all-gather of its weights in forward and again in backward{passes}, which compute can hide"),
    };
    let sender = match evidence.exchange.algorithm {
        Algorithm::Ring => "rank",
        Algorithm::Hosts => "host",
    };
    vec![
        format!(
            "strategy {}: for each bucket a reduce-scatter of its gradients{passes}, which backward can hide, and {gathered}",
            evidence.point.strategy
        ),
        format!("bytes that each {sender} sends per step, at most: {measured}{}", megabytes(case)),
        format!(
            "update of a rank: that of {} divided by the ranks; the rest of the optimizer phase is {}",
            evidence.base,
            if gathers == 0 { "the all-gather" } else { "the start of the first all-gather" }
        ),
    ]
}

/// Describes how buckets move to owners: on CPUs they are sent directly, to several owners concurrently.
fn buckets(evidence: &Evidence) -> &'static str {
    match (evidence.point.strategy, evidence.conditions) {
        (Strategy::Device, Some((DeviceKind::Cpu, _))) => {
            "buckets are sent directly to their owners, to several at the same time, and the weights are returned"
        }
        _ => "buckets are sent to their owners one after the other, and the weights are returned",
    }
}

fn servers(evidence: &Evidence, setup: &ServerSetup, reference: Case, case: Case) -> Vec<String> {
    let count = |number: u32| number_text::count(number, "server");
    let link = |case: Case, number: u32| {
        let bytes = setup.servers_for(case, number).busiest_link();
        format!("{:.1} MB for {case} with {}", bytes / 1e6, count(number))
    };
    let measured = link(reference, setup.measured_number(reference));
    let requested = link(case, setup.requested_number(case));
    let number = match (setup.requested, setup.number) {
        (Some(requested), _) => format!("{}, from --servers", count(requested)),
        (None, Some(number)) => format!("{}, as measured", count(number)),
        (None, None) => "one server per host, as measured, but at most one per array of the network".to_owned(),
    };
    let place = match (setup.are_on_rank_hosts, setup.shared_hosts) {
        (true, None) => "distributed over the hosts of the ranks".to_owned(),
        (false, None) => "each on its own host".to_owned(),
        (true, Some(hosts)) => format!("distributed over at most {hosts} of the ranks' hosts, as measured"),
        (false, Some(hosts)) => format!("distributed over at most {hosts} hosts without ranks, as measured"),
    };
    vec![
        format!("strategy {}: {number}, {place}", evidence.point.strategy),
        format!("busiest link, per step in one direction: {measured} (measured), {requested}"),
        "limits of the exchange: the slowest and the fastest growth of its parts".to_owned(),
        "parts of the exchange: a round trip, the bytes on the busiest link, the messages of a rank and of a server, \
         additions and updates of a server, uplinks that half of the hosts share (square root of the hosts)"
            .to_owned(),
        "an additional message costs at most 1 ms".to_owned(),
        format!("hidden part of the exchange: {HIDDEN}"),
    ]
}
