//! Bandwidth benchmark: collective operations alone, without a model's computation. Configuration, options, figures and
//! record.

pub mod config;
pub mod figures;
pub mod files;
pub mod gradients_use;
pub mod lines;
pub mod messages;
mod nullable;
pub mod record;
mod validation;

pub use config::{ArraySize, Arrays, BandwidthConfig};
pub use figures::{SideFigures, SizeFigures, TimeSpread};
pub use files::{BANDWIDTH_LOG, BANDWIDTH_RECORD, FOLDER, bandwidth_files, bandwidth_operation};
pub use gradients_use::GradientsUse;
pub use messages::{Growth, Messages};
pub use record::{BandwidthRecord, FailureKind, MemoryLimit, MessageResult, Timing};
