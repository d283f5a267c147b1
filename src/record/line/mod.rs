//! Lines of other benchmarks, which their tools read: writers and parsers.

pub mod dlperf;
pub mod pytorch_ddp;
