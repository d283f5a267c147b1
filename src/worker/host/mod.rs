//! The machine that this rank is on, as kernel and driver tell it.

pub mod agent;
pub mod counters;
pub mod facts;
pub mod network;
