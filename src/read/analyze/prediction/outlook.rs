//! Predictions for one group of runs, or the reasons why there are none.

use ringmark_core::dimension::Case;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::model::Prediction;
use crate::read::analyze::prediction::refusal::Refusal;
use crate::read::analyze::prediction::search::{Backtest, EfficiencyThreshold};

/// All predictions for one group of runs.
#[derive(Debug, PartialEq)]
pub struct Outlook {
    /// Measurements that the predictions are based on.
    pub evidence: Evidence,
    /// Limitation of a published row.
    pub caveat: Option<&'static str>,
    /// Predictions in the requested order.
    pub predictions: Vec<Result<Prediction, Refusal>>,
    /// The same cases without the straggler's delay; empty if there is no straggler.
    pub without_straggler: Vec<Prediction>,
    /// Result of `--efficiency-below`, if requested.
    pub under: Option<Result<EfficiencyThreshold, Refusal>>,
    /// Result of `--backtest`, if requested.
    pub backtest: Option<Result<Backtest, Refusal>>,
}

impl Outlook {
    /// Returns a message for each distinct refusal: its cases, the reason, and the missing measurement.
    pub fn refusals(&self) -> Vec<String> {
        let all = self.predictions.iter().filter_map(|prediction| prediction.as_ref().err());
        let all = all.chain(self.under.iter().filter_map(|under| under.as_ref().err()));
        let all = all.chain(self.backtest.iter().filter_map(|backtest| backtest.as_ref().err()));
        let mut reasons: Vec<(&Refusal, Vec<Case>)> = Vec::new();
        for refusal in all {
            match reasons.iter_mut().find(|(known, _)| known.why == refusal.why) {
                Some((_, cases)) if cases.contains(&refusal.case) => {}
                Some((_, cases)) => cases.push(refusal.case),
                None => reasons.push((refusal, vec![refusal.case])),
            }
        }
        let sentence = |(refusal, cases): (&Refusal, Vec<Case>)| {
            let cases: Vec<String> = cases.iter().map(Case::to_string).collect();
            let measure = match refusal.case.nodes > 1 && self.evidence.cases.iter().all(|it| it.case.nodes == 1) {
                true => "cases of one machine can only be measured; on two hosts, measure",
                false => "measure",
            };
            format!("{} cannot be predicted: {}; {measure}: {}", cases.join(", "), refusal.why, refusal.command)
        };
        reasons.into_iter().map(sentence).collect()
    }

    /// Returns true if anything that was requested could be predicted.
    pub fn has_answer(&self) -> bool {
        self.grown().next().is_some() || matches!(self.under, Some(Ok(_)))
    }

    /// Returns every prediction: the requested cases, then the backtest.
    pub fn grown(&self) -> impl Iterator<Item = &Prediction> {
        let backtest = self.backtest.iter().flatten().map(|backtest| &backtest.predicted);
        self.predictions.iter().flatten().chain(backtest)
    }
}
