//! The machine that this rank is on, as kernel and driver show it. Knows no other rank.

pub mod agent;
pub mod counters;
pub mod facts;
pub mod gpu;
pub mod network;
pub mod telemetry;
