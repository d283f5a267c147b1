//! Checks of a sweep's folder, and of a folder of records. No I/O: the callers pass the findings.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;

use ringmark_core::benchmark::RecordHead;
use ringmark_core::file::run_name::RunName;
use ringmark_core::keyword_enum;
use ringmark_core::manifest::{Manifest, ObservedEnvironment, RunState};
use ringmark_core::number_text::count;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::assessment::Assessment;
use crate::read::analyze::reliability;
use crate::read::analyze::results::CheckedRecord;
use crate::read::load::checked_run::CheckedRun;
use crate::read::load::integrity::{Integrity, Outputs};
use crate::read::load::problem::Problem;

keyword_enum!(
    /// Property of a result that is checked.
    CheckName {
        /// Every requested run exists and counts.
        Complete = "complete",
        /// Files are unchanged since the sweep, and figures match the files.
        Unedited = "unedited",
        /// Runs had the requested options, and ran one after another on the same hosts and devices.
        Rules = "rules",
        /// All figures are reliable.
        Reliable = "reliable" | "quotable",
    }
);

keyword_enum!(
    /// Outcome of a check.
    CheckState {
        /// No finding.
        Passed = "passed",
        /// At least one finding.
        Failed = "failed",
        /// The folder does not contain enough information.
        Unknown = "unknown",
    }
);

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// Name of the check.
    pub name: CheckName,
    /// Outcome of the check.
    pub state: CheckState,
    /// Scope of the check.
    pub summary: String,
    /// Reasons for the failure, each with a remedy.
    pub findings: Vec<String>,
    /// Notes that do not affect the outcome.
    pub notes: Vec<String>,
    /// The note that is a command against the findings, if there is one.
    #[serde(skip)]
    pub fix: Option<String>,
    /// Causes of a failure in a few words, if they are known.
    #[serde(skip)]
    pub cause: Option<String>,
}

/// Cause of an unknown outcome if no run provides data.
const NO_RUN: &str = "no run has a record";

impl Check {
    /// Returns the check with an unknown outcome if there `is_nothing` to check.
    fn unknown_if(self, is_nothing: bool) -> Check {
        if !is_nothing || self.state == CheckState::Failed {
            return self;
        }
        let finding = format!("{NO_RUN}, so there is nothing to check");
        Check { state: CheckState::Unknown, findings: vec![finding], cause: Some(NO_RUN.to_owned()), ..self }
    }

    fn new(name: CheckName, summary: String, findings: Vec<String>) -> Check {
        let state = if findings.is_empty() { CheckState::Passed } else { CheckState::Failed };
        Check { name, state, summary, findings, notes: Vec::new(), fix: None, cause: None }
    }

    /// Returns the check of the reliability of figures, with `own` findings of a benchmark.
    fn of_reliability(summary: String, assessment: &Assessment, own: impl Iterator<Item = String>) -> Check {
        let warnings = &assessment.reliability_warnings;
        let findings = reliability::reasons(warnings).into_iter().chain(own).collect();
        let fix = reliability::repetition(warnings);
        let notes = fix.iter().cloned().collect();
        let cause = Some(reliability::causes(warnings).join(", ")).filter(|causes| !causes.is_empty());
        Check { notes, fix, cause, ..Check::new(CheckName::Reliable, summary, findings) }
    }
}

/// Checks that every run is finished and counts. `usable` contains the runs whose log exists and is unchanged; `problems`
/// come from the figures; `read` contains the runs that have a record.
pub fn complete(manifest: &Manifest, usable: &BTreeSet<RunName>, problems: &[Problem], read: &[CheckedRun]) -> Check {
    let finished = manifest.runs.iter().filter(|run| run.state == RunState::Finished);
    let finished: Vec<RunName> = finished.map(|run| run.name).collect();
    let known: BTreeSet<RunName> = manifest.runs.iter().map(|run| run.name).collect();
    let numbers = numbers_that_are_missing(&known);
    let has_record = |run: &&RunName| read.iter().any(|read| read.name == **run);
    let is_named = |run: &&RunName| problems.iter().any(|problem| problem.path == run.record(Path::new("")));
    let without = finished.iter().filter(|run| !has_record(run) && !is_named(run));
    let without = without.map(|run| format!("{run}: its record is missing or damaged: repeat the run"));
    let findings = problems.iter().map(Problem::to_string).chain(numbers).chain(without).collect();
    let is_finished = |run: &RunName| finished.contains(run);
    let without_memory = known.iter().filter(|run| !is_finished(run) && manifest.shortage(**run).is_some()).count();
    let mut summary = format!("{} of {} runs are finished", finished.len(), manifest.runs.len());
    let unusable = finished.iter().filter(|run| !usable.contains(run)).count();
    if unusable > 0 {
        summary += &format!(", {unusable} of them without usable files");
    }
    if without_memory > 0 {
        summary += &format!(", {without_memory} lack memory");
    }
    Check::new(CheckName::Complete, summary, findings)
}

/// Returns the missing run numbers. Runs are numbered from 1 at every point, so a gap means that a run was removed.
fn numbers_that_are_missing(known: &BTreeSet<RunName>) -> Vec<String> {
    let mut last: BTreeMap<RunName, u32> = BTreeMap::new();
    for run in known {
        let last = last.entry(run.of_any_number()).or_default();
        *last = run.run.max(*last);
    }
    let numbers = last.into_iter().flat_map(|(run, last)| (1..=last).map(move |number| RunName { run: number, ..run }));
    let missing = numbers.filter(|run| !known.contains(run));
    missing.map(|run| format!("{run}: missing from the manifest, which has later runs of its case")).collect()
}

/// Checks that files are as written: those of runs by their hashes, and the `outputs` of extract.
pub fn unedited(integrity: &Integrity, outputs: &Outputs) -> Check {
    let changes = integrity.changes.iter().chain(&integrity.unlisted).chain(&outputs.stale);
    let findings: Vec<String> = changes.map(Problem::to_string).collect();
    let summary = format!(
        "{} compared with their SHA-256, {} written by extract with the runs",
        count(2 * integrity.with_hashes, "file"),
        count(outputs.compared, "file")
    );
    let check = Check { notes: outputs.notes.clone(), ..Check::new(CheckName::Unedited, summary, findings) };
    if check.state == CheckState::Failed || integrity.without_hashes == 0 {
        return check.unknown_if(integrity.with_hashes == 0);
    }
    let cause = format!("no hashes of {}", count(integrity.without_hashes, "finished run"));
    let finding = format!("{cause}: an earlier ringmark wrote the manifest, so edits cannot be detected");
    Check { state: CheckState::Unknown, findings: vec![finding], cause: Some(cause), ..check }
}

/// Checks that the runs, in any order, belong to one sweep.
pub fn rules(runs: &[CheckedRun]) -> Check {
    let mut runs: Vec<&CheckedRun> = runs.iter().collect();
    runs.sort_by(|one, other| one.period[0].0.total_cmp(&other.period[0].0));
    let unlike = runs.iter().flat_map(|run| {
        run.unlike.iter().map(|option| {
            let (name, value, requested) = (&option.name, or_none(&option.value), &option.requested);
            format!("{}: it ran with {name} {value}, but the sweep requested {requested}", run.name)
        })
    });
    let mut ran_on = ObservedEnvironment::default();
    let mut elsewhere = Vec::new();
    for run in &runs {
        let mismatches = ran_on.mismatches(&run.ran_on);
        elsewhere.extend(mismatches.iter().map(|mismatch| format!("{}: {mismatch}", run.name)));
        if mismatches.is_empty() {
            ran_on.add(run.ran_on.clone());
        }
    }
    let overlapping = runs.windows(2).filter(|pair| pair[1].period[0].0 < pair[0].period[1].0);
    let overlapping = overlapping.map(|pair| {
        let early = pair[0].period[1].0 - pair[1].period[0].0;
        format!("{}: it started {early:.0} s before {} ended: they shared the hosts", pair[1].name, pair[0].name)
    });
    let summary = format!("options, hosts, devices, software and times of {}", count(runs.len(), "run"));
    let check = Check::new(CheckName::Rules, summary, unlike.chain(elsewhere).chain(overlapping).collect());
    let repeated = runs.iter().filter(|run| run.attempts_before > 0);
    let repeated = repeated.map(|run| {
        let attempts = count(run.attempts_before, "attempt");
        format!("{}: {attempts} before this one, with files next to it", run.name)
    });
    Check { notes: repeated.collect(), ..check }.unknown_if(runs.is_empty())
}

/// Checks that all figures are reliable. One run has no spread, so that of a case with a single run is not tested.
pub fn reliable(assessment: &Assessment, runs: &[CheckedRun]) -> Check {
    let untested = match &assessment.single_runs[..] {
        [] => None,
        [one] => Some(format!("{one} has one run")),
        several => Some(format!("{} cases have one run each", several.len())),
    };
    let what = match untested {
        None => "load, spread, efficiency and profile of every case".to_owned(),
        Some(why) => format!("load, efficiency and profile of every case; spread not tested: {why}"),
    };
    let mut check = Check::of_reliability(what, assessment, iter::empty());
    let cautions = assessment.cautions();
    let is_noted = check.state == CheckState::Passed && !cautions.is_empty();
    check.notes.extend(is_noted.then(|| format!("use with caution: {}", cautions.join("; "))));
    check.notes.extend(assessment.warnings.iter().filter(|_| is_noted).cloned());
    check.unknown_if(runs.is_empty())
}

/// Checks that every record is valid and has the requested measurements.
pub fn records_complete(records: &[CheckedRecord], problems: &[Problem]) -> Check {
    let missing = records.iter().flat_map(|record| record.missing.iter().cloned());
    let findings = problems.iter().map(Problem::to_string).chain(missing).collect();
    let summary = format!("valid: {} of {}", records.len(), count(records.len() + problems.len(), "record"));
    Check::new(CheckName::Complete, summary, findings)
}

/// Checks that the figures of the records are those that their run printed: the lines of the log. `logs` contains the text
/// of each log that could be read. `None` for a benchmark whose logs are not compared.
pub fn records_unedited(records: &[CheckedRecord], logs: &BTreeMap<String, Option<String>>) -> Option<Check> {
    let printed: Vec<_> = records.iter().filter_map(|record| Some((record, record.printed.as_ref()?))).collect();
    let difference = |(record, (log, lines)): &(&CheckedRecord, &(String, Vec<String>))| {
        let Some(text) = logs.get(log).and_then(Option::as_ref) else {
            return Some(format!("{log}: cannot be read, so that {} cannot be compared with it", record.file));
        };
        let is_printed = |line: &String| text.lines().any(|of_log| of_log.trim_end() == line);
        let other = lines.iter().find(|line| !is_printed(line))?;
        Some(format!("{}: its figures are not in {log}, which has no line `{other}`: repeat the run", record.file))
    };
    let findings = printed.iter().filter_map(difference).collect();
    let summary = format!("figures of {} compared with the logs", count(printed.len(), "record"));
    (!printed.is_empty()).then(|| Check::new(CheckName::Unedited, summary, findings))
}

/// Checks that the records belong to one command: equal options, hosts, devices and software.
pub fn records_by_rules(records: &[CheckedRecord], heads: &[RecordHead]) -> Check {
    let mut findings = Vec::new();
    if let [first, others @ ..] = records {
        for other in others {
            let differs = |(name, value): (&String, &String)| {
                let first = first.settings.get(name).filter(|first| *first != value)?;
                Some(format!("{}: {name} is {}, but {} before", other.file, or_none(value), or_none(first)))
            };
            findings.extend(other.settings.iter().filter_map(differs));
        }
    }
    let mut ran_on = ObservedEnvironment::default();
    for (record, head) in records.iter().zip(heads) {
        let now = ObservedEnvironment::from_record(head.environment, head.ranks);
        let mismatches = ran_on.mismatches(&now);
        findings.extend(mismatches.iter().map(|mismatch| format!("{}: {mismatch}", record.file)));
        if mismatches.is_empty() {
            ran_on.add(now);
        }
    }
    Check::new(
        CheckName::Rules,
        format!("options, hosts, devices and software of {}", count(records.len(), "record")),
        findings,
    )
}

/// Checks that all figures of records are reliable.
pub fn records_reliable(records: &[CheckedRecord], assessment: &Assessment) -> Check {
    let own = records.iter().flat_map(|record| record.unreliable.iter().cloned());
    let summary = format!("load, spread and source of the bytes of {}", count(records.len(), "record"));
    let mut check = Check::of_reliability(summary, assessment, own);
    let untested = records.iter().flat_map(|record| record.untested.iter().cloned());
    check.notes.extend(assessment.warnings.iter().cloned().chain(untested));
    check
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "not set" } else { value }
}
