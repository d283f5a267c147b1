//! Reasons why a case cannot be predicted, and commands that measure the missing cases.

use ringmark_core::dimension::{Case, Model};
use ringmark_core::file::run_name::Point;
use ringmark_core::host::{host_list, is_loopback};
use ringmark_core::number_text::count;
use ringmark_core::shell::CommandWords;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::exchange_pattern::ExchangePattern;

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

/// Returns the command that adds the `missing` cases to a sweep with its own options. It names hosts only if they can run
/// the cases; others are placeholders. More hosts may follow those of a sweep. With another first host, or another part
/// of the cores for each rank, the sweep needs a new folder.
///
/// Also returns the number of cores that a host needs, if the measured ones have fewer.
fn extended(command: &CommandWords, evidence: &Evidence, missing: &[Case]) -> (String, Option<u32>) {
    let mut cases: Vec<Case> = evidence.cases.iter().map(|measured| measured.case).collect();
    cases.extend(missing.iter().filter(|case| evidence.case(**case).is_none()));
    cases.sort_by_key(|case| (case.ranks(), *case));
    let names: Vec<String> = cases.iter().map(Case::to_string).collect();
    let (nodes, gpus) = most(cases.iter());
    let (measured_nodes, measured_gpus) = most(evidence.cases.iter().map(|measured| &measured.case));
    let threads = command.value("--threads").and_then(|threads| threads.parse().ok()).unwrap_or(1);
    let needed = evidence.cores.filter(|cores| gpus * threads > *cores).map(|_| gpus * threads);
    let mut known = known_hosts(command);
    let is_here = known.iter().all(|name| is_loopback(name))
        && !["--hostfile", "--launcher"].iter().any(|option| command.has(option));
    known.retain(|name| needed.is_none() && (nodes == 1 || !is_loopback(name)));
    // The path of the program is that of the machine which ran the sweep.
    let mut command = command.clone().with_program("ringmark").without("--cases").with("--cases", names.join(","));
    if nodes > measured_nodes || gpus > measured_gpus {
        command = ["--hosts", "-H", "--hostfile"].into_iter().fold(command, CommandWords::without);
        // By default, a machine without GPUs has a slot for each core.
        if !(is_here && nodes == 1 && needed.is_none() && evidence.cores.is_some()) {
            command = command.with("--hosts", hosts(&known, nodes, gpus));
        }
        if known.is_empty() || (evidence.cores.is_some() && gpus > measured_gpus) {
            command = command.without_flag("--resume").without("--out").without("-o").with("--out", "NEW_FOLDER");
        }
    }
    (command.to_string(), needed)
}

/// Returns the largest numbers of nodes and of ranks per node.
fn most<'a>(cases: impl Iterator<Item = &'a Case>) -> (u32, u32) {
    cases.fold((0, 0), |(nodes, gpus), case| (nodes.max(case.nodes), gpus.max(case.gpus_per_node)))
}

/// Returns a list of `nodes` hosts: the known ones, then placeholders.
fn hosts(known: &[String], nodes: u32, gpus: u32) -> String {
    let placeholders = (1 + known.len()..).map(|number| format!("HOST{number}"));
    let names = known.iter().cloned().chain(placeholders).take(nodes as usize);
    names.map(|name| format!("{name}:{gpus}")).collect::<Vec<String>>().join(",")
}

/// Returns the names of the hosts in a command.
fn known_hosts(command: &CommandWords) -> Vec<String> {
    let list = command.value("--hosts").or_else(|| command.value("-H")).unwrap_or_default();
    let names = host_list::items(&list).map(|item| item.rsplit_once(':').map_or(item, |(name, _)| name));
    names.filter(|name| !name.is_empty()).flat_map(|name| host_list::expand(name).unwrap_or_default()).collect()
}

/// Returns a refusal with the command that measures the `missing` cases: that of the sweep if it is known.
pub fn refusal(evidence: &Evidence, case: Case, why: String, missing: &[Case]) -> Refusal {
    if let Some(command) = &evidence.resume_command {
        let (command, needed) = extended(command, evidence, missing);
        let needed = needed
            .map(|cores| format!("; use hosts with {cores} cores or more, because those of the sweep have fewer"));
        return Refusal { case, why: why + &needed.unwrap_or_default(), command };
    }
    let cases: Vec<String> = missing.iter().map(Case::to_string).collect();
    let (nodes, _) = most(missing.iter());
    let hosts = if nodes > 1 { format!(" --hosts {}", hosts(&[], nodes, case.gpus_per_node)) } else { String::new() };
    let servers = servers(evidence, Case { nodes, ..case });
    let Point { model, batch, dtype, strategy } = evidence.point;
    // The default is left out.
    let model = if model == Model::default() { String::new() } else { format!(" --model {model}") };
    let cases = cases.join(",");
    let strategy = if strategy.is_all_reduce() { String::new() } else { format!(" --strategy {strategy}") };
    let size = batch.size.number();
    let length = batch.sequence_length.map(|tokens| format!(" --sequence-length {tokens}")).unwrap_or_default();
    let command = format!(
        "ringmark sweep --cases {cases}{model} --batch-size {size}{length} --dtype {dtype}{strategy}{servers}{hosts}"
    );
    Refusal { case, why, command }
}

/// Returns the options for the same number of servers on the same kind of hosts as measured. Runs with other servers
/// would be in a separate table.
fn servers(evidence: &Evidence, largest: Case) -> String {
    let ExchangePattern::Servers(setup) = &evidence.pattern else { return String::new() };
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
            "no host was measured with more than {}, and the contention of {gpus} ranks cannot be derived \
             from fewer",
            count(most, "rank")
        ),
        (1, false) => {
            format!("no host was measured with {gpus} ranks, so their contention is unknown")
        }
        (_, false) if several.is_empty() => {
            "no multi-host case was measured, so the network between hosts is unknown".to_owned()
        }
        (_, false) => format!(
            "several hosts were measured ({}), but none with {gpus} ranks each: the bandwidth per rank depends on how \
             many ranks share a network card",
            several.join(", ")
        ),
    };
    let missing: Vec<Case> = if case.nodes == 1 { vec![one] } else { vec![one, two] };
    let missing: Vec<Case> = missing.into_iter().filter(|case| evidence.case(*case).is_none()).collect();
    refusal(evidence, case, why, &missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::analyze::prediction::evidence::CaseEvidence;
    use crate::read::analyze::published::scaling::DLPERF;

    fn measured(cases: &[&str], command: &str) -> Evidence {
        let mut evidence = Evidence::from_published(&DLPERF[0]);
        let template = evidence.cases[0].clone();
        let case = |name: &&str| CaseEvidence { case: name.parse().expect("a case"), ..template.clone() };
        evidence.cases = cases.iter().map(case).collect();
        evidence.resume_command = Some(shell_words::split(command).expect("words").into_iter().collect());
        evidence
    }

    #[test]
    fn command_adds_cases_to_the_sweep_with_its_own_options() {
        let options = "--quick --model resnet18 --batch-size 8 --dtype bf16 --threads 1";
        let command = format!("ringmark sweep {options} --cases 1n1g,1n2g --hosts 'node[1-2]:2' --out x --resume");
        let command_for = |command: &str, missing: &[&str]| {
            let evidence = measured(&["1n1g", "1n2g"], command);
            let missing: Vec<Case> = missing.iter().map(|case| case.parse().expect("a case")).collect();
            refusal(&evidence, missing[0], "why".to_owned(), &missing).command
        };
        assert_eq!(
            command_for(&command, &["2n2g", "4n2g"]),
            format!(
                "ringmark sweep {options} --out x --resume --cases 1n1g,1n2g,2n2g,4n2g --hosts \
                 node1:2,node2:2,HOST3:2,HOST4:2"
            )
        );
        assert_eq!(
            command_for("/opt/bin/ringmark sweep -H a:2 --cases=1n1g --resume", &["1n2g"]),
            "ringmark sweep -H a:2 --resume --cases 1n1g,1n2g"
        );
        assert_eq!(
            command_for("ringmark sweep --suite full --resume", &["1n4g"]),
            "ringmark sweep --suite full --cases 1n1g,1n2g,1n4g --hosts HOST1:4 --out NEW_FOLDER"
        );
        assert_eq!(
            command_for("ringmark sweep --hosts a:8 --resume", &["2n1g"]),
            "ringmark sweep --resume --cases 1n1g,1n2g,2n1g --hosts a:2,HOST2:2"
        );
    }

    #[test]
    fn hosts_have_a_core_for_each_rank() {
        let refusal_of = |command: &str, missing: &str| {
            let evidence = Evidence { cores: Some(4), ..measured(&["1n1g", "1n2g"], command) };
            let missing: Case = missing.parse().expect("a case");
            let Refusal { why, command, .. } = refusal(&evidence, missing, "why".to_owned(), &[missing]);
            format!("{why}: {command}")
        };
        // Each rank gets another part of the cores, in a new folder.
        for hosts in ["", "--hosts localhost:2 "] {
            assert_eq!(
                refusal_of(&format!("ringmark sweep {hosts}--out x --resume"), "1n4g"),
                "why: ringmark sweep --cases 1n1g,1n2g,1n4g --out NEW_FOLDER"
            );
        }
        let with_other_hosts = "--cases 1n1g,1n2g,1n8g --hosts HOST1:8 --out NEW_FOLDER";
        assert_eq!(
            refusal_of("ringmark sweep --hosts a:2 --out x --resume", "1n8g"),
            format!(
                "why; use hosts with 8 cores or more, because those of the sweep have fewer: ringmark sweep \
                 {with_other_hosts}"
            )
        );
        let threads = refusal_of("ringmark sweep --threads 2 --out x --resume", "1n4g");
        assert!(threads.starts_with("why; use hosts with 8 cores or more"), "{threads}");
        // Other hosts do not reach `localhost`.
        assert_eq!(
            refusal_of("ringmark sweep --hosts localhost:2 --out x --resume", "2n2g"),
            "why: ringmark sweep --cases 1n1g,1n2g,2n2g --hosts HOST1:2,HOST2:2 --out NEW_FOLDER"
        );
    }
}
