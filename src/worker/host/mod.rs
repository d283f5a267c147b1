//! The machine of this rank, according to kernel and driver. Independent of the other ranks.

pub mod agent;
pub mod counters;
pub mod facts;
pub mod file_system;
pub mod gpu;
pub mod network;
pub mod telemetry;
