//! DLPerf's file: `{"rn50": {"1n1g": {"average_speed": .., "batch_size_per_device": .., "median_speed": .., "speedup": ..},
//! ..}}`, with DLPerf's figures alone.
//!
//! Where conditions differ within a folder there is one such key for every table, never `rn50` itself, so that a reader
//! that knows only `rn50` cannot take one of them for the whole. A case without a counted run has `null` for its speeds,
//! and `speedup` is `null` where it would not be over 1n1g.

use ringmark_core::dimension::ImagesPerSecond;
use serde::{Serialize, Serializer};

use crate::read::analyse::figures::{DlperfFigures, Extraction, Group, TrainedCase};

/// Cases by group.
struct Groups<'a>(&'a [Group]);

/// Cases by name.
struct Cases<'a>(&'a Group);

/// One case, its fields in DLPerf's order. Speeds in images/s over all ranks.
#[derive(Serialize)]
struct DlperfCase {
    average_speed: Option<ImagesPerSecond>,
    batch_size_per_device: u32,
    median_speed: Option<ImagesPerSecond>,
    speedup: Option<f64>,
}

impl DlperfCase {
    fn of(group: &Group, case: &TrainedCase) -> DlperfCase {
        let figures: Option<&DlperfFigures> = case.figures.as_ref().map(|figures| &figures.dlperf);
        DlperfCase {
            average_speed: figures.map(|figures| figures.average_speed),
            batch_size_per_device: group.conditions.batch_size,
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
        serializer.collect_map(group.cases.iter().map(|case| (case.case.to_string(), DlperfCase::of(group, case))))
    }
}

/// The whole file.
pub fn json(extraction: &Extraction) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&Groups(&extraction.groups))? + "\n")
}
