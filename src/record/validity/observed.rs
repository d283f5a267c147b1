//! What warnings of any benchmark are judged by.

use crate::benchmark::train::record::RunRecord;
use crate::host::environment::RankPlace;
use crate::host::resource_use::{HostUse, RankUse};

/// What ranks and hosts were seen to do while the iterations of any benchmark ran.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Every rank.
    pub ranks: &'a [RankPlace],
    /// Every host; empty in older records.
    pub host_use: &'a [HostUse],
    /// Every rank; empty in older records.
    pub rank_use: &'a [RankUse],
    /// Iterations that ran.
    pub iterations: u32,
}

impl<'a> Observed<'a> {
    /// Of a training run; `None` where it did not end.
    pub fn of_training(record: &'a RunRecord) -> Option<Observed<'a>> {
        let end = record.end.as_ref()?;
        Some(Observed {
            ranks: &record.header.ranks,
            host_use: &end.host_use,
            rank_use: &end.rank_use,
            // They were counted since it was taken up, where it was.
            iterations: end.iterations.saturating_sub(record.header.iterations_before()),
        })
    }
}
