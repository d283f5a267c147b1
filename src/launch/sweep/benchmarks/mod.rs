//! The benchmarks, each an implementation of [`Benchmark`](crate::launch::sweep::benchmark::Benchmark) for its configuration.

pub mod bandwidth;
mod echo;
pub mod input;
pub mod score;
pub mod train;
