//! Whether to believe figures, and what speaks for or against them, the gravest first.

use ringmark_core::validity::thresholds::WIDE_SPREAD;

use crate::read::analyse::figures::Group;
use crate::read::analyse::reliability::{self, ReliabilityWarning};
use crate::read::analyse::results::ResultFolder;
use crate::read::analyse::score::figures::ScoreTable;
use crate::read::show::numbers::{count, percent};
use crate::read::show::page::document::Trust;

/// What is known of the runs that figures are made of.
pub struct Evidence {
    /// Runs that were found.
    runs: usize,
    /// Those that count.
    counted: usize,
    /// Why figures are unreliable.
    reliability_warnings: Vec<ReliabilityWarning>,
    /// Whether logs stand without records.
    lacks_records: bool,
    warnings: usize,
    /// What has one run alone, if anything has.
    lone: Option<&'static str>,
    /// Coefficients of variation over runs.
    spreads: Vec<f64>,
}

impl Evidence {
    /// Of training.
    pub fn of_groups(groups: &[&Group]) -> Evidence {
        let cases = || groups.iter().flat_map(|group| &group.cases);
        let measured = || cases().filter(|case| case.figures.is_some());
        let warnings = |group: &&Group| {
            group.warnings.len() + group.with_baselines().map(|case| case.warnings.len()).sum::<usize>()
        };
        let several = groups.len() > 1;
        let reliability_warnings = |group: &&Group| {
            let named = |warning: ReliabilityWarning| if several { warning.to(&group.label) } else { warning };
            group.all_reliability_warnings().into_iter().map(named).collect::<Vec<_>>()
        };
        Evidence {
            runs: cases().map(|case| case.runs.len()).sum(),
            counted: cases().map(|case| case.counted().count()).sum(),
            reliability_warnings: groups.iter().flat_map(reliability_warnings).collect(),
            // Of several those may lack them of which no run counts.
            lacks_records: groups.iter().any(|it| it.conditions.recorded.is_none() && (!several || it.base.is_some())),
            warnings: groups.iter().map(warnings).sum(),
            lone: measured().any(|case| case.counted().count() == 1).then_some("case"),
            spreads: measured().filter_map(|case| case.figures.as_ref()?.cv).collect(),
        }
    }

    /// Of scoring.
    pub fn of_scoring(table: &ScoreTable) -> Evidence {
        let points = || table.points.iter();
        Evidence {
            runs: points().map(|point| point.runs.len()).sum(),
            counted: points().map(|point| point.counted().count()).sum(),
            reliability_warnings: table.all_reliability_warnings(),
            // Without a record no scoring run counts.
            lacks_records: false,
            warnings: table.all_warnings().count(),
            lone: points().any(|point| point.counted().count() == 1).then_some("point"),
            spreads: points().filter_map(|point| point.figures?.cv).collect(),
        }
    }

    /// The judgement, and why.
    pub fn trust(&self, result: &ResultFolder) -> (Trust, Vec<String>) {
        let Evidence { runs, counted, .. } = *self;
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
            lower(Trust::WithCare, "logs without records: nothing but speed can be judged".to_owned());
        }
        if runs > counted {
            lower(Trust::WithCare, format!("{} left out", count(runs - counted, "run")));
        }
        // A run that was left out is a problem too, and reported already.
        let others = result.problems.len().saturating_sub(runs - counted);
        if others > 0 {
            lower(Trust::WithCare, format!("{} in the folder", count(others, "other problem")));
        }
        if self.warnings > 0 {
            lower(Trust::WithCare, count(self.warnings, "warning"));
        }
        if let Some(what) = self.lone {
            lower(Trust::WithCare, format!("one run of a {what} has no spread"));
        }
        let spread = self.spreads.iter().copied().fold(f64::NAN, f64::max);
        if spread > WIDE_SPREAD {
            lower(Trust::WithCare, format!("runs differ by {} %, which is much", percent(spread)));
        } else if spread.is_finite() {
            reasons.push(format!("runs differ by {} %", percent(spread)));
        }
        if counted > 0 {
            reasons.push(match (counted, runs) {
                (1, 1) => "the one run counts".to_owned(),
                (counted, runs) if counted == runs => format!("all {runs} runs count"),
                (counted, runs) => format!("{counted} of {runs} runs count"),
            });
        }
        if trust == Trust::Unreliable {
            // The gravest is enough there: the lists below the card have all.
            reasons.truncate(1);
        }
        (trust, reasons)
    }
}
