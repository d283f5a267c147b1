//! Tests of the programs from outside, in folders by what they test: `read`, `launch` and `worker` as in `src`, the other
//! `commands`, the worker on virtual GPUs, and the repository itself. No suite imports another: what they share is in [`support`].

mod commands;
mod launch;
mod read;
mod repository;
mod support;
mod virtual_cuda;
mod worker;
