//! Lines of other benchmarks and of Prometheus, which their tools read: writers and parsers. [`log`] reads a whole log.

pub mod dlperf;
pub mod log;
pub mod other_tool;
pub mod prometheus;
pub mod pytorch_ddp;
pub mod remark;
