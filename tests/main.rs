//! Tests of the programs, by subject: `read`, `launch` and `worker` as in `src`, the other `commands`, the worker on
//! virtual GPUs, and the repository itself. Suites do not import each other; shared code is in [`support`].

#![allow(clippy::disallowed_methods, reason = "tests read variables of cargo and their own")]

mod commands;
mod launch;
mod read;
mod repository;
mod support;
mod virtual_cuda;
mod worker;
