//! Groups of runs under equal conditions, for every benchmark.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::train::Recompute;
use ringmark_core::benchmark::{RunProfile, SweepRecord};
use ringmark_core::dimension::{DeviceKind, Model, SampleSize, WorkUnit};
use ringmark_core::file::run_name::Point;
use serde_json::Value;

use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::utilization::Utilization;
use crate::read::load::record::DeviceRates;
use crate::read::load::run::{Readable, RecordedConditions};

/// Cases under equal conditions: a group of training or a table of scoring.
pub trait RunGroup {
    /// Record of a run.
    type Record: Readable;
    /// Figures of a case.
    type Figures;

    /// Forward passes per sample, for the number of operations.
    const PASSES: f64;

    /// Returns the conditions in the records; `None` without records.
    fn recorded_conditions(&self) -> Option<&RecordedConditions<<Self::Record as SweepRecord>::Config>>;

    /// Returns the cases in the order of the tables.
    fn cases(&self) -> &[CaseOf<Self>];

    /// Returns the network, precision, batch size and kv-store of a case.
    fn point(&self, case: &CaseOf<Self>) -> Point;

    /// Returns the unit of the speeds.
    fn unit(&self) -> WorkUnit {
        self.cases().first().map(|case| self.point(case).batch.unit()).unwrap_or_default()
    }

    /// Returns the size of the samples of a case; `None` without records.
    fn sample_size(&self, case: &CaseOf<Self>) -> Option<SampleSize>;

    /// Returns the options of a case's runs by their names in records.
    fn settings_of(&self, case: &CaseOf<Self>) -> BTreeMap<String, Value>;

    /// Returns the names of the devices of a case.
    fn device_names_of(&self, case: &CaseOf<Self>) -> BTreeSet<String>;

    /// Returns the warnings about all cases.
    fn warnings(&self) -> &[String];

    /// Returns the reasons why any figure of a case is unreliable.
    fn reliability_warnings_of<'a>(&'a self, case: &'a CaseOf<Self>) -> impl Iterator<Item = &'a ReliabilityWarning>;

    /// Returns true if the speed of a case, and every figure that follows from it, is reliable.
    fn is_speed_reliable(&self, case: &CaseOf<Self>) -> bool {
        self.reliability_warnings_of(case).next().is_none()
    }

    /// Returns the utilization of the devices in a case; `None` if no run counts or without records.
    fn utilization(&self, case: &CaseOf<Self>) -> Option<Utilization> {
        let runs: Vec<DeviceRates> = case.counted().map(|run| run.device_rates).collect();
        let network = (self.point(case).model, self.sample_size(case)?);
        Some(Utilization::new(network, Self::PASSES, case.speed()?, &runs, self.recompute()))
    }

    /// Returns the activations that backward computes again.
    fn recompute(&self) -> Recompute {
        Recompute::None
    }

    /// Returns the kind of all devices; `None` without records.
    fn device(&self) -> Option<DeviceKind> {
        self.recorded_conditions().map(|recorded| recorded.device)
    }

    /// Returns the profile of all runs; `None` without records.
    fn profile(&self) -> Option<RunProfile> {
        self.recorded_conditions().map(|recorded| recorded.profile)
    }

    /// Returns true if the runs used the quick profile, which is not a measurement.
    fn is_quick(&self) -> bool {
        self.profile() == Some(RunProfile::Quick)
    }
}

/// Returns all networks.
pub fn models<G: RunGroup>(groups: &[G]) -> BTreeSet<Model> {
    groups.iter().flat_map(|group| group.cases().iter().map(|case| group.point(case).model)).collect()
}

/// Groups items by their conditions, in the order of their first items. `rank` rates how well a group of known conditions
/// fits an item with its own conditions: the item joins the first group with the lowest rank, and none without a rank.
pub fn group<K, T>(
    items: impl IntoIterator<Item = T>,
    conditions: impl Fn(&T) -> K,
    rank: impl Fn((&K, &[T]), (&K, &T)) -> Option<u8>,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let own = conditions(&item);
        let ranked = groups.iter().enumerate();
        let ranked = ranked.filter_map(|(index, (known, items))| Some((rank((known, items), (&own, &item))?, index)));
        match ranked.min() {
            Some((_, index)) => groups[index].1.push(item),
            None => groups.push((own, vec![item])),
        }
    }
    groups
}

/// A case of a group.
pub type CaseOf<G> = CaseRuns<<G as RunGroup>::Record, <G as RunGroup>::Figures>;
