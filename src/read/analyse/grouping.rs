//! Which runs may stand in one table: those of equal conditions; and what the tables are called. Not for figures.

use std::collections::BTreeMap;

use ringmark_record::config::{CollectiveChoice, Dtype};
use ringmark_record::files::MODEL;
use ringmark_record::run::Profile;
use serde_json::Value;

use crate::read::load::record::{RecordedConditions, Run};

/// What has to be equal for two runs to stand in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Conditions {
    /// Precision of the step.
    pub dtype: Dtype,
    /// Images a rank and iteration.
    pub batch_size: u32,
    /// What the records say; `None` for runs without one.
    pub recorded: Option<RecordedConditions>,
}

impl Conditions {
    /// Of the baselines of these runs.
    fn without_exchange(&self) -> Conditions {
        let mut conditions = self.clone();
        if let Some(recorded) = &mut conditions.recorded {
            recorded.config.exchange.collective = CollectiveChoice::None;
        }
        conditions
    }
}

/// Sorts runs by their conditions; a baseline goes to the runs that it is the baseline of. A run that does not count makes
/// no table of its own while there is one of its precision and batch size: it may have failed before it could record its
/// conditions.
pub fn group(mut runs: Vec<Run>) -> Vec<(Conditions, Vec<Run>)> {
    let mut groups: Vec<(Conditions, Vec<Run>)> = Vec::new();
    runs.sort_by_key(|run| (run.outcome.is_err(), run.found.name.baseline));
    for run in runs {
        let own = conditions(&run);
        let alike = |known: &Conditions| (known.dtype, known.batch_size) == (own.dtype, own.batch_size);
        let belongs = |known: &Conditions| match run.found.name.baseline {
            true => *known == own || known.without_exchange() == own,
            false => *known == own,
        };
        let index = groups.iter().position(|(known, _)| belongs(known)).or_else(|| match run.outcome {
            Ok(_) => None,
            Err(_) => groups.iter().position(|(known, _)| alike(known)),
        });
        match index {
            Some(index) => groups[index].1.push(run),
            None => groups.push((own, vec![run])),
        }
    }
    groups.sort_by_key(|(conditions, _)| {
        let recorded = conditions.recorded.as_ref().map(|recorded| (recorded.device.to_string(), recorded.profile));
        (conditions.dtype, conditions.batch_size, recorded)
    });
    groups
}

fn conditions(run: &Run) -> Conditions {
    let name = run.found.name;
    let recorded = run.recorded.as_ref().map(|recorded| recorded.conditions.clone());
    Conditions { dtype: name.dtype, batch_size: name.batch_size, recorded }
}

/// A name for each group: DLPerf's where there is one alone, otherwise by what tells the groups apart.
pub fn labels(groups: &[&Conditions]) -> Vec<String> {
    if groups.len() < 2 {
        return vec![MODEL.to_owned(); groups.len()];
    }
    let plain: Vec<String> = groups.iter().map(|conditions| plain_label(conditions)).collect();
    let settings: Vec<BTreeMap<String, Value>> = groups.iter().map(|conditions| settings(conditions)).collect();
    let label = |index: usize| {
        let mut label = plain[index].clone();
        for (setting, value) in &settings[index] {
            let differs = |other: usize| plain[other] == plain[index] && settings[other].get(setting) != Some(value);
            if (0..plain.len()).any(differs) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                label.push_str(&format!("_{setting}={text}"));
            }
        }
        label
    };
    (0..groups.len()).map(label).collect()
}

fn plain_label(conditions: &Conditions) -> String {
    let Conditions { dtype, batch_size, recorded } = conditions;
    match recorded {
        None => format!("{MODEL}_b{batch_size}_{dtype}"),
        Some(RecordedConditions { device, profile: Profile::Full, .. }) => {
            format!("{MODEL}_b{batch_size}_{dtype}_{device}")
        }
        Some(RecordedConditions { device, profile: Profile::Quick, .. }) => {
            format!("{MODEL}_b{batch_size}_{dtype}_{device}_quick")
        }
    }
}

/// The options that a group's runs share, by their names in the record; those at `null` are left out.
pub fn settings(conditions: &Conditions) -> BTreeMap<String, Value> {
    let config = conditions.recorded.as_ref().and_then(|recorded| serde_json::to_value(&recorded.config).ok());
    let Some(Value::Object(mut fields)) = config else {
        return BTreeMap::new();
    };
    // One may differ from run to run, the other is told apart as the kind of device.
    fields.retain(|field, value| !value.is_null() && field != "seed" && field != "device");
    fields.into_iter().collect()
}
