//! The process itself: its allocator, its libraries, how it waits and how it ends, and options of its sockets.

pub mod allocator;
pub mod exit;
pub mod libraries;
pub mod socket;
pub mod waiting;
