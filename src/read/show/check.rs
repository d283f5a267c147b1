//! Checks of a result, as text and JSON.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::number_text::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::checks::{Check, CheckState};

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

    /// Returns the checks that did not pass, and why: `failed: reliable; unknown: unedited (other load; no hashes)`; `None`
    /// if every check passed.
    pub fn failure(&self) -> Option<String> {
        let states = [(CheckState::Failed, "failed"), (CheckState::Unknown, "unknown")];
        let of_state = |wanted| self.checks.iter().filter(move |check| check.state == wanted);
        let parts = states.into_iter().filter_map(|(state, word)| {
            let names: Vec<String> = of_state(state).map(|check| check.name.to_string()).collect();
            (!names.is_empty()).then(|| format!("{word}: {}", names.join(", ")))
        });
        let names = Some(parts.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())?;
        let causes = states.into_iter().flat_map(|(state, _)| of_state(state));
        let mut causes: Vec<&str> = causes.filter_map(|check| check.cause.as_deref()).collect();
        causes.dedup();
        Some(if causes.is_empty() { names } else { format!("{names} ({})", causes.join("; ")) })
    }

    /// Returns one line per check, followed by its findings and notes.
    pub fn text(&self) -> String {
        self.checks.iter().map(lines).collect()
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
