//! This rank among the others: MPI, the device, the cores and the memory that it has, and where it is, for the launcher to
//! see.

pub mod cores;
pub mod device;
pub mod environment;
pub mod heartbeat;
pub mod host_watch;
pub mod kernels;
pub mod library_defaults;
pub mod memory;
mod nccl_log;
pub mod peer_watch;
pub mod session;
pub mod standard_error;
pub mod world;
