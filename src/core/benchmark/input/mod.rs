//! Input benchmark: reads and decodes images without a network or device, as MXNet's `--test-io 1`. Configuration,
//! options, record and output.

pub mod config;
pub mod lines;
pub mod pass;
pub mod record;
mod slow_hosts;
mod validation;

pub use config::{InputConfig, PageCache, ThreadCounts};
pub use pass::{HostPass, InputPass};
pub use record::{Ceiling, InputRecord, StoredImages};
pub use slow_hosts::slow_hosts;

use crate::benchmark::RecordFolder;

/// Log of `ringmark input`, in its folder.
pub const INPUT_LOG: &str = "input.log";

/// Record of `ringmark input`, next to its log.
pub const INPUT_RECORD: &str = "input.json";

/// Files of the benchmark in a folder.
pub const FOLDER: RecordFolder = RecordFolder {
    has_file: |file| file.as_os_str() == INPUT_RECORD,
    has_name: |file| file.as_os_str() == INPUT_RECORD,
    description: "a result of `ringmark input`, which `ringmark extract` and `ringmark report` show",
};
