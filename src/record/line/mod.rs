//! Lines of other benchmarks, which their tools read: writers and parsers. [`log`] reads a whole log.

pub mod dlperf;
pub mod log;
pub mod other_tool;
pub mod pytorch_ddp;
pub mod remark;
