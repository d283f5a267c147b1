//! Predictions of the images of `--validate` at the end of a case's training. Not for showing them.

use ringmark_core::stats::run_values::RunValues;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::TrainingCase;

/// Accuracy after the last epoch; each figure is the median over the runs that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Accuracy {
    /// Number of epochs.
    pub epochs: u32,
    /// Mean cross entropy of the predictions; `null` if it is not finite.
    pub loss: Option<f64>,
    /// Perplexity of a token, `exp(loss)`. Only for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perplexity: Option<f64>,
    /// Share of images whose class is the most likely one. Absent for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_1: Option<f64>,
    /// Share of images whose class is among the five most likely ones. Absent for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_5: Option<f64>,
}

/// Returns the accuracy of a case; `None` if no run that counts has predictions.
pub fn case_accuracy(case: &TrainingCase) -> Option<Accuracy> {
    let ends: Vec<_> = case.counted().filter_map(|run| run.figures.epochs.last()).collect();
    let predictions: Vec<_> = ends.iter().filter_map(|end| end.validation).collect();
    let median = |values: RunValues| values.median();
    // Otherwise no run has predictions.
    predictions.first()?;
    let loss = median(predictions.iter().filter_map(|of| of.loss).collect());
    let top_1 = median(predictions.iter().filter_map(|of| of.top_1).collect());
    Some(Accuracy {
        epochs: ends.iter().map(|end| end.epoch).max()?,
        loss,
        // Images have a share of correct classes instead.
        perplexity: loss.filter(|_| top_1.is_none()).map(f64::exp),
        top_1,
        top_5: median(predictions.iter().filter_map(|of| of.top_5).collect()),
    })
}
