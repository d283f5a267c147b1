//! Checkpoints as a side of a comparison: records of `ringmark checkpoint`. Each measured checkpoint is one run, and each
//! figure is a table of its own, with a row for each combination of the axes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::checkpoint::figures::Direction;
use ringmark_core::benchmark::checkpoint::{CheckpointRecord, CheckpointResult, WriteMode};
use ringmark_core::benchmark::warning;
use ringmark_core::dimension::Seconds;
use ringmark_core::number_text::{count, thousands};
use ringmark_core::options::option_table;
use ringmark_core::stats::run_values::RunValues;

use crate::read::analyze::comparison::side::{RunFigures, Side, SideGroup, case_of};
use crate::read::analyze::reliability;
use crate::read::load::environment::{self, EnvironmentText};

/// A time that is compared.
struct ComparedTime {
    /// Name of the figure.
    name: &'static str,
    /// True for a figure of a read, which is unreliable unless the bytes came from the storage.
    is_of_read: bool,
    /// Seconds of each checkpoint.
    seconds: fn(&CheckpointResult) -> Option<RunValues>,
}

/// Figures that are compared. The stall of a blocking write is the time of the write.
const TIMES: [ComparedTime; 5] = [
    ComparedTime { name: "write", is_of_read: false, seconds: |result| result.time(Direction::Write) },
    ComparedTime { name: "fsync", is_of_read: false, seconds: CheckpointResult::fsync },
    ComparedTime {
        name: "stall",
        is_of_read: false,
        seconds: |result| result.stall().filter(|_| result.combination.mode == WriteMode::Beside),
    },
    ComparedTime { name: "read", is_of_read: true, seconds: |result| result.time(Direction::Read) },
    ComparedTime { name: "restore", is_of_read: true, seconds: CheckpointResult::restore },
];

/// Options that are in the titles and names of cases, or choices whose result the environment contains.
const NOT_COMPARED: [&str; 7] = ["writers", "files", "io", "mode", "size", "record", "device"];

/// Adds a record of `ringmark checkpoint`.
pub fn add_record(side: &mut Side, file: &Path, record: &CheckpointRecord) -> anyhow::Result<()> {
    record.check_valid()?;
    let hosts: BTreeSet<&str> = record.ranks.iter().map(|rank| rank.host.as_str()).collect();
    let device = record.ranks.first().map(|rank| rank.device).context("a record without ranks")?;
    let mut around = EnvironmentText::new();
    environment::add_environment(&mut around, &record.environment);
    environment::add_ranks(&mut around, &record.ranks);
    for storage in &record.storage {
        environment::add(&mut around, "file system", &storage.file_system);
        environment::add(&mut around, "storage", &storage.source);
    }
    side.started.extend(environment::moment(record.started));
    let mut settings: BTreeMap<String, String> = option_table::settings(&record.config)
        .into_iter()
        .map(|(name, value)| (name.replace('-', "_"), value))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    NOT_COMPARED.iter().for_each(|name| drop(settings.remove(*name)));
    let case = case_of(record.ranks.len() as u32, hosts.len());
    let disturbances = reliability::record_warnings(case, case, record);
    let warnings = warning::texts(&record.warnings);
    let place = format!("{} on {}", count(record.ranks.len(), "rank"), count(hosts.len(), "host"));
    for ComparedTime { name, is_of_read, seconds } in &TIMES {
        for result in &record.results {
            let Some(times) = seconds(result) else { continue };
            let group = side.group(SideGroup {
                name: format!("{name}, {place}"),
                must: vec![
                    ("checkpoint of", Some(format!("{} bytes", thousands(record.bytes.0 as f64, ',')))),
                    ("device", Some(device.to_string())),
                ],
                settings: settings.clone(),
                ..SideGroup::default()
            });
            let point = result.combination.to_string();
            let mut left_out = Vec::new();
            let case = group.case(&point);
            case.environment.clone_from(&around);
            case.warnings.extend_from_slice(&warnings);
            case.reliability_warnings.extend_from_slice(&disturbances);
            let warm =
                (*is_of_read && !result.is_cold()).then(|| reliability::warm_read_warning(result.storage_share()));
            case.reliability_warnings.extend(warm);
            for (number, time) in (1..).zip(times.values()) {
                match RunFigures::new(result.gigabytes() / time, Seconds(*time), None) {
                    Some(figures) => case.runs.push(figures),
                    None => left_out.push(format!(
                        "{}: {point}: checkpoint {number}: invalid {name} time of {time} s",
                        file.display()
                    )),
                }
            }
            side.left_out.extend(left_out);
        }
    }
    Ok(())
}
