//! Results of `ringmark checkpoint`: a record for each case, of writing and reading without training.
//!
//! | module | contents |
//! |---|---|
//! | `check` | findings of `ringmark check` |
//! | [`section`] | section and headline of a report |
//! | [`rows`] | rows in the JSON of a report |

mod check;
pub mod rows;
pub mod section;

use std::path::Path;

use ringmark_core::benchmark::checkpoint::{CHECKPOINT_RECORD, CheckpointRecord};
use ringmark_core::benchmark::{BenchmarkKind, Record, RecordHead};
use ringmark_core::dimension::Case;

use crate::read::analyze::assessment::{Assessment, Trust};
use crate::read::analyze::comparison::checkpoints;
use crate::read::analyze::comparison::side::SideKind;
use crate::read::analyze::results::{CheckedRecord, FolderRecords};
use crate::read::benchmark::cases::{cases_in, read_case};
use crate::read::benchmark::{BenchmarkReader, FoundRecords, RecordSide};
use crate::read::load::problem::Problem;

/// Reader of the records.
pub const READER: BenchmarkReader = BenchmarkReader {
    benchmark: BenchmarkKind::Checkpoint,
    find,
    headline: section::headline,
    section: section::section,
    series: None,
    side: Some(RecordSide {
        kind: SideKind::Checkpoints,
        add: |side, file, input| checkpoints::add_record(side, file, &CheckpointRecord::read(input)?),
    }),
};

/// Checkpoint records of a folder, sorted by ranks, then nodes.
#[derive(Debug)]
pub struct CheckpointRecords(pub Vec<(Case, CheckpointRecord)>);

impl FolderRecords for CheckpointRecords {
    fn heads(&self) -> Vec<RecordHead<'_>> {
        self.0.iter().map(|(_, record)| record.head()).collect()
    }

    fn assessment(&self) -> Assessment {
        let of_case = |(case, record): &(Case, CheckpointRecord)| {
            Assessment::from_record(&format!("checkpoint of {case}"), *case, record)
        };
        let results = || self.0.iter().flat_map(|(_, record)| &record.results);
        let warm = results().filter(|result| !result.is_cold()).count();
        let source = match warm {
            0 => (Trust::Sound, "every read came from the storage".to_owned()),
            _ => (Trust::WithCare, format!("{warm} of {} reads did not come from the storage", results().count())),
        };
        Assessment { checks: vec![source], ..Assessment::merge(self.0.iter().map(of_case)) }
    }

    fn checked(&self) -> Vec<CheckedRecord> {
        self.0.iter().map(|(case, record)| check::checked(*case, record)).collect()
    }
}

fn find(folder: &Path) -> anyhow::Result<FoundRecords> {
    let (mut records, mut problems) = (Vec::new(), Vec::new());
    for case in cases_in(folder, BenchmarkKind::Checkpoint)? {
        let path = format!("{case}/{CHECKPOINT_RECORD}");
        if folder.join(&path).exists() {
            match read_case(&folder.join(&path), case) {
                Ok(record) => records.push((case, record)),
                Err(error) => problems.push(Problem::in_file(path, format!("{error:#}"))),
            }
        }
    }
    let found = (!records.is_empty()).then(|| Box::new(CheckpointRecords(records)) as Box<dyn FolderRecords>);
    Ok((found, problems))
}
