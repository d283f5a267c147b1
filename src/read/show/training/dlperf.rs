//! DLPerf's result file, `{"rn50": {"1n1g": {"average_speed": .., "batch_size_per_device": .., "median_speed": ..,
//! "speedup": ..}, ..}}`, and the lines and table of its extractor, with DLPerf's figures only.
//!
//! If conditions differ within a folder, each table has a key of its own, never `rn50` itself: a program that expects
//! `rn50` must not mistake one table for the whole. A case without counted runs has `null` for its speeds, and
//! `speedup` is `null` if its base is not 1n1g.

use ringmark_core::dimension::UnitsPerSecond;
use serde::{Serialize, Serializer};

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::training::figures::{DlperfFigures, TrainingCase, TrainingGroup};

/// Serializes groups as a map from label to cases.
struct Groups<'a>(&'a [TrainingGroup]);

/// Serializes the cases of a group as a map from name to figures.
struct Cases<'a>(&'a TrainingGroup);

/// One case with its fields in DLPerf's order. Speeds are in images/s over all ranks.
#[derive(Serialize)]
struct DlperfCase {
    average_speed: Option<UnitsPerSecond>,
    batch_size_per_device: u32,
    median_speed: Option<UnitsPerSecond>,
    speedup: Option<f64>,
}

impl DlperfCase {
    fn new(group: &TrainingGroup, case: &TrainingCase) -> DlperfCase {
        let figures: Option<&DlperfFigures> = case.figures.as_ref().map(|figures| &figures.dlperf);
        DlperfCase {
            average_speed: figures.map(|figures| figures.average_speed),
            batch_size_per_device: group.conditions.point.batch.samples_per_rank(case.case.ranks()) as u32,
            median_speed: figures.map(|figures| figures.median_speed),
            speedup: figures.and_then(|figures| figures.speedup),
        }
    }
}

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|group| (&group.label, Cases(group))))
    }
}

impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let group = self.0;
        serializer.collect_map(group.cases.iter().map(|case| (case.case.to_string(), DlperfCase::new(group, case))))
    }
}

/// Returns the lines of DLPerf's extractor: for each log, the speeds of its case so far by run. Then the table of its
/// README for each group.
pub fn lines(result: &ResultFolder) -> String {
    let mut lines = String::new();
    for group in result.training() {
        for case in &group.cases {
            let mut speeds: Vec<String> = Vec::new();
            for run in &case.runs {
                let Ok(measured) = &run.outcome else { continue };
                speeds.push(format!("{}: {}", run.found.name.run, measured.figures.dlperf_speed.0));
                lines.push_str(&format!("{} {{{}}}\n", run.found.log.display(), speeds.join(", ")));
            }
        }
    }
    let tables = result.training().iter().map(|group| {
        let row = |case: &TrainingCase| {
            let DlperfFigures { median_speed, speedup, .. } = case.figures.as_ref()?.dlperf;
            let speedup = speedup.map_or("-".to_owned(), |speedup| speedup.to_string());
            Some(format!("| {} | {} | {} | {speedup} |\n", case.case.nodes, case.case.ranks(), median_speed.0))
        };
        let rows: String = group.cases.iter().filter_map(row).collect();
        format!("\n{}\n\n| node_num | gpu_num | samples/s | speedup |\n|---|---|---|---|\n{rows}", group.label)
    });
    lines + &tables.collect::<String>()
}

pub fn json(result: &ResultFolder) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&Groups(result.training()))? + "\n")
}
