//! Findings of `ringmark check` about the record of one case.

use ringmark_core::benchmark::checkpoint::figures::Direction;
use ringmark_core::benchmark::checkpoint::{
    CHECKPOINT_LOG, CHECKPOINT_RECORD, CheckpointRecord, CheckpointResult, Combination, lines,
};
use ringmark_core::dimension::Case;
use ringmark_core::number_text::percent;
use ringmark_core::options::option_table;
use ringmark_core::stats::run_values::RunValues;
use ringmark_core::validity::disturbance;
use ringmark_core::validity::thresholds::EXTREME_SPREAD;

use crate::read::analyze::results::CheckedRecord;

/// Returns the findings, each with its remedy.
pub fn checked(case: Case, record: &CheckpointRecord) -> CheckedRecord {
    let file = format!("{case}/{CHECKPOINT_RECORD}");
    let name = |text: String| format!("{file}: {text}");
    let mut checked = CheckedRecord::new(&file, option_table::settings(&record.config));
    checked.settings.extend(record.storage.iter().map(|storage| {
        (format!("the storage of host {}", storage.host), format!("{} of {}", storage.file_system, storage.source))
    }));
    let table = lines::table(record, disturbance(record).is_some());
    checked.printed = Some((format!("{case}/{CHECKPOINT_LOG}"), table));
    checked.missing = missing(record).into_iter().map(name).collect();
    let unknown = record.storage.iter().filter(|storage| storage.file_system.is_empty());
    let unknown = unknown.map(|storage| format!("the file system of host {} is unknown: repeat the run", storage.host));
    let found = lines::warm_reads(record).chain(record.results.iter().flat_map(wide_spreads)).chain(unknown);
    checked.unreliable = found.map(name).collect();
    if record.config.iterations == 1 {
        checked.untested =
            vec![name("one checkpoint of each combination has no spread: choose --iters 3 or more".to_owned())];
    }
    checked
}

/// Returns the combinations of the axes that have fewer checkpoints than requested.
fn missing(record: &CheckpointRecord) -> Vec<String> {
    let requested = record.config.iterations;
    let measured = |wanted: &Combination| {
        let of_point = record.results.iter().filter(|result| result.combination == *wanted);
        of_point.map(|result| result.checkpoints.len()).sum::<usize>()
    };
    let all = record.config.combinations().into_iter().map(|wanted| (measured(&wanted), wanted));
    let short = all.filter(|(measured, _)| *measured != requested as usize);
    short.map(|(measured, wanted)| format!("{wanted}: {measured} of {requested} checkpoints: repeat the run")).collect()
}

/// Returns the figures of a combination whose checkpoints vary too much.
fn wide_spreads(result: &CheckpointResult) -> Vec<String> {
    // The stall beside computation is a small difference of two times, whose relative spread is large.
    let figures: [(&str, Option<RunValues>); 3] = [
        ("write", result.time(Direction::Write)),
        ("read", result.time(Direction::Read)),
        ("restore", result.restore()),
    ];
    let wide = figures.into_iter().filter_map(|(name, values)| {
        let cv = values?.cv().filter(|cv| *cv > EXTREME_SPREAD)?;
        Some(format!("{name} {}", percent(cv)))
    });
    let wide: Vec<String> = wide.collect();
    if wide.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "{}: checkpoints vary by more than {} (CV): {}: raise --iters, and keep other users off the storage",
        result.combination,
        percent(EXTREME_SPREAD),
        wide.join(", ")
    )]
}
