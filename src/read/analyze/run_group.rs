//! Groups of runs under equal conditions, for every benchmark.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::{RunProfile, SweepRecord};
use ringmark_core::dimension::DeviceKind;
use serde_json::Value;

use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::utilization::Utilization;
use crate::read::load::run::{Readable, RecordedConditions};

/// Cases under equal conditions: a group of training or a table of scoring.
pub trait RunGroup {
    /// Record of a run.
    type Record: Readable;
    /// Figures of a case.
    type Figures;

    /// Returns the conditions in the records; `None` without records.
    fn recorded_conditions(&self) -> Option<&RecordedConditions<<Self::Record as SweepRecord>::Config>>;

    /// Returns the cases in the order of the tables.
    fn cases(&self) -> &[CaseOf<Self>];

    /// Returns the options of a case's runs by their names in records.
    fn settings_of(&self, case: &CaseOf<Self>) -> BTreeMap<String, Value>;

    /// Returns the names of the devices of a case.
    fn device_names_of(&self, case: &CaseOf<Self>) -> BTreeSet<String>;

    /// Returns the utilization of the devices in a case; `None` if no run counts or without records.
    fn utilization(&self, case: &CaseOf<Self>) -> Option<Utilization>;

    /// Returns the warnings about all cases.
    fn warnings(&self) -> &[String];

    /// Returns the reasons why any figure of a case is unreliable.
    fn reliability_warnings_of<'a>(&'a self, case: &'a CaseOf<Self>) -> impl Iterator<Item = &'a ReliabilityWarning>;

    /// Returns true if all figures of a case are reliable.
    fn is_reliable(&self, case: &CaseOf<Self>) -> bool {
        case.figures.is_some() && self.reliability_warnings_of(case).next().is_none()
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

/// A case of a group.
pub type CaseOf<G> = CaseRuns<<G as RunGroup>::Record, <G as RunGroup>::Figures>;
