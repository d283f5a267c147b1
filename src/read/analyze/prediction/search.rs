//! Evaluations of predictions: the case at which efficiency falls below a threshold, and the largest measured case
//! predicted from the others.

use ringmark_core::dimension::Case;
use ringmark_core::stats::allreduce_model::Band;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::model::{Prediction, predict};
use crate::read::analyze::prediction::refusal::{Refusal, refusal};

/// Largest number of ranks in the search for the case at which efficiency falls below a threshold.
pub const SEARCH_LIMIT: u32 = 4096;

/// Case at which efficiency falls below a threshold.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EfficiencyThreshold {
    /// Threshold.
    pub efficiency: f64,
    /// First case below it in the middle of the band; `None` if there is none up to the last case.
    #[serde(rename = "case")]
    pub mid: Option<Case>,
    /// First case below it at the low end of the band.
    pub earliest: Option<Case>,
    /// First case below it at the high end of the band.
    pub latest: Option<Case>,
    /// Last case of the search.
    #[serde(rename = "searched_up_to")]
    pub last: Case,
    /// Efficiency of the last case.
    #[serde(skip)]
    pub at_last: Band,
}

/// Finds the case at which efficiency falls below a threshold. Searches the measured cases up to one full host, then
/// more hosts by doubling and bisection, with as many ranks per host as the largest measured case.
pub fn under(evidence: &Evidence, efficiency: f64) -> Result<EfficiencyThreshold, Refusal> {
    let largest = evidence.cases.last().map_or(evidence.base, |measured| measured.case);
    let of = |nodes: u32| Case { nodes, gpus_per_node: largest.gpus_per_node };
    let on_one_host = evidence.cases.iter().map(|measured| measured.case).filter(|case| case.nodes == 1);
    let on_one_host: Vec<Case> = on_one_host.filter(|case| case.gpus_per_node <= largest.gpus_per_node).collect();
    let last = of((SEARCH_LIMIT / largest.gpus_per_node).max(largest.nodes).max(2));
    let first = |end: fn(Band) -> f64| -> Result<Option<Case>, Refusal> {
        let is_under = |case: Case| {
            let predicted = predict(evidence, case)?;
            // A measured case has no band.
            let of = predicted.reference.map_or(predicted.efficiency.mid, |_| end(predicted.efficiency));
            Ok(of < efficiency)
        };
        for case in &on_one_host {
            if is_under(*case)? {
                return Ok(Some(*case));
            }
        }
        let (mut above, mut below) = (1, 2);
        while !is_under(of(below))? {
            if below == last.nodes {
                return Ok(None);
            }
            (above, below) = (below, (2 * below).min(last.nodes));
        }
        while below - above > 1 {
            let middle = above + (below - above) / 2;
            if is_under(of(middle))? { below = middle } else { above = middle }
        }
        Ok(Some(of(below)))
    };
    Ok(EfficiencyThreshold {
        efficiency,
        mid: first(|band| band.mid)?,
        earliest: first(|band| band.low)?,
        latest: first(|band| band.high)?,
        last,
        at_last: predict(evidence, last)?.efficiency,
    })
}

/// Prediction of the largest measured case from the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Backtest {
    /// Prediction from the other cases.
    pub predicted: Prediction,
    /// Measured step of the case, in seconds.
    pub measured: f64,
    /// Cases that the prediction uses.
    pub from: Vec<Case>,
}

impl Backtest {
    /// Returns the relative error of the speed in the middle of the band: predicted / measured - 1.
    pub fn error(&self) -> f64 {
        self.measured / self.predicted.step.mid - 1.0
    }

    /// Returns true if the measured step lies in the band.
    pub fn is_inside(&self) -> bool {
        (self.predicted.step.low..=self.predicted.step.high).contains(&self.measured)
    }
}

/// Predicts the largest case without its own measurements and all-reduce samples.
pub fn backtest(evidence: &Evidence) -> Result<Backtest, Refusal> {
    let Some(largest) = evidence.cases.last() else {
        return Err(refusal(evidence, evidence.base, "no run counts".to_owned(), &[evidence.base]));
    };
    let rest = evidence.without(largest.case);
    let from = rest.cases.iter().map(|measured| measured.case).collect();
    predict(&rest, largest.case)
        .map(|predicted| Backtest { predicted, measured: largest.step(), from })
        .map_err(|refused| without_comparison(evidence, largest.case, refused))
}

/// Returns the refusal of a backtest: the `largest` case is measured, so other cases are missing.
fn without_comparison(evidence: &Evidence, largest: Case, refused: Refusal) -> Refusal {
    let why = format!(
        "a backtest needs measured cases from which {largest} can be predicted; without {largest}, {}",
        refused.why
    );
    let on = |nodes| Case { nodes, ..largest };
    let mut missing: Vec<Case> = [1, 2].map(on).into_iter().filter(|case| evidence.case(*case).is_none()).collect();
    if largest.nodes <= 2 {
        missing.push(on(4));
    }
    match missing.as_slice() {
        [] => Refusal { why, ..refused },
        missing => refusal(evidence, largest, why, missing),
    }
}
