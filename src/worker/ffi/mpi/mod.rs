//! MPI calls that rsmpi lacks; their common parts are in [`calls`].

pub mod calls;
mod collectives;
mod parts;
mod sums;

pub use parts::Root;
pub use sums::{Request, Sums};
