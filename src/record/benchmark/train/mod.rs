//! Training: what is asked, what may be typed, what is written down.

pub mod autotune_log;
pub mod config;
pub mod iteration;
pub mod learning;
pub mod record;
mod validation;
pub mod work_load;
