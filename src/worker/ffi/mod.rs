//! The only module with `unsafe`: foreign functions behind safe ones. Not for decisions: what is called when stands above.
//!
//! [`libraries`] and [`cuda`] come first in every process, in this order: see there.

pub mod allocator;
pub mod cuda;
mod driver;
pub mod element;
pub mod exit;
pub mod graph;
pub mod group;
pub mod host_array;
pub mod host_values;
pub mod kernels;
pub mod libraries;
pub mod mpi;
pub mod mpi_calls;
mod mpi_collectives;
mod mpi_parts;
pub mod nccl;
pub mod nccl_collectives;
mod nccl_functions;
pub mod nodes;
pub mod nvml;
pub mod packed;
pub mod shared_window;
pub mod shim;
pub mod socket;
mod streaming;
pub mod sums;
pub mod waiting;
