//! Benchmarks whose results are records of their own instead of sweeps: a folder for each, with everything that the
//! commands need of it.

#![allow(missing_docs)]

pub mod bandwidth;
mod cases;
pub mod checkpoint;
pub mod input;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use ringmark_core::benchmark::BenchmarkKind;
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::comparison::side::{Side, SideKind};
use crate::read::analyze::results::{FolderRecords, ResultFolder};
use crate::read::load::problem::Problem;
use crate::read::show::export::figure::ExportedSeries;
use crate::read::show::page::content::RecordContent;
use crate::read::show::page::document::{Headline, Section};

/// Records in a folder, if there are any that can be used, and the problems of the others.
pub type FoundRecords = (Option<Box<dyn FolderRecords>>, Vec<Problem>);

/// Functions that read and show the records of one benchmark.
pub struct BenchmarkReader {
    pub benchmark: BenchmarkKind,
    pub find: fn(&Path) -> anyhow::Result<FoundRecords>,
    /// Returns the headline of a result that contains no sweep; its number selects the color.
    pub headline: fn(usize, &ResultFolder) -> Option<Headline>,
    /// Returns the section of a report, with published figures if requested; `None` if no result contains records.
    pub section: fn(&[ResultFolder], bool) -> Option<Section>,
    /// Returns the exported figures; `None` for a benchmark without any.
    pub series: Option<fn(&ResultFolder) -> Vec<ExportedSeries>>,
    /// `None` for a benchmark whose records are not compared.
    pub side: Option<RecordSide>,
}

/// Use of a record as a side of a comparison.
pub struct RecordSide {
    pub kind: SideKind,
    pub add: fn(&mut Side, &Path, BufReader<File>) -> anyhow::Result<()>,
}

/// Readers of all benchmarks, in the order of the sections of a report.
pub const READERS: &[BenchmarkReader] = &[bandwidth::READER, input::READER, checkpoint::READER];

// A doc comment would become the description of the result that contains these keys.
#[derive(Serialize, JsonSchema)]
pub struct BenchmarkRows<'a> {
    bandwidth: Vec<bandwidth::rows::Bandwidth<'a>>,
    /// Input rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<input::rows::Input<'a>>,
    /// Figures of checkpoints.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checkpoint: Vec<checkpoint::rows::Checkpoints<'a>>,
}

impl<'a> BenchmarkRows<'a> {
    /// Returns the rows of one of the results of a report.
    pub fn new(result: &'a ResultFolder, results: &[ResultFolder]) -> BenchmarkRows<'a> {
        BenchmarkRows {
            bandwidth: bandwidth::rows::rows(result),
            input: input::rows::rows(result, results),
            checkpoint: checkpoint::rows::rows(result),
        }
    }
}

/// Returns the use of the records of a benchmark in comparisons. Fails if they are not compared.
pub fn record_side(benchmark: BenchmarkKind) -> anyhow::Result<&'static RecordSide> {
    let side = READERS.iter().find(|reader| reader.benchmark == benchmark).and_then(|reader| reader.side.as_ref());
    side.with_context(|| format!("records of {benchmark} are not compared"))
}

/// Returns the content of a report about records.
pub fn content(results: &[ResultFolder], published: bool) -> RecordContent {
    let is_alone = |(_, result): &(usize, &ResultFolder)| result.is_of_records();
    let alone: Vec<_> = results.iter().enumerate().filter(is_alone).collect();
    let headlines = |reader: &BenchmarkReader| {
        alone.iter().filter_map(|(number, result)| (reader.headline)(*number, result)).collect::<Vec<_>>()
    };
    RecordContent {
        headlines: READERS.iter().flat_map(headlines).collect(),
        sections: READERS.iter().filter_map(|reader| (reader.section)(results, published)).collect(),
    }
}
