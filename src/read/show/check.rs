//! Checks of a result, as text and JSON.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::number_text::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::checks::{Check, CheckName, CheckState};

/// Version of the JSON format. Version 1 had another name for the check `reliable`.
const SCHEMA: u32 = 2;

/// All checks of one folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedResult {
    /// Always `ringmark-check`.
    kind: String,
    /// Version of the format.
    schema: u32,
    /// Folder as given.
    folder: String,
    /// Benchmark of the result.
    benchmark: BenchmarkKind,
    /// True if every check passed.
    is_passed: bool,
    /// Checks in the order of the text output.
    checks: Vec<Check>,
}

impl CheckedResult {
    pub fn new(folder: String, benchmark: BenchmarkKind, checks: Vec<Check>) -> CheckedResult {
        let is_passed = checks.iter().all(|check| check.state == CheckState::Passed);
        CheckedResult { kind: "ringmark-check".to_owned(), schema: SCHEMA, folder, benchmark, is_passed, checks }
    }

    /// Returns the checks that did not pass, and why: `FOLDER is not reliable: busy machine; is not known to be unedited: no
    /// hashes of 4 finished runs`; `None` if every check passed.
    pub fn failure(&self) -> Option<String> {
        let of_state = |wanted| self.checks.iter().filter(move |check| check.state == wanted);
        let parts = [CheckState::Failed, CheckState::Unknown].into_iter().flat_map(of_state).map(|check| {
            let cause = check.cause.iter().map(|cause| format!(": {cause}")).collect::<String>();
            negation(check).to_owned() + &cause
        });
        let parts = parts.collect::<Vec<_>>().join("; ");
        (!parts.is_empty()).then(|| format!("{} {parts}", self.folder))
    }

    /// Returns one line per check, followed by its findings and notes.
    pub fn text(&self) -> String {
        self.checks.iter().map(lines).collect()
    }
}

/// Returns the outcome of a check that did not pass, as a predicate of the folder.
fn negation(check: &Check) -> &'static str {
    match (check.name, check.state == CheckState::Failed) {
        (CheckName::Complete, true) => "is not complete",
        (CheckName::Complete, false) => "is not known to be complete",
        (CheckName::Unedited, true) => "is not unedited",
        (CheckName::Unedited, false) => "is not known to be unedited",
        (CheckName::Rules, true) => "does not follow the rules",
        (CheckName::Rules, false) => "is not known to follow the rules",
        (CheckName::Reliable, true) => "is not reliable",
        (CheckName::Reliable, false) => "is not known to be reliable",
    }
}

fn lines(check: &Check) -> String {
    let (verdict, findings) = match (check.state, check.findings.len()) {
        (CheckState::Passed, _) => ("PASS", String::new()),
        (CheckState::Unknown, _) => ("UNKNOWN", String::new()),
        (CheckState::Failed, findings) => ("FAIL", count(findings, "finding") + "; "),
    };
    let mut text = format!("{verdict:<7} {:<9} {findings}{}\n", check.name, check.summary);
    for finding in &check.findings {
        text += &format!("        {finding}\n");
    }
    for note in &check.notes {
        let word = if check.fix.as_ref() == Some(note) { "fix" } else { "note" };
        text += &format!("        {word}: {note}\n");
    }
    text
}
