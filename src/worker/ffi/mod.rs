//! The only module with `unsafe`: foreign functions behind safe ones. Not for decisions: what is called when stands above.
//!
//! [`libraries`] and [`cuda`] come first in every process, in this order: see there.

pub mod allocator;
pub mod cuda;
mod driver;
pub mod host_values;
pub mod libraries;
pub mod mpi;
mod mpi_collectives;
pub mod nccl;
pub mod nccl_collectives;
pub mod shared_window;
pub mod shim;
mod streaming;
pub mod sums;
