//! NCCL: the library, a communicator, and its collectives.

mod collectives;
mod communicator;
mod functions;

pub use communicator::{Communicator, Nccl};
