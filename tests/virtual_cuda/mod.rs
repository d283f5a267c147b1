//! The worker on virtual GPUs: streams, results, times, kernels.

mod checkpoint;
mod fused;
mod graphs;
mod hosts;
mod kernels;
mod score;
mod steps;
mod time;
