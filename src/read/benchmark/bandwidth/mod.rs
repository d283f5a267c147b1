//! Results of `ringmark bandwidth`: several records, by case and operation.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | records of a folder |
//! | [`section`] | section and headline of a report |
//! | [`rows`] | rows in the JSON of a report |
//! | [`series`] | exported figures |
//!
//! Comparisons are in [`collectives`], because nccl-tests measures the same.

pub mod load;
pub mod rows;
pub mod section;
pub mod series;

use std::path::Path;

use ringmark_core::benchmark::bandwidth::{BandwidthRecord, figures};
use ringmark_core::benchmark::{BenchmarkKind, Record, RecordHead};
use ringmark_core::dimension::{BackendName, Case};
use ringmark_core::options::option_table;

use crate::read::analyze::assessment::{Assessment, Trust};
use crate::read::analyze::comparison::collectives;
use crate::read::analyze::comparison::side::SideKind;
use crate::read::analyze::results::{CheckedRecord, FolderRecords};
use crate::read::benchmark::bandwidth::load::BandwidthResult;
use crate::read::benchmark::{BenchmarkReader, FoundRecords, RecordSide};

/// Reader of the records.
pub const READER: BenchmarkReader = BenchmarkReader {
    benchmark: BenchmarkKind::Bandwidth,
    find,
    headline: section::headline,
    section: section::section,
    series: Some(series::series),
    side: Some(RecordSide {
        kind: SideKind::Collectives,
        add: |side, file, input| collectives::add_record(side, file, &BandwidthRecord::read(input)?),
    }),
};

/// Options in which the records of a folder may differ: each operation has its own record.
const OF_OPERATION: [&str; 3] = ["op", "red", "root"];

impl FolderRecords for BandwidthResult {
    fn heads(&self) -> Vec<RecordHead<'_>> {
        self.cases.iter().map(|(_, record)| record.head()).collect()
    }

    fn assessment(&self) -> Assessment {
        let of_case = |(case, record): &(Case, BandwidthRecord)| {
            Assessment::from_record(&format!("bandwidth of {case}"), *case, record)
        };
        let wrong = self.cases.iter().filter_map(|(_, record)| figures::wrong(&record.results));
        let correctness = match wrong.reduce(u64::saturating_add) {
            None => (Trust::WithCare, "results were not checked".to_owned()),
            Some(0) => (Trust::Sound, "every result is correct".to_owned()),
            Some(wrong) => (Trust::Unreliable, format!("{wrong} elements are wrong")),
        };
        Assessment { checks: vec![correctness], ..Assessment::merge(self.cases.iter().map(of_case)) }
    }

    fn checked(&self) -> Vec<CheckedRecord> {
        let of_case = |(case, record): &(Case, BandwidthRecord)| {
            let file = load::path(*case, record.config.operation);
            let wrong = match figures::wrong(&record.results) {
                None => Some(format!("{file}: results were not checked: repeat the run with --check")),
                Some(0) => None,
                Some(wrong) => Some(format!("{file}: {wrong} elements are wrong: fix that first")),
            };
            let mut settings = option_table::settings(&record.config);
            settings.retain(|(name, _)| !OF_OPERATION.contains(name));
            CheckedRecord { unreliable: wrong.into_iter().collect(), ..CheckedRecord::new(&file, settings) }
        };
        self.cases.iter().map(of_case).collect()
    }

    fn backends(&self) -> Vec<(BackendName, &[String])> {
        self.cases.iter().map(|(_, record)| (record.backend, record.nccl.as_slice())).collect()
    }
}

fn find(folder: &Path) -> anyhow::Result<FoundRecords> {
    let mut result = load::find(folder)?;
    let problems = std::mem::take(&mut result.problems);
    let has_records = !result.cases.is_empty();
    Ok((has_records.then(|| Box::new(result) as Box<dyn FolderRecords>), problems))
}
