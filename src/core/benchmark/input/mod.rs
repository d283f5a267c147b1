//! Reading and decoding alone, without a network and without a device, as MXNet's `--test-io 1`: what is asked, what may be
//! typed, what is written down and printed.

pub mod config;
pub mod lines;
pub mod pass;
pub mod record;
mod validation;

pub use config::{InputConfig, PageCache, ThreadCounts};
pub use pass::{HostPass, InputPass};
pub use record::{Ceiling, InputRecord, StoredImages};
