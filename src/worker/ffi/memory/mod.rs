//! Memory of ranks, independent of libraries: sums over raw arrays, copies that bypass the caches, and the window
//! shared by a host's ranks.

pub mod element;
pub mod shared_window;
mod streaming;
pub mod sums;
