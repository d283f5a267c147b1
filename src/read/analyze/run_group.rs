//! Groups of runs under equal conditions, for every benchmark.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::train::Recompute;
use ringmark_core::benchmark::{RunProfile, SweepRecord};
use ringmark_core::dimension::{DeviceKind, Model, SampleSize, WorkUnit};
use ringmark_core::file::run_name::Point;
use serde_json::Value;

use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::utilization::Utilization;
use crate::read::load::device_rates::DeviceRates;
use crate::read::load::run::{Readable, RecordedConditions};

/// Cases under equal conditions: a group of training or a table of scoring.
pub trait RunGroup {
    /// Record of a run.
    type Record: Readable;
    /// Figures of a case.
    type Figures;

    /// Noun for a case.
    const CASE_NOUN: &'static str;

    /// Forward passes per sample, for the number of operations.
    const PASSES: f64;

    /// Returns the conditions in the records; `None` without records.
    fn recorded_conditions(&self) -> Option<&RecordedConditions<<Self::Record as SweepRecord>::Config>>;

    /// Returns the cases in the order of the tables.
    fn cases(&self) -> &[CaseOf<Self>];

    /// Returns the network, precision, batch size and strategy of a case.
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

    /// Returns the name of a case in reliability warnings.
    fn case_name(&self, case: &CaseOf<Self>) -> String;

    /// Returns the warnings about the group as a whole.
    fn warnings(&self) -> &[String];

    /// Returns a warning if the base is not 1n1g: readers expect speedups relative to a single rank. Speeds do not depend on
    /// it.
    fn base_warning(&self) -> Option<String> {
        None
    }

    /// Returns the reasons why all figures of the group are unreliable.
    fn reliability_warnings(&self) -> &[ReliabilityWarning];

    /// Returns every case, each followed by its baseline.
    fn with_baselines<'a>(&'a self) -> impl Iterator<Item = &'a CaseOf<Self>>
    where
        CaseOf<Self>: 'a,
    {
        self.cases().iter().flat_map(|case| std::iter::once(case).chain(case.baseline.as_deref()))
    }

    /// Returns the reasons why the speed of a case is unreliable.
    fn speed_reliability_warnings<'a>(
        &'a self,
        case: &'a CaseOf<Self>,
    ) -> impl Iterator<Item = &'a ReliabilityWarning> {
        self.reliability_warnings().iter().chain(&case.speed_reliability_warnings)
    }

    /// Returns the reasons why any figure of a case is unreliable.
    fn reliability_warnings_of<'a>(&'a self, case: &'a CaseOf<Self>) -> impl Iterator<Item = &'a ReliabilityWarning> {
        self.speed_reliability_warnings(case).chain(&case.scaling_reliability_warnings)
    }

    /// Returns true if the speed of a case, and every figure that follows from it, is reliable.
    fn is_speed_reliable(&self, case: &CaseOf<Self>) -> bool {
        self.speed_reliability_warnings(case).next().is_none()
    }

    /// Returns the assessment of all figures. Warnings about the group replace those about its cases.
    fn assessment(&self) -> Assessment {
        let cases = || self.cases().iter();
        let of_case = |case: &CaseOf<Self>| {
            let name = self.case_name(case);
            let own = case.reliability_warnings().map(|warning| warning.to(&name));
            let baseline = case.baseline.iter().flat_map(|baseline| baseline.reliability_warnings());
            // An unreliable base affects both in the same way.
            let baseline = baseline.filter(|warning| !case.scaling_reliability_warnings.contains(warning));
            own.chain(baseline.map(|warning| warning.to(format!("{name} baseline")))).collect::<Vec<_>>()
        };
        let of_cases: Vec<ReliabilityWarning> = cases().flat_map(of_case).collect();
        let of_runs: Vec<String> = self.with_baselines().flat_map(CaseOf::<Self>::other_warnings).collect();
        let single_runs = self.with_baselines().filter(|case| case.counted().count() == 1);
        let counted = self.with_baselines().map(|case| case.counted().count()).sum();
        Assessment {
            runs: self.with_baselines().map(CaseOf::<Self>::expected).sum(),
            counted,
            lacks_records: counted > 0 && self.recorded_conditions().is_none(),
            warnings: self.base_warning().into_iter().chain(self.warnings().to_vec()).chain(of_runs).collect(),
            reliability_warnings: [self.reliability_warnings(), &of_cases].concat(),
            single_runs: single_runs.map(|case| case.title.clone()).collect(),
            case_noun: Self::CASE_NOUN,
            spreads: cases().filter_map(|case| case.speeds().cv()).collect(),
            checks: Vec::new(),
        }
    }

    /// Returns the utilization of the devices in a case; `None` if no run counts or without records.
    fn utilization(&self, case: &CaseOf<Self>) -> Option<Utilization> {
        let runs: Vec<DeviceRates> = case.counted().map(|run| run.device_rates).collect();
        let network = (self.point(case).model, self.sample_size(case)?);
        if !network.0.facts().is_known() {
            return None;
        }
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
