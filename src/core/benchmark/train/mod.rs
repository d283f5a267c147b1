//! Training benchmark: configuration, options and record.

pub mod autotune_log;
pub mod checkpoint_write;
pub mod config;
pub mod fingerprints;
pub mod interruption;
pub mod iteration;
pub mod learning;
pub mod program;
mod program_run;
pub mod rank_loss;
pub mod record;
mod validation;
pub mod work_load;

pub use autotune_log::{AutotuneLog, Row};
pub use checkpoint_write::{CheckpointCost, CheckpointMode, CheckpointWrite};
pub use config::{Fault, Recompute, TrainConfig};
pub use fingerprints::{FingerprintedValues, Fingerprints, RankDifference, RankFingerprints};
pub use interruption::{Interruption, RestartHistory, Resumption};
pub use iteration::Iteration;
pub use learning::{EpochEnd, LearningConfig, LearningRateSchedule, Validation};
pub use program::{CommandLine, ProgramConfig, ProgramStart, ProgramUse, TimeSource};
pub use program_run::ProgramRun;
pub use rank_loss::{Loss, LossKind, LossKinds, RandomLosses};
pub use record::{RunEnd, RunHeader, RunRecord, Trial, Tuning};
pub use work_load::{WorkDivision, WorkLoad};
