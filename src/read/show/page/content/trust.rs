//! Reliability of figures and the reasons for it, the most severe first.

use ringmark_core::number_text::percent;
use ringmark_core::validity::thresholds::WIDE_SPREAD;

use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::score::figures::ScoreGroup;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::show::numbers::count;
use crate::read::show::page::document::Trust;

/// Facts about runs that determine the reliability of their figures.
pub struct TrustEvidence {
    runs: usize,
    counted: usize,
    reliability_warnings: Vec<ReliabilityWarning>,
    /// True if any logs have no records.
    lacks_records: bool,
    warnings: usize,
    /// `case` or `point` if one of them has only one run.
    single_run: Option<&'static str>,
    /// Coefficients of variation over runs.
    spreads: Vec<f64>,
}

impl TrustEvidence {
    pub fn from_training(groups: &[&TrainingGroup]) -> TrustEvidence {
        let cases = || groups.iter().flat_map(|group| &group.cases);
        let measured = || cases().filter(|case| case.figures.is_some());
        let several = groups.len() > 1;
        let reliability_warnings = |group: &&TrainingGroup| {
            let named = |warning: ReliabilityWarning| if several { warning.to(&group.label) } else { warning };
            group.all_reliability_warnings().into_iter().map(named).collect::<Vec<_>>()
        };
        TrustEvidence {
            runs: cases().map(|case| case.runs.len()).sum(),
            counted: cases().map(|case| case.counted().count()).sum(),
            reliability_warnings: groups.iter().flat_map(reliability_warnings).collect(),
            // If there are several groups, one without counted runs may lack records.
            lacks_records: groups.iter().any(|it| it.conditions.recorded.is_none() && (!several || it.base.is_some())),
            warnings: groups.iter().map(|group| group.number_of_warnings()).sum(),
            single_run: measured().any(|case| case.counted().count() == 1).then_some("case"),
            spreads: measured().filter_map(|case| case.figures.as_ref()?.cv).collect(),
        }
    }

    pub fn from_scoring(group: &ScoreGroup) -> TrustEvidence {
        let cases = || group.cases.iter();
        TrustEvidence {
            runs: cases().map(|case| case.runs.len()).sum(),
            counted: cases().map(|case| case.counted().count()).sum(),
            reliability_warnings: group.all_reliability_warnings(),
            // Scoring runs without a record do not count.
            lacks_records: false,
            warnings: group.all_warnings().count(),
            single_run: cases().any(|case| case.counted().count() == 1).then_some("point"),
            spreads: cases().filter_map(|case| case.speeds().cv()).collect(),
        }
    }

    /// Returns the level of trust and the reasons.
    pub fn trust(&self, result: &ResultFolder) -> (Trust, Vec<String>) {
        let TrustEvidence { runs, counted, .. } = *self;
        let mut trust = Trust::Sound;
        let mut reasons = Vec::new();
        let mut lower = |to: Trust, reason: String| {
            trust = if trust == Trust::Unreliable { trust } else { to };
            reasons.push(reason);
        };
        if counted == 0 {
            lower(Trust::Unreliable, "no run counts".to_owned());
        }
        if let Some(cause) = reliability::cause(&self.reliability_warnings) {
            lower(Trust::Unreliable, cause.to_owned());
        }
        if self.lacks_records {
            lower(Trust::WithCare, "logs without records: only the speed can be assessed".to_owned());
        }
        if runs > counted {
            lower(Trust::WithCare, format!("{} excluded", count(runs - counted, "run")));
        }
        // Excluded runs are problems too, but have been reported already.
        let others = result.problems.len().saturating_sub(runs - counted);
        if others > 0 {
            lower(Trust::WithCare, format!("{} in the folder", count(others, "other problem")));
        }
        let spread = self.spreads.iter().copied().fold(f64::NAN, f64::max);
        let cautions = reliability::cautions(self.single_run, self.warnings, spread);
        cautions.into_iter().for_each(|caution| lower(Trust::WithCare, caution));
        if spread <= WIDE_SPREAD {
            reasons.push(format!("runs vary by {} (CV)", percent(spread)));
        }
        if counted > 0 {
            reasons.push(match (counted, runs) {
                (1, 1) => "the only run counts".to_owned(),
                (counted, runs) if counted == runs => format!("all {runs} runs count"),
                (counted, runs) => format!("{counted} of {runs} runs count"),
            });
        }
        if trust == Trust::Unreliable {
            // The most severe reason is sufficient: the lists below the headline contain all.
            reasons.truncate(1);
        }
        (trust, reasons)
    }
}
