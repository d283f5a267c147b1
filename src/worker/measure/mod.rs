//! Time measurements on host and device.

pub mod fingerprint;
pub mod mark;
pub mod matrix_product;
pub mod step_timer;
pub mod timed;
pub mod trace;
