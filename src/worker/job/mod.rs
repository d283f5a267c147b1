//! Environment of a rank in the job: MPI, its device, cores and memory, and the heartbeat to the launcher.

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
pub mod supervise;
pub mod world;
