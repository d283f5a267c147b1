//! Safe wrappers of foreign functions; the only module with `unsafe`. The order of calls is up to the callers.
//!
//! | module | library |
//! |---|---|
//! | [`process`] | the process itself: allocator, loaded libraries, exit, sockets, waiting |
//! | [`torch`] | libtorch: functions that tch lacks |
//! | [`cuda`] | CUDA: availability, driver, NVRTC, NVML |
//! | [`nccl`] | NCCL |
//! | [`mpi`] | MPI: functions that rsmpi lacks |
//! | [`memory`] | none: sums over raw memory, and memory shared by ranks |
//!
//! [`group`] has the arguments that the collectives of MPI and NCCL share. Every process calls [`process::libraries`]
//! and [`cuda`] first, in this order; the modules explain why.

pub mod cuda;
pub mod group;
pub mod memory;
pub mod mpi;
pub mod nccl;
pub mod process;
pub mod torch;
