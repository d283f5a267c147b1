//! The only module with `unsafe`: foreign functions behind safe ones. Not for decisions: what is called when stands above.
//!
//! | module | library |
//! |---|---|
//! | [`process`] | the process itself: allocator, loaded libraries, exit, sockets, waiting |
//! | [`torch`] | libtorch: what tch lacks |
//! | [`cuda`] | CUDA: availability, driver, NVRTC, NVML |
//! | [`nccl`] | NCCL |
//! | [`mpi`] | MPI: what rsmpi lacks |
//! | [`memory`] | none: sums over raw memory, and memory that ranks share |
//!
//! [`group`] has the arguments that MPI's and NCCL's collectives have in common. [`process::libraries`] and [`cuda`] come first
//! in every process, in this order: see there.

pub mod cuda;
pub mod group;
pub mod memory;
pub mod mpi;
pub mod nccl;
pub mod process;
pub mod torch;
