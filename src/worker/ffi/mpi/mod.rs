//! MPI: the calls that rsmpi lacks. [`calls`] has what each of them needs.

pub mod calls;
mod collectives;
mod parts;
mod sums;

pub use parts::Root;
pub use sums::{Request, Sums};
