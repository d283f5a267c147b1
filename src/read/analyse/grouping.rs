//! Which runs may stand in one table: those of equal conditions; and what the tables are called. Not for figures.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::kv_store::KvStoreConfig;
use ringmark_core::dimension::{Dtype, KvStore, Model};
use ringmark_core::line::other_tool::tool::Tool;
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::Serialize;
use serde_json::Value;

use crate::read::load::run::{RecordedConditions, Run};

/// Options, by their names in records, that are axes of a table by batch size.
pub const AXES: [&str; 3] = ["model", "dtype", "batch_size"];

/// What has to be equal for two runs to stand in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Network.
    pub model: Model,
    /// Precision of the step.
    pub dtype: Dtype,
    /// Images a rank and iteration.
    pub batch_size: u32,
    /// Where gradients are summed and weights updated: as the record says, and without one as the name does.
    pub kv_store: KvStore,
    /// What the records say; `None` for runs without one.
    pub recorded: Option<RecordedConditions>,
    /// The tool that wrote the logs, where they have rates of windows: none of its figures is one of single iterations.
    pub tool: Option<Tool>,
}

impl Conditions {
    /// Of the baselines of these runs.
    fn without_exchange(&self) -> Conditions {
        let mut conditions = self.clone();
        if let Some(recorded) = &mut conditions.recorded {
            recorded.config = recorded.config.without_exchange();
            conditions.kv_store = recorded.config.kv_store.kv_store;
        }
        conditions
    }

    /// The same with `ring`.
    pub fn of_ring(&self) -> Conditions {
        let mut conditions = Conditions { kv_store: KvStore::Ring, ..self.clone() };
        if let Some(recorded) = &mut conditions.recorded {
            recorded.config.kv_store = KvStoreConfig::default();
            recorded.config.exchange = recorded.config.exchange.on(recorded.device, KvStore::Ring);
        }
        conditions
    }
}

/// Sorts runs by their conditions; a baseline goes to the runs that it is the baseline of. A run that does not count makes
/// no table of its own while there is one of its precision, batch size and kv-store: it may have failed before it could record its
/// conditions.
pub fn group(mut runs: Vec<Run>) -> Vec<(Conditions, Vec<Run>)> {
    let mut groups: Vec<(Conditions, Vec<Run>)> = Vec::new();
    runs.sort_by_key(|run| (run.outcome.is_err(), run.found.name.baseline));
    settle_servers(&mut runs);
    for run in runs {
        let own = conditions(&run);
        let point = |it: &Conditions| (it.model, it.dtype, it.batch_size);
        let alike = |known: &Conditions| point(known) == point(&own) && known.kv_store == own.kv_store;
        // The name of before kv-stores were part of names says nothing of them.
        let may_be_alike = |known: &Conditions| point(known) == point(&own) && own.kv_store.is_ring();
        let belongs = |known: &Conditions| match run.found.name.baseline {
            true => *known == own || known.without_exchange() == own,
            false => *known == own,
        };
        let index = groups.iter().position(|(known, _)| belongs(known)).or_else(|| match run.outcome {
            Ok(_) => None,
            Err(_) => {
                let named = groups.iter().position(|(known, _)| alike(known));
                named.or_else(|| groups.iter().position(|(known, _)| may_be_alike(known)))
            }
        });
        match index {
            Some(index) => groups[index].1.push(run),
            None => groups.push((own, vec![run])),
        }
    }
    groups.sort_by_key(|(conditions, _)| {
        let recorded = conditions.recorded.as_ref().map(|recorded| (recorded.device.to_string(), recorded.profile));
        (conditions.model, conditions.dtype, conditions.batch_size, conditions.kv_store, recorded, conditions.tool)
    });
    groups
}

/// One server for each host of the case, which a sweep starts where nobody says how many, is one condition in all cases: then
/// none says a number.
fn settle_servers(runs: &mut [Run]) {
    let with_servers = |run: &Run| {
        let servers = run.recorded.as_ref()?.conditions.config.kv_store.servers?;
        let mut without = conditions(run);
        without.recorded.iter_mut().for_each(|recorded| recorded.config.kv_store.servers = None);
        Some((without, servers, run.found.name.case.nodes))
    };
    let all: Vec<Option<(Conditions, u32, u32)>> = runs.iter().map(with_servers).collect();
    for (run, own) in runs.iter_mut().zip(&all) {
        let (Some((own, ..)), Some(recorded)) = (own, &mut run.recorded) else { continue };
        let alike = || all.iter().flatten().filter(|(known, ..)| known == own);
        let numbers: BTreeSet<u32> = alike().map(|(_, servers, _)| *servers).collect();
        if numbers.len() > 1 && alike().all(|(_, servers, hosts)| servers == hosts) {
            recorded.conditions.config.kv_store.servers = None;
        }
    }
}

fn conditions(run: &Run) -> Conditions {
    let name = run.found.name;
    let recorded = run.recorded.as_ref().map(|recorded| recorded.conditions.clone());
    let tool = run.outcome.as_ref().ok().and_then(|measured| Some(measured.figures.windows?.tool));
    let in_record = run.recorded.as_ref().map(|recorded| recorded.conditions.config.kv_store.kv_store);
    let kv_store = in_record.unwrap_or(name.kv_store);
    Conditions { model: name.model, dtype: name.dtype, batch_size: name.batch_size, kv_store, recorded, tool }
}

/// A name for each group: the model's, as files have it, where there is one alone, otherwise what distinguishes
/// the groups.
pub fn labels(groups: &[&Conditions]) -> Vec<String> {
    if let [alone] = groups {
        return vec![alone.model.facts().file_name.to_owned()];
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

fn plain_label(conditions: &Conditions) -> String {
    let Conditions { model, dtype, batch_size, kv_store, recorded, .. } = conditions;
    let kv_store = if kv_store.is_ring() { String::new() } else { format!("_{}", kv_store.file_name()) };
    let shared = format!("{}_b{batch_size}_{dtype}{kv_store}", model.facts().file_name);
    match recorded {
        None => shared,
        Some(RecordedConditions { device, profile: RunProfile::Full, .. }) => format!("{shared}_{device}"),
        Some(RecordedConditions { device, profile: RunProfile::Quick, .. }) => format!("{shared}_{device}_quick"),
    }
}

/// Those of these `settings` that are not the same in all `others`, each as `name=value`.
pub fn differing(settings: &BTreeMap<String, Value>, others: &[&BTreeMap<String, Value>]) -> Vec<String> {
    let differs = |(name, value): &(&String, &Value)| others.iter().any(|other| other.get(*name) != Some(value));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    settings.iter().filter(differs).map(|(name, value)| format!("{name}={}", text(value))).collect()
}

/// The options that a group's runs share, by their names in the record; of logs of another tool its name, as `log`.
pub fn settings(conditions: &Conditions) -> BTreeMap<String, Value> {
    let mut settings = conditions.recorded.as_ref().map(|recorded| fields(&recorded.config)).unwrap_or_default();
    settings.extend(conditions.tool.map(|tool| ("log".to_owned(), Value::from(tool.keyword()))));
    settings
}

/// A benchmark's configuration by the names in its record. Without those at `null`, and without seed, which may differ from
/// run to run, and device, whose kind distinguishes runs.
pub fn fields(config: &impl Serialize) -> BTreeMap<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(config) else {
        return BTreeMap::new();
    };
    fields.retain(|field, value| !value.is_null() && field != "seed" && field != "device");
    fields.into_iter().collect()
}
