//! Input benchmark: reads and decodes images without a network or device, as MXNet's `--test-io 1`. Configuration,
//! options, record and output.

pub mod config;
pub mod lines;
pub mod pass;
pub mod record;
mod validation;

pub use config::{InputConfig, PageCache, ThreadCounts};
pub use pass::{HostPass, InputPass};
pub use record::{Ceiling, InputRecord, StoredImages};
