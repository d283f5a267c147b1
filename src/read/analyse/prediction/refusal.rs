//! Why a case cannot be predicted, and the command that measures what is missing.

use ringmark_core::dimension::{Case, Model};
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyse::prediction::evidence::Evidence;
use crate::read::analyse::prediction::strategy::Strategy;

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// The case.
    pub case: Case,
    /// What was never measured.
    #[serde(rename = "reason")]
    pub why: String,
    /// What to measure.
    pub command: String,
}

/// The command that would measure what is missing, hosts to be filled in.
pub fn refusal(evidence: &Evidence, case: Case, why: String, missing: &[Case]) -> Refusal {
    let cases: Vec<String> = missing.iter().map(Case::to_string).collect();
    let nodes = missing.iter().map(|case| case.nodes).max().unwrap_or(1);
    let hosts: Vec<String> = (1..=nodes).map(|host| format!("HOST{host}:{}", case.gpus_per_node)).collect();
    let hosts = if nodes > 1 { format!(" --hosts {}", hosts.join(",")) } else { String::new() };
    let servers = servers(evidence, Case { nodes, ..case });
    let Evidence { model, batch_size, dtype, kv_store, .. } = evidence;
    // The default says nothing.
    let model = if *model == Model::default() { String::new() } else { format!(" --model {model}") };
    let cases = cases.join(",");
    let kv_store = if kv_store.is_ring() { String::new() } else { format!(" --kv-store {kv_store}") };
    let command = format!(
        "ringmark sweep --cases {cases}{model} --batch-size {batch_size} --dtype {dtype}{kv_store}{servers}{hosts}"
    );
    Refusal { case, why, command }
}

/// As many servers as were measured, on the kind of hosts that they had: others make a table of their own.
fn servers(evidence: &Evidence, largest: Case) -> String {
    let Strategy::Servers(setup) = &evidence.strategy else { return String::new() };
    let number = setup.number.map_or_else(String::new, |number| format!(" --servers {number}"));
    let name = match (setup.are_on_rank_hosts, setup.shared_hosts) {
        (false, _) => "SERVER",
        (true, Some(_)) if largest.nodes > 1 => "HOST",
        // What a sweep does by itself.
        (true, _) => return number,
    };
    let hosts = 1..=setup.assumed_hosts(largest, setup.measured_number(largest));
    let hosts: Vec<String> = hosts.map(|host| format!("{name}{host}")).collect();
    format!("{number} --server-hosts {}", hosts.join(","))
}

/// That no case of the same ranks a host was measured from which it could grow.
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
