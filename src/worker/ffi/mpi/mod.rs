//! MPI calls that rsmpi lacks; their common parts are in [`calls`].

pub mod calls;
mod collectives;
mod communicator;
mod parts;

pub use communicator::{Communicator, Request};
pub use parts::Root;
