//! Scoring: inference alone, as MXNet's benchmark_score.py: what is asked, what may be typed, what is written down.

pub mod config;
pub mod record;

pub use config::ScoreConfig;
pub use record::{RectifiedConvolutions, ScoreRecord};
