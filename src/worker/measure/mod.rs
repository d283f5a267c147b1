//! How long things took: marks in time on host and device. Not for what is made of them.

pub mod mark;
pub mod matrix_product;
pub mod step_timer;
pub mod timed;
pub mod trace;
