//! The benchmarks, each an implementation of [`Benchmark`](crate::launch::sweep::benchmark::Benchmark) for its configuration.

pub mod bandwidth;
pub mod checkpoint;
pub mod input;
mod output_filter;
mod record_jobs;
pub mod score;
pub mod train;
pub mod train_checks;
