//! Memory of ranks, without a library: sums over raw arrays, copies past the caches, and the window that a host's ranks share.

pub mod element;
pub mod shared_window;
mod streaming;
pub mod sums;
