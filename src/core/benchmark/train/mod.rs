//! Training benchmark: configuration, options and record.

pub mod autotune_log;
pub mod config;
pub mod fingerprints;
pub mod iteration;
pub mod learning;
pub mod record;
mod validation;
pub mod work_load;

pub use autotune_log::{AutotuneLog, Row};
pub use config::{Fault, Recompute, TrainConfig};
pub use fingerprints::{FingerprintedValues, Fingerprints, RankDifference, RankFingerprints};
pub use iteration::Iteration;
pub use learning::{EpochEnd, LearningConfig, LearningRateSchedule, Validation};
pub use record::{Resumption, RunEnd, RunHeader, RunRecord, Trial, Tuning};
pub use work_load::{WorkDivision, WorkLoad};
