//! Groups runs with equal conditions into tables, and names the tables.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::benchmark::train::program::TO_THE_END;
use ringmark_core::benchmark::train::{ProgramConfig, ProgramRun};
use ringmark_core::dimension::{BatchSize, Strategy};
use ringmark_core::file::run_name::Point;
use ringmark_core::line::other_tool::tool::Tool;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::option_table;
use ringmark_core::shell;
use serde_json::Value;

use crate::read::analyze::run_group;
use crate::read::analyze::settings::{differing, fields};
use crate::read::load::run::{RecordedConditions, Run};

/// Conditions that must be equal for two runs to be in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConditions {
    /// Point of the sweep, with the strategy from the record or otherwise from the log's name.
    pub point: Point,
    /// Conditions in the records; `None` for runs without one.
    pub recorded: Option<RecordedConditions>,
    /// Tool that wrote the logs, if their rates are averages over windows; such runs have no figures of single
    /// iterations.
    pub tool: Option<Tool>,
}

impl GroupConditions {
    /// Returns the conditions of the baselines of these runs.
    fn without_exchange(&self) -> GroupConditions {
        let mut conditions = self.clone();
        if let Some(recorded) = &mut conditions.recorded {
            recorded.config = recorded.config.without_exchange();
            conditions.point.strategy = recorded.config.strategy.strategy;
        }
        conditions
    }

    /// Returns the program that trained instead of ringmark's own step.
    pub fn program(&self) -> Option<&ProgramConfig> {
        self.recorded.as_ref().map(|recorded| &recorded.config.program).filter(|program| program.is_used())
    }

    /// Returns the same conditions with `all-reduce`.
    pub fn with_all_reduce(&self) -> GroupConditions {
        let mut conditions = self.clone();
        conditions.point.strategy = Strategy::AllReduce;
        if let Some(recorded) = &mut conditions.recorded {
            recorded.config.strategy = StrategyConfig::default();
            recorded.config.exchange = recorded.config.exchange.on(recorded.device, Strategy::AllReduce);
        }
        conditions
    }
}

/// Groups runs by their conditions; a baseline joins the runs that it belongs to. A run that does not count gets no
/// table of its own if there is one with its precision, batch size and strategy: it may have failed before recording
/// its conditions.
pub fn group(mut runs: Vec<Run>) -> Vec<(GroupConditions, Vec<Run>)> {
    runs.sort_by_key(|run| (run.outcome.is_err(), run.found.name.baseline));
    drop_default_servers(&mut runs);
    let named = |it: &GroupConditions| Point { strategy: Strategy::AllReduce, ..it.point };
    let rank = |(known, _): (&GroupConditions, &[Run]), (own, run): (&GroupConditions, &Run)| {
        let is_named_alike = named(known) == named(own);
        match &run.outcome {
            _ if known == own || (run.found.name.baseline && known.without_exchange() == *own) => Some(0),
            Err(_) if known.point == own.point => Some(1),
            // Names from before strategies were part of them do not contain any.
            Err(_) if is_named_alike && own.point.strategy.is_all_reduce() => Some(2),
            _ => None,
        }
    };
    let mut groups = run_group::group(runs, conditions, rank);
    groups.sort_by_key(|(conditions, _)| {
        let recorded = conditions.recorded.as_ref().map(|recorded| (recorded.device.to_string(), recorded.profile));
        let Point { model, dtype, batch, strategy } = conditions.point;
        (model, dtype, batch, strategy, recorded, conditions.tool)
    });
    groups
}

/// Removes the number of servers if it varies but always equals the number of hosts. One server per host is the default
/// of a sweep and therefore one condition.
fn drop_default_servers(runs: &mut [Run]) {
    let with_servers = |run: &Run| {
        let servers = run.recorded.as_ref()?.conditions.config.strategy.servers?;
        let mut without = conditions(run);
        without.recorded.iter_mut().for_each(|recorded| recorded.config.strategy.servers = None);
        Some((without, servers, run.found.name.case.nodes))
    };
    let all: Vec<Option<(GroupConditions, u32, u32)>> = runs.iter().map(with_servers).collect();
    for (run, own) in runs.iter_mut().zip(&all) {
        let (Some((own, ..)), Some(recorded)) = (own, &mut run.recorded) else { continue };
        let alike = || all.iter().flatten().filter(|(known, ..)| known == own);
        let numbers: BTreeSet<u32> = alike().map(|(_, servers, _)| *servers).collect();
        if numbers.len() > 1 && alike().all(|(_, servers, hosts)| servers == hosts) {
            recorded.conditions.config.strategy.servers = None;
        }
    }
}

fn conditions(run: &Run) -> GroupConditions {
    let name = run.found.name;
    let recorded = run.recorded.as_ref().map(|recorded| recorded.conditions.clone());
    let tool = run.outcome.as_ref().ok().and_then(|measured| Some(measured.figures.windows?.tool));
    let in_record = run.recorded.as_ref().map(|recorded| recorded.conditions.config.strategy.strategy);
    let point = Point { strategy: in_record.unwrap_or(name.strategy), ..name.point() };
    GroupConditions { point, recorded, tool }
}

/// Returns a name for each group: the model's file name if there is a single group, otherwise what distinguishes the
/// groups.
pub fn labels(groups: &[&GroupConditions]) -> Vec<String> {
    if let [alone] = groups {
        return vec![alone.point.model.facts().file_name.to_owned()];
    }
    let plain: Vec<String> = groups.iter().map(|conditions| plain_label(conditions)).collect();
    let settings: Vec<BTreeMap<String, Value>> = groups.iter().map(|conditions| settings(conditions)).collect();
    let label = |index: usize| {
        let alike = (0..plain.len()).filter(|other| plain[*other] == plain[index]).map(|other| &settings[other]);
        let differing = differing(&settings[index], &alike.collect::<Vec<_>>());
        [vec![plain[index].clone()], differing].concat().join("_")
    };
    (0..groups.len()).map(label).collect()
}

fn plain_label(conditions: &GroupConditions) -> String {
    let Point { model, batch, dtype, strategy } = conditions.point;
    let strategy = if strategy.is_all_reduce() { String::new() } else { format!("_{}", strategy.file_name()) };
    let shared = format!("{}_{}_{dtype}{strategy}", model.facts().file_name, batch.file_part());
    match &conditions.recorded {
        None => shared,
        Some(RecordedConditions { device, profile: RunProfile::Full, .. }) => format!("{shared}_{device}"),
        Some(RecordedConditions { device, profile: RunProfile::Quick, .. }) => format!("{shared}_{device}_quick"),
    }
}

/// Returns the options that a group's runs share, by their names in the record. Logs of another tool have its name as
/// `log`.
pub fn settings(conditions: &GroupConditions) -> BTreeMap<String, Value> {
    let config = conditions.recorded.as_ref().map(|recorded| &recorded.config);
    let mut settings = config.map(fields).unwrap_or_default();
    if let Some(ProgramConfig { command, start, lines, .. }) = conditions.program() {
        // The other options are those of ringmark's own step.
        let is_stated = |name: &str| option_table::find::<ProgramRun>(&name.replace('_', "-")).is_some();
        settings.retain(|name, value| is_stated(name) && *value != TO_THE_END);
        let texts = [("program", shell::join(&command.0)), ("start", start.to_string()), ("lines", lines.to_string())];
        settings.extend(texts.map(|(name, text)| (name.to_owned(), Value::from(text))));
    }
    if matches!(conditions.point.batch.size, BatchSize::Global(_)) {
        // The part of a rank depends on the case.
        settings.remove("batch_size");
    }
    settings.extend(conditions.tool.map(|tool| ("log".to_owned(), Value::from(tool.keyword()))));
    settings
}
