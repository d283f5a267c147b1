//! Inference benchmark, as MXNet's benchmark_score.py: configuration, options and record.

pub mod config;
pub mod record;

pub use config::ScoreConfig;
pub use record::{RectifiedConvolutions, ScoreRecord};
