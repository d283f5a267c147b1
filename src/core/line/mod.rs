//! Writers and parsers for lines of other benchmarks and of Prometheus. [`log`] reads a whole log.

pub mod dlperf;
pub mod log;
pub mod log_problem;
pub mod other_tool;
pub mod program;
pub mod prometheus;
pub mod pytorch_ddp;
