//! `ringmark input --against`: compares input rates with the demand of a training sweep.

use std::path::Path;

use anyhow::{anyhow, ensure};
use ringmark_core::benchmark::input::InputRecord;
use ringmark_core::options::usage::usage;
use ringmark_core::untrusted_text::printable_lines;

use crate::read::analyze::results::ResultFolder;
use crate::read::benchmark::input::demand::{Demand, demands};
use crate::read::benchmark::input::verdict;

/// Returns a function that compares a record with the demand of each case of the sweep in `folder`, as sentences; `read`
/// reads the sweep.
///
/// # Errors
///
/// Fails if the folder contains no training sweep, or no run counts.
pub fn judge<R>(folder: &Path, read: R) -> anyhow::Result<impl Fn(&InputRecord) -> Vec<String> + use<R>>
where
    R: FnOnce(&Path) -> anyhow::Result<ResultFolder>,
{
    let demands = read(folder).and_then(|result| measured_demands(folder, &result));
    let demands = demands.map_err(|error| usage(error.context(format!("--against {}", folder.display()))))?;
    Ok(move |record: &InputRecord| {
        let lines = demands.iter().flat_map(|demand| verdict::lines(record, demand));
        lines.map(|line| printable_lines(&line).into_owned()).collect()
    })
}

fn measured_demands(folder: &Path, result: &ResultFolder) -> anyhow::Result<Vec<Demand>> {
    let all = demands(result.training());
    ensure!(!all.is_empty(), anyhow!("no run in it counts: see ringmark extract {}", folder.display()));
    Ok(all)
}
