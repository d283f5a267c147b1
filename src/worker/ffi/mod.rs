//! The only module with `unsafe`: foreign functions behind safe ones. Not for decisions: what is called when stands above.
//!
//! [`libraries`] must come first in every process: see there.

pub mod allocator;
pub mod libraries;
pub mod mpi;
pub mod nccl;
pub mod shared_window;
pub mod shim;
mod streaming;
pub mod sums;
