//! Services of the process: allocator, libraries, waiting, exit and socket options.

pub mod allocator;
pub mod exit;
pub mod libraries;
pub mod socket;
pub mod waiting;
