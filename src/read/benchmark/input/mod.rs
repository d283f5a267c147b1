//! Results of `ringmark input`: one record, of reading and decoding without training.
//!
//! | module | contents |
//! |---|---|
//! | [`demand`] | images per second that the devices of a host consume |
//! | [`against`] | `ringmark input --against` |
//! | [`verdict`] | comparison of a host's input rate with that demand |
//! | [`section`] | section and headline of a report |
//! | [`rows`] | rows in the JSON of a report |

pub mod against;
pub mod demand;
pub mod rows;
pub mod section;
pub mod verdict;

use std::path::Path;

use ringmark_core::benchmark::input::{INPUT_RECORD, InputRecord};
use ringmark_core::benchmark::{BenchmarkKind, Record, RecordHead};
use ringmark_core::dimension::Case;
use ringmark_core::host::HostUse;
use ringmark_core::options::option_table;

use crate::read::analyze::assessment::{Assessment, Trust};
use crate::read::analyze::results::{CheckedRecord, FolderRecords};
use crate::read::benchmark::{BenchmarkReader, FoundRecords};
use crate::read::load::problem::Problem;

/// Reader of the record.
pub const READER: BenchmarkReader = BenchmarkReader {
    benchmark: BenchmarkKind::Input,
    find,
    headline: section::headline,
    section: section::section,
    series: None,
    side: None,
};

impl FolderRecords for InputRecord {
    fn heads(&self) -> Vec<RecordHead<'_>> {
        vec![self.head()]
    }

    fn assessment(&self) -> Assessment {
        let others = self.passes.iter().filter(|pass| !pass.is_as_requested()).count();
        let source = match others {
            0 => (Trust::Sound, "every pass read from its intended source".to_owned()),
            _ => (Trust::WithCare, format!("{others} of {} passes read from another source", self.passes.len())),
        };
        let case = Case { nodes: self.ranks.len() as u32, gpus_per_node: 1 };
        Assessment { checks: vec![source], ..Assessment::from_record("input", case, self) }
    }

    fn checked(&self) -> Vec<CheckedRecord> {
        let others = self.passes.iter().filter(|pass| !pass.is_as_requested());
        let unreliable = others.map(|pass| {
            format!("{INPUT_RECORD}: the pass of {} threads ({}) read from another source", pass.threads, pass.cache)
        });
        let settings = option_table::settings(&self.config);
        vec![CheckedRecord { unreliable: unreliable.collect(), ..CheckedRecord::new(INPUT_RECORD, settings) }]
    }

    fn host_use(&self) -> &[HostUse] {
        &self.host_use
    }
}

fn find(folder: &Path) -> anyhow::Result<FoundRecords> {
    let path = folder.join(INPUT_RECORD);
    Ok(match path.exists().then(|| InputRecord::read_valid(&path)) {
        None => (None, Vec::new()),
        Some(Ok(record)) => (Some(Box::new(record)), Vec::new()),
        Some(Err(error)) => (None, vec![Problem::in_file(INPUT_RECORD, format!("{error:#}"))]),
    })
}
