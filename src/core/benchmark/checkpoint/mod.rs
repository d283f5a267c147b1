//! Checkpoint benchmark: ranks write files of the size of a training checkpoint, alone or beside computation, and read them
//! back from the storage. Configuration, options, record, figures and output.

pub mod config;
pub mod figures;
pub mod lines;
pub mod parts;
pub mod record;
mod slow_hosts;
mod validation;

use std::path::Path;

pub use config::{CheckpointConfig, Combination, FileIo, WriteMode, Writers};
pub use record::{CheckpointRecord, CheckpointResult, ProductTimes, RankCheckpoint, Storage};
pub use slow_hosts::slow_hosts;

use crate::benchmark::RecordFolder;
use crate::dimension::Case;

/// Log of a case's checkpoint run, in the case's folder.
pub const CHECKPOINT_LOG: &str = "checkpoint.log";

/// Record of a case's checkpoint run, next to its log.
pub const CHECKPOINT_RECORD: &str = "checkpoint.json";

/// Files of the benchmark in a folder.
pub const FOLDER: RecordFolder = RecordFolder {
    has_file: is_in_case,
    has_name: |file| file.file_name().is_some_and(|name| name == CHECKPOINT_RECORD),
    description: "results of `ringmark checkpoint`, which `ringmark extract` and `ringmark report` show and `ringmark diff` compares",
};

fn is_in_case(file: &Path) -> bool {
    let folder = file.parent().and_then(|folder| folder.file_name()?.to_str());
    folder.is_some_and(|folder| folder.parse::<Case>().is_ok()) && (FOLDER.has_name)(file)
}
