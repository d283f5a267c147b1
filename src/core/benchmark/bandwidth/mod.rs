//! All-reduce alone, without a model's computation: what is asked, what may be typed, what is written down.
//!
//! Not for the arithmetic of rates, which is in [`crate::stats::busbw`].

pub mod config;
pub mod figures;
pub mod gradients_use;
pub mod lines;
pub mod messages;
mod nullable;
pub mod record;
mod validation;

pub use config::{ArraySize, Arrays, BandwidthConfig, OptimizerChoice};
pub use figures::{SizeFigures, TimeSpread};
pub use gradients_use::GradientsUse;
pub use messages::{Growth, Messages};
pub use record::{BandwidthRecord, FailureKind, MemoryLimit, MessageResult, Timing};
