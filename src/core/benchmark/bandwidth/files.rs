//! Names of the files of a bandwidth run, in the folder of its case.

use std::path::Path;

use crate::benchmark::RecordFolder;
use crate::dimension::{Case, Operation};
use crate::options::keyword_enum::KeywordEnum;

/// Log of a case's all-reduce bandwidth run, in the case's folder.
pub const BANDWIDTH_LOG: &str = "bandwidth.log";

/// Record of a case's all-reduce bandwidth run, next to its log.
pub const BANDWIDTH_RECORD: &str = "bandwidth.json";

/// Files of the benchmark in a folder.
pub const FOLDER: RecordFolder = RecordFolder {
    has_file: is_in_case,
    has_name: |file| bandwidth_operation(file).is_some(),
    description: "results of `ringmark bandwidth`, which `ringmark extract` and `ringmark report` show and `ringmark diff` compares",
};

/// Returns the log and record of a case's bandwidth run: `bandwidth_all_gather.log` and `.json` unless it is an
/// all-reduce.
pub fn bandwidth_files(operation: Operation) -> [String; 2] {
    match operation {
        Operation::AllReduce => [BANDWIDTH_LOG, BANDWIDTH_RECORD].map(str::to_owned),
        other => ["log", "json"].map(|ending| format!("bandwidth_{other}.{ending}")),
    }
}

/// Returns the operation of a bandwidth run from the name of its log or record; `None` for any other file.
pub fn bandwidth_operation(file: &Path) -> Option<Operation> {
    let name = file.file_name()?.to_str()?;
    Operation::ALL.iter().copied().find(|operation| bandwidth_files(*operation).iter().any(|file| file == name))
}

fn is_in_case(file: &Path) -> bool {
    let folder = file.parent().and_then(|folder| folder.file_name()?.to_str());
    folder.is_some_and(|folder| folder.parse::<Case>().is_ok()) && bandwidth_operation(file).is_some()
}
