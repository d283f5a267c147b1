//! The checks of a result, as text and for programs.

use ringmark_record::benchmark::BenchmarkKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyse::checks::Check;

/// Version of the JSON.
const SCHEMA: u32 = 1;

/// All that was checked of one folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedResult {
    /// Always `ringmark-check`.
    kind: String,
    /// Version of the format.
    schema: u32,
    /// As it was given.
    folder: String,
    /// What was measured.
    benchmark: BenchmarkKind,
    /// Whether every check is.
    is_passed: bool,
    /// In the order of the text.
    checks: Vec<Check>,
}

impl CheckedResult {
    /// Of `folder`.
    pub fn new(folder: String, benchmark: BenchmarkKind, checks: Vec<Check>) -> CheckedResult {
        let is_passed = checks.iter().all(|check| check.is_passed);
        CheckedResult { kind: "ringmark-check".to_owned(), schema: SCHEMA, folder, benchmark, is_passed, checks }
    }

    /// Names of the checks that are not passed.
    pub fn failed(&self) -> Vec<String> {
        self.checks.iter().filter(|check| !check.is_passed).map(|check| check.name.to_string()).collect()
    }

    /// A line a check, below it what speaks against it.
    pub fn text(&self) -> String {
        self.checks.iter().map(lines).collect()
    }
}

fn lines(check: &Check) -> String {
    let verdict = if check.is_passed { "ok" } else { "FAIL" };
    let mut text = format!("{verdict:<5} {:<9} {}\n", check.name.to_string(), check.summary);
    for finding in &check.findings {
        text += &format!("      {finding}\n");
    }
    for note in &check.notes {
        text += &format!("      note: {note}\n");
    }
    text
}
