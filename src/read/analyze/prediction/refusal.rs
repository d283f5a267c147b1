//! Reasons why a case cannot be predicted, and commands that measure the missing cases.

use ringmark_core::dimension::{Case, Model};
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::strategy::Strategy;

/// Reason for a missing prediction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// Case that cannot be predicted.
    pub case: Case,
    /// Description of the missing measurement.
    #[serde(rename = "reason")]
    pub why: String,
    /// Command that measures it.
    pub command: String,
}

/// Returns a refusal with the command that measures the `missing` cases; its host names are placeholders.
pub fn refusal(evidence: &Evidence, case: Case, why: String, missing: &[Case]) -> Refusal {
    let cases: Vec<String> = missing.iter().map(Case::to_string).collect();
    let nodes = missing.iter().map(|case| case.nodes).max().unwrap_or(1);
    let hosts: Vec<String> = (1..=nodes).map(|host| format!("HOST{host}:{}", case.gpus_per_node)).collect();
    let hosts = if nodes > 1 { format!(" --hosts {}", hosts.join(",")) } else { String::new() };
    let servers = servers(evidence, Case { nodes, ..case });
    let Evidence { model, batch_size, dtype, kv_store, .. } = evidence;
    // The default is left out.
    let model = if *model == Model::default() { String::new() } else { format!(" --model {model}") };
    let cases = cases.join(",");
    let kv_store = if kv_store.is_ring() { String::new() } else { format!(" --kv-store {kv_store}") };
    let command = format!(
        "ringmark sweep --cases {cases}{model} --batch-size {batch_size} --dtype {dtype}{kv_store}{servers}{hosts}"
    );
    Refusal { case, why, command }
}

/// Returns the options for the same number of servers on the same kind of hosts as measured. Runs with other servers
/// would be in a separate table.
fn servers(evidence: &Evidence, largest: Case) -> String {
    let Strategy::Servers(setup) = &evidence.strategy else { return String::new() };
    let number = setup.number.map_or_else(String::new, |number| format!(" --servers {number}"));
    let name = match (setup.are_on_rank_hosts, setup.shared_hosts) {
        (false, _) => "SERVER",
        (true, Some(_)) if largest.nodes > 1 => "HOST",
        // The default of a sweep.
        (true, _) => return number,
    };
    let hosts = 1..=setup.assumed_hosts(largest, setup.measured_number(largest));
    let hosts: Vec<String> = hosts.map(|host| format!("{name}{host}")).collect();
    format!("{number} --server-hosts {}", hosts.join(","))
}

/// Returns the refusal for a number of ranks per host that no suitable case was measured with.
pub fn level_not_measured(evidence: &Evidence, case: Case) -> Refusal {
    let gpus = case.gpus_per_node;
    let most = evidence.cases.iter().map(|measured| measured.case.gpus_per_node).max().unwrap_or(0);
    let several: Vec<String> =
        evidence.cases.iter().filter(|case| case.case.nodes > 1).map(|case| case.case.to_string()).collect();
    let (one, two) = (Case { nodes: 1, gpus_per_node: gpus }, Case { nodes: 2, gpus_per_node: gpus });
    let why = match (case.nodes, gpus > most) {
        (_, true) => format!(
            "no host was measured with more than {most} ranks, and how {gpus} ranks slow each other cannot be derived \
             from fewer"
        ),
        (1, false) => {
            format!("no host was measured with {gpus} ranks, and how they slow each other is unknown")
        }
        (_, false) if several.is_empty() => {
            "no multi-host case was measured, so the network between hosts is unknown".to_owned()
        }
        (_, false) => format!(
            "several hosts were measured ({}), but none with {gpus} ranks each: how many share a host's network card \
             changes what it gives",
            several.join(", ")
        ),
    };
    let missing: Vec<Case> = if case.nodes == 1 { vec![one] } else { vec![one, two] };
    let missing: Vec<Case> = missing.into_iter().filter(|case| evidence.case(*case).is_none()).collect();
    refusal(evidence, case, why, &missing)
}
