//! Benchmarks, one module each. A benchmark is a function that gets a [`Session`](crate::job::session::Session); its
//! options are in [`cli`](crate::cli).

pub mod bandwidth;
pub mod input;
pub mod score;
pub mod train;
