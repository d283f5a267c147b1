//! Figures published by others, with source and limitations. Numbers are as printed in the source; none was measured by
//! ringmark.
//!
//! | module | contents |
//! |---|---|
//! | [`by_batch_size`] | MXNet's training and inference rates on one device |
//! | [`exchange`] | measure.py's exchange of a network's gradients |
//! | [`scaling`] | DLPerf's and PyTorch DDP's speeds by number of GPUs |

pub mod by_batch_size;
pub mod exchange;
pub mod scaling;

use std::collections::BTreeSet;

use ringmark_core::dimension::{Case, Dtype, Model, UnitsPerSecond};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Measured workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "names are self-explanatory")]
pub enum Workload {
    Training,
    Inference,
}

/// One published rate, for JSON output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedRate {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Images per rank and iteration or pass.
    pub batch_size: u32,
    /// Nodes and devices per node; absent in older files, whose rates are those of one device.
    #[serde(default = "single")]
    pub case: Case,
    /// Rate of all devices together.
    #[serde(alias = "images_per_second")]
    pub units_per_second: UnitsPerSecond,
    /// Hardware of the measurement.
    pub hardware: String,
    /// Publication: document, commit, year.
    pub source: String,
}

fn single() -> Case {
    Case::SINGLE
}

/// Returns the published rates of these networks for JSON output.
pub fn rates(workload: Workload, models: &BTreeSet<Model>) -> Vec<PublishedRate> {
    let mut rates = by_batch_size::rates(workload, models);
    if workload == Workload::Training {
        rates.extend(scaling::rates(models));
    }
    rates
}
