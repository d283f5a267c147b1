//! Results of `ringmark input`: one record, of reading and decoding without training.
//!
//! | module | contents |
//! |---|---|
//! | [`demand`] | images per second that the devices of a host consume |
//! | [`ceiling`] | comparison of a host's input rate with that demand |
//! | [`section`] | section and headline of a report |
//! | [`rows`] | rows in the JSON of a report |

pub mod ceiling;
pub mod demand;
pub mod rows;
pub mod section;

use std::io::BufReader;
use std::path::Path;

use anyhow::{Context, bail};
use ringmark_core::benchmark::input::{INPUT_RECORD, InputRecord};
use ringmark_core::benchmark::{BenchmarkKind, Record, RecordHead, warning};
use ringmark_core::file::atomic_file;
use ringmark_core::host::HostUse;

use crate::read::analyze::results::FolderRecords;
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

    fn warnings(&self) -> Vec<String> {
        warning::texts(&self.warnings).into_iter().map(|text| format!("input: {text}")).collect()
    }

    fn host_use(&self) -> &[HostUse] {
        &self.host_use
    }
}

fn find(folder: &Path) -> anyhow::Result<FoundRecords> {
    let path = folder.join(INPUT_RECORD);
    Ok(match path.exists().then(|| read(&path)) {
        None => (None, Vec::new()),
        Some(Ok(record)) => (Some(Box::new(record)), Vec::new()),
        Some(Err(error)) => (None, vec![Problem::in_file(INPUT_RECORD, format!("{error:#}"))]),
    })
}

fn read(path: &Path) -> anyhow::Result<InputRecord> {
    let file = atomic_file::open(path).context("the record cannot be read")?;
    let record = InputRecord::read(BufReader::new(file)).context("the record cannot be used")?;
    if let Some(failure) = &record.failure {
        bail!("the run failed: {failure}: repeat it");
    }
    Ok(record)
}
