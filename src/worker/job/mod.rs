//! This rank among the others: MPI, the device that it has, and where it is, for the launcher to see.

pub mod device;
pub mod heartbeat;
pub mod world;
