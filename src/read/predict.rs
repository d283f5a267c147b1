//! `ringmark predict`: predictions of larger cases from a sweep and a bandwidth result.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::dimension::{Case, Operation, Strategy};
use ringmark_core::options::usage::usage;

use crate::output::message::print_error;
use crate::output::{self, Json};
use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::exchange_pattern::ExchangePattern;
use crate::read::analyze::prediction::outlook::Outlook;
use crate::read::analyze::prediction::{model, search};
use crate::read::analyze::published::scaling;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::benchmark::bandwidth::load as bandwidth;
use crate::read::load::folder::Reader;
use crate::read::results;
use crate::read::show::prediction::{json, text};

/// Options of `ringmark predict`.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictConfig {
    /// Folder of a sweep; `None` uses the published rows.
    pub sweep: Option<PathBuf>,
    /// Folder of `ringmark bandwidth`.
    pub bandwidth: Option<PathBuf>,
    /// Requested cases. `None` doubles the hosts of the largest measured case three times, unless a search or a
    /// backtest is requested.
    pub cases: Option<Vec<Case>>,
    /// The only strategy to predict; `None` predicts every strategy of the sweep.
    pub strategy: Option<Strategy>,
    /// Number of servers to predict for; `None` keeps the measured number.
    pub servers: Option<u32>,
    /// Threshold for a search: the case at which the efficiency falls below it.
    pub efficiency_below: Option<f64>,
    /// True to predict the largest measured case from the others.
    pub backtest: bool,
    /// Number of warm-up iterations to exclude; `None` uses that of the records (or DLPerf's).
    pub warmup: Option<u32>,
    /// True to print the basis of each prediction.
    pub is_explained: bool,
    /// Destination of the JSON output.
    pub json: Json,
}

/// Prints the predictions. Fails if any requested case cannot be predicted, after printing the others.
pub fn run(config: &PredictConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let outlooks: Vec<Outlook> =
        evidence(config)?.into_iter().map(|(evidence, caveat)| outlook(config, evidence, caveat)).collect();
    if !config.json.write(&json::json(&outlooks))? {
        output::print(&text::text(&outlooks, config.is_explained))?;
    }
    let mut refused: Vec<String> = Vec::new();
    for message in outlooks.iter().flat_map(Outlook::refusals) {
        // Strategies of a sweep lack the same cases.
        if !refused.contains(&message) {
            refused.push(message);
        }
    }
    match refused.as_slice() {
        [] => Ok(()),
        [one] => bail!("{one}"),
        several => {
            several.iter().for_each(|refused| print_error(&refused.to_string()));
            bail!("some predictions failed: see the {} messages above", several.len())
        }
    }
}

/// Returns the evidence of every group in the folder, or of every published row, with its limitation.
fn evidence(config: &PredictConfig) -> anyhow::Result<Vec<(Evidence, Option<&'static str>)>> {
    let Some(sweep) = &config.sweep else {
        return Ok(scaling::DLPERF.iter().map(|row| (Evidence::from_published(row), row.caveat)).collect());
    };
    let result = results::read_training_for(Reader::Predict, sweep, config.warmup)?;
    let mut problems = result.problems.clone();
    let bandwidth = config.bandwidth.as_deref().map(bandwidth::read).transpose()?;
    let (records, unsound) = bandwidth.map_or_else(Default::default, |result| (result.cases, result.problems));
    problems.extend(unsound);
    problems.iter().for_each(|problem| print_error(&format!("not used: {problem}")));
    let mut evidence = evidence_from_groups(config, sweep, result.training())?;
    evidence.iter_mut().for_each(|evidence| evidence.resume_command.clone_from(&result.resume_command));
    check_operations(&records, &evidence).map_err(usage)?;
    evidence.into_iter().map(|evidence| Ok((evidence.with_bandwidth(&records)?, None))).collect()
}

/// Rejects a bandwidth result without a collective of the runs, and a case with only some of a strategy's collectives.
fn check_operations(records: &[(Case, BandwidthRecord)], evidence: &[Evidence]) -> anyhow::Result<()> {
    let mut of_cases: BTreeMap<Case, BTreeSet<Operation>> = BTreeMap::new();
    for (case, record) in records {
        of_cases.entry(*case).or_default().insert(record.config.operation);
    }
    let all: BTreeSet<Operation> = of_cases.values().flatten().copied().collect();
    let lacks_all = |evidence: &&Evidence, measured: &BTreeSet<Operation>| {
        evidence.pattern.operations().iter().all(|operation| !measured.contains(operation))
    };
    let lacks_some = |evidence: &&Evidence, measured: &BTreeSet<Operation>| {
        let lacks = |operation: &Operation| !measured.contains(operation);
        !lacks_all(evidence, measured) && evidence.pattern.operations().iter().any(lacks)
    };
    let partial = of_cases.iter().find(|(_, measured)| evidence.iter().any(|evidence| lacks_some(&evidence, measured)));
    let (measured, of_case, lacking): (_, _, Vec<&Evidence>) = match partial {
        Some((case, measured)) => {
            let lacking = evidence.iter().filter(|evidence| lacks_some(evidence, measured));
            (measured, format!(" for {case}"), lacking.collect())
        }
        None if !all.is_empty() && evidence.iter().all(|evidence| lacks_all(&evidence, &all)) => {
            (&all, String::new(), evidence.iter().collect())
        }
        None => return Ok(()),
    };
    let names = |operations: &BTreeSet<Operation>| {
        operations.iter().map(Operation::to_string).collect::<Vec<String>>().join(",")
    };
    let needed = names(&lacking.iter().flat_map(|evidence| evidence.pattern.operations()).copied().collect());
    let advice = match needed.as_str() {
        "" => "which has no collectives: omit --bandwidth".to_owned(),
        needed => format!("which needs {needed}: measure with --op {needed}"),
    };
    let (measured, strategies) = (names(measured), joined(lacking.iter().map(|evidence| evidence.point.strategy)));
    bail!("--bandwidth has the times of {measured}{of_case}, but these runs used --strategy {strategies}, {advice}")
}

/// Returns the evidence for the requested strategies, and prints a note for those that cannot be predicted.
fn evidence_from_groups(
    config: &PredictConfig,
    sweep: &Path,
    groups: &[TrainingGroup],
) -> anyhow::Result<Vec<Evidence>> {
    let is_requested =
        |group: &&TrainingGroup| config.strategy.is_none_or(|strategy| group.conditions.point.strategy == strategy);
    let requested: Vec<&TrainingGroup> = groups.iter().filter(is_requested).collect();
    if let (Some(strategy), []) = (config.strategy, &requested[..]) {
        bail!(usage(anyhow!(
            "no run used --strategy {strategy}, and its cost cannot be derived from other strategies: the runs used {}; \
             sweep these cases with --strategy {strategy}, or choose one that was measured",
            joined(groups.iter().map(|group| group.conditions.point.strategy))
        )));
    }
    if let Some(servers) = config.servers
        && !requested.iter().any(|group| group.conditions.point.strategy.has_servers())
    {
        bail!(usage(anyhow!(
            "--servers {servers} applies to --strategy dist_sync and dist_device_sync, but these runs used {}: omit \
             --servers",
            joined(requested.iter().map(|group| group.conditions.point.strategy))
        )));
    }
    let (mut evidence, mut unread) = (Vec::new(), Vec::new());
    for group in requested {
        let strategy = group.conditions.point.strategy;
        let pattern = ExchangePattern::from_group(group)
            .map_err(|why| format!("{}: strategy {strategy} is not predicted from these runs: {why}", group.label));
        match (pattern, config.servers) {
            (Ok(pattern), Some(servers)) => {
                evidence.extend(Evidence::from_group(group, pattern.with_servers(servers).map_err(usage)?));
            }
            (Ok(pattern), None) => evidence.extend(Evidence::from_group(group, pattern)),
            (Err(why), _) => unread.push(why),
        }
    }
    if let (true, [first, ..]) = (evidence.is_empty(), &unread[..]) {
        bail!(usage(anyhow!("{first}")));
    }
    unread.iter().for_each(|unread| print_error(&format!("not used: {unread}")));
    ensure!(!evidence.is_empty(), "no run of {} counts: see the messages above", sweep.display());
    Ok(evidence)
}

/// Joins the distinct names.
fn joined(strategies: impl Iterator<Item = Strategy>) -> String {
    let names: Vec<String> = strategies.collect::<BTreeSet<Strategy>>().iter().map(Strategy::to_string).collect();
    names.join(", ")
}

fn outlook(config: &PredictConfig, evidence: Evidence, caveat: Option<&'static str>) -> Outlook {
    let asks_otherwise = config.efficiency_below.is_some() || config.backtest;
    let cases = match &config.cases {
        Some(cases) => cases.clone(),
        None if asks_otherwise => Vec::new(),
        None => default_cases(&evidence),
    };
    let without_straggler = evidence.without_straggler().map_or_else(Vec::new, |evidence| {
        let all = cases.iter().filter_map(|case| model::predict(&evidence, *case).ok());
        all.filter(|prediction| prediction.reference.is_some()).collect()
    });
    Outlook {
        without_straggler,
        predictions: cases.into_iter().map(|case| model::predict(&evidence, case)).collect(),
        under: config.efficiency_below.map(|efficiency| search::under(&evidence, efficiency)),
        backtest: config.backtest.then(|| search::backtest(&evidence)),
        evidence,
        caveat,
    }
}

/// Returns the cases with two, four and eight times the hosts of the largest measured case. That case itself comes
/// first if other servers are requested, because it was not measured with them.
fn default_cases(evidence: &Evidence) -> Vec<Case> {
    let largest = evidence.cases.last().map_or(evidence.base, |measured| measured.case);
    let itself = (!evidence.pattern.is_as_measured(largest)).then_some(largest);
    itself.into_iter().chain([2, 4, 8].map(|times| Case { nodes: times * largest.nodes, ..largest })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_strategies_are_joined_once() {
        let groups = [Strategy::AllReduce, Strategy::Device, Strategy::AllReduce, Strategy::Device];
        assert_eq!(joined(groups.into_iter()), "all-reduce, device");
    }
}
