//! The whole answer about one group of runs: predictions, where the efficiency falls, a backtest; or why not.

use ringmark_core::dimension::Case;

use crate::read::analyse::prediction::evidence::Evidence;
use crate::read::analyse::prediction::model::Prediction;
use crate::read::analyse::prediction::refusal::Refusal;
use crate::read::analyse::prediction::search::{Backtest, Under};

/// The whole answer about one group of runs.
#[derive(Debug, PartialEq)]
pub struct Outlook {
    /// What it is predicted from.
    pub evidence: Evidence,
    /// What keeps a published row from being more than it is.
    pub caveat: Option<&'static str>,
    /// In the order asked for.
    pub predictions: Vec<Result<Prediction, Refusal>>,
    /// The same cases as if nobody waited for the straggler; none where none was named.
    pub without_straggler: Vec<Prediction>,
    /// Where it was asked for.
    pub under: Option<Result<Under, Refusal>>,
    /// Where it was asked for.
    pub backtest: Option<Result<Backtest, Refusal>>,
}

impl Outlook {
    /// What was asked and cannot be predicted: the cases, why, and what to measure; each reason once.
    pub fn refused(&self) -> Vec<String> {
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
            format!("{} cannot be predicted: {}; measure: {}", cases.join(", "), refusal.why, refusal.command)
        };
        reasons.into_iter().map(sentence).collect()
    }

    /// Returns true if anything that was asked could be predicted.
    pub fn has_answer(&self) -> bool {
        self.grown().next().is_some() || matches!(self.under, Some(Ok(_)))
    }

    /// Every prediction: of cases, then of the backtest.
    pub fn grown(&self) -> impl Iterator<Item = &Prediction> {
        let backtest = self.backtest.iter().flatten().map(|backtest| &backtest.predicted);
        self.predictions.iter().flatten().chain(backtest)
    }
}
