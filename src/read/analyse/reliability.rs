//! Why figures are unreliable, and what to do about it. Thresholds and their reasons are in
//! [`ringmark_record::validity::thresholds`]. Not for what a reader should know of figures that stand: those are warnings.

use std::fmt;

use ringmark_record::benchmark::bandwidth::record::BandwidthRecord;
use ringmark_record::dimension::case::Case;
use ringmark_record::validity::observed::Observed;
use ringmark_record::validity::thresholds::{HEAVY_FOREIGN_LOAD, IMPOSSIBLE_EFFICIENCY, WILD_SPREAD};
use ringmark_record::validity::{self, ForeignLoad};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::load::folder::SweepFacts;

/// Why a figure is unreliable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReliabilityWarning {
    /// What was seen, with its value.
    pub reason: String,
    /// What to do.
    pub fix: String,
    /// True if it is about speedup and efficiency alone, and the speed is reliable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_scaling_alone: bool,
}

impl ReliabilityWarning {
    fn new(reason: String, fix: String) -> ReliabilityWarning {
        ReliabilityWarning { reason, fix, is_of_scaling_alone: false }
    }

    /// The same, its reason with what it is to.
    pub fn to(&self, what: impl fmt::Display) -> ReliabilityWarning {
        ReliabilityWarning { reason: format!("{what}: {}", self.reason), ..self.clone() }
    }

    /// Among warnings, where there is no other place for it.
    pub fn warning(&self) -> String {
        format!("unreliable: {self}")
    }
}

impl fmt::Display for ReliabilityWarning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.reason, self.fix)
    }
}

/// `repeat 1n1g: ringmark sweep .. --resume --repeat 1n1g`.
fn repeat(asked: &SweepFacts, case: Case) -> String {
    match &asked.resume_command {
        Some(command) => format!("repeat {case}: {command} --repeat {case}"),
        None => format!("repeat the runs of {case}"),
    }
}

/// To the speed of a case: how much its runs differ, and what else its hosts did in `loads`, by number of the run.
pub fn to_speed(
    case: Case,
    cv: Option<f64>,
    loads: &[(u32, Option<&ForeignLoad>)],
    asked: &SweepFacts,
) -> Vec<ReliabilityWarning> {
    let share = |load: &&ForeignLoad| load.share;
    let heavy = |load: &&ForeignLoad| load.share > HEAVY_FOREIGN_LOAD;
    let loaded: Vec<(u32, &ForeignLoad)> =
        loads.iter().filter_map(|(run, load)| Some((*run, load.filter(heavy)?))).collect();
    let worst = loaded.iter().max_by(|one, other| share(&one.1).total_cmp(&share(&other.1)));
    let load = worst.map(|(run, load)| {
        let reason = format!(
            "processes and virtual machines beside it took {} of the core time of host {} in run {run}, and more than {} in {} of \
             {} runs",
            percent(load.share),
            load.host,
            percent(HEAVY_FOREIGN_LOAD),
            loaded.len(),
            loads.len()
        );
        ReliabilityWarning::new(reason, format!("stop them, then {}", repeat(asked, case)))
    });
    let spread = cv.filter(|cv| *cv > WILD_SPREAD).map(|cv| {
        let reason = format!("its runs differ by {} (CV, more than {})", percent(cv), percent(WILD_SPREAD));
        ReliabilityWarning::new(reason, repeat(asked, case))
    });
    load.into_iter().chain(spread).collect()
}

/// To the bandwidths of a case, by what else its hosts did; the reason names the case.
pub fn to_bandwidth(case: Case, record: &BandwidthRecord) -> Vec<ReliabilityWarning> {
    let load = validity::foreign_load(&Observed::of_bandwidth(record));
    let reliability_warnings = to_speed(case, None, &[(1, load.as_ref())], &SweepFacts::default());
    reliability_warnings.iter().map(|warning| warning.to(case)).collect()
}

/// To the efficiency of ranks that have less of the machine each than their base has.
pub fn to_oversubscribed() -> ReliabilityWarning {
    let reason = "its ranks take turns on the cores of a host: its efficiency is that of fewer cores a rank";
    let fix = "choose cases of as many ranks as there are cores for, or fewer --threads for all";
    ReliabilityWarning { is_of_scaling_alone: true, ..ReliabilityWarning::new(reason.to_owned(), fix.to_owned()) }
}

/// To an efficiency that no cluster has.
pub fn to_efficiency(efficiency: f64, base: Case, asked: &SweepFacts) -> Option<ReliabilityWarning> {
    (efficiency > IMPOSSIBLE_EFFICIENCY).then(|| {
        let reason = format!(
            "an efficiency of {} (more than {}): its base {base} was disturbed, or had less of the machine for a rank",
            percent(efficiency),
            percent(IMPOSSIBLE_EFFICIENCY)
        );
        ReliabilityWarning { is_of_scaling_alone: true, ..ReliabilityWarning::new(reason, repeat(asked, base)) }
    })
}

/// To figures that are relative to a base which is unreliable.
pub fn to_base(base: Case, asked: &SweepFacts) -> ReliabilityWarning {
    let warning = ReliabilityWarning::new(format!("its base {base} is unreliable"), repeat(asked, base));
    ReliabilityWarning { is_of_scaling_alone: true, ..warning }
}

/// To the figures of a table of the quick profile.
pub fn to_quick() -> ReliabilityWarning {
    ReliabilityWarning::new("quick profile, a first look".to_owned(), "measure again with another profile".to_owned())
}

/// To figures of runs that a fault was put into.
pub fn to_fault(fault: impl fmt::Display) -> ReliabilityWarning {
    ReliabilityWarning::new(
        format!("a fault was put in on purpose, {fault}"),
        "sweep again without --inject".to_owned(),
    )
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(share: f64) -> ForeignLoad {
        ForeignLoad { host: "a".to_owned(), share }
    }

    #[test]
    fn beyond_each_threshold_there_is_a_warning_and_at_it_none() {
        let asked = SweepFacts {
            resume_command: Some("ringmark sweep --resume".to_owned()),
            device: None,
            shortages: Vec::new(),
        };
        let (heavy, light) = (load(0.53), load(HEAVY_FOREIGN_LOAD));
        let runs = [(1, Some(&light)), (2, Some(&heavy)), (3, None)];
        let found: Vec<String> =
            to_speed(Case::SINGLE, Some(0.35), &runs, &asked).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "processes and virtual machines beside it took 53.0 % of the core time of host a in run 2, and more than 25.0 % \
                 in 1 of 3 runs: stop them, then repeat 1n1g: ringmark sweep --resume --repeat 1n1g",
                "its runs differ by 35.0 % (CV, more than 10.0 %): repeat 1n1g: ringmark sweep --resume --repeat 1n1g",
            ]
        );
        assert_eq!(to_speed(Case::SINGLE, Some(WILD_SPREAD), &runs[..1], &asked), []);
        assert_eq!(to_speed(Case::SINGLE, None, &[], &asked), []);
        let impossible = to_efficiency(2.105, Case::SINGLE, &SweepFacts::default()).expect("impossible");
        assert!(impossible.to_string().starts_with("an efficiency of 210.5 % (more than 105.0 %)"), "{impossible}");
        assert!(impossible.fix == "repeat the runs of 1n1g", "{impossible}");
        assert_eq!(to_efficiency(IMPOSSIBLE_EFFICIENCY, Case::SINGLE, &asked), None);
    }
}
