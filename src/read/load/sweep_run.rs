//! What the rules of a sweep need of each of its runs: when it ran, on what, and whether it did what was asked. Not for
//! figures.

use std::collections::BTreeMap;
use std::path::Path;

use ringmark_core::benchmark::{AUTO_BATCH_SIZE, SweepRecord};
use ringmark_core::dimension::{KvStore, Seconds};
use ringmark_core::file::run_name::{self, RunName};
use ringmark_core::manifest::RanOn;
use ringmark_core::options::option_table::{self, Unlike};

use crate::read::load::record;

/// The options that the sweep itself sets in a baseline.
const SET_IN_BASELINES: [&str; 6] =
    ["--backend", "--checkpoint-every", "--gradient-compression", "--hierarchical", "--kv-store", "--validate"];

/// Of a sweep over several kv-stores, the options of those that have servers.
const OF_SERVERS: [&str; 2] = ["--servers", "--key-placement"];

/// Options, and their values, that a record has what they came to of.
const CHOSEN_LATER: [(&str, &str); 5] = [
    ("--layout", "auto"),
    ("--image-size", ""),
    ("--batch-size", AUTO_BATCH_SIZE),
    ("--kernels", "auto"),
    ("--graphs", "auto"),
];

/// What a record has as many of as its epochs came to.
const ITERATIONS: &str = "--iters";
const EPOCHS: &str = "--epochs";

/// One run by its record.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRun {
    /// Which.
    pub name: RunName,
    /// When it started and ended, seconds since 1970 UTC.
    pub period: [Seconds; 2],
    /// Hosts, devices, software.
    pub ran_on: RanOn,
    /// Options with other values than the sweep was asked for.
    pub unlike: Vec<Unlike>,
    /// Attempts at it before, whose files are kept.
    pub attempts_before: u32,
}

impl SweepRun {
    /// The run of this name below `root`; `None` where its record says nothing. `asked` are the options of the sweep.
    pub fn read<R: SweepRecord>(root: &Path, name: RunName, asked: &BTreeMap<String, String>) -> Option<SweepRun> {
        let record: R = record::beside(root, &name.log(Path::new(""))).ok().flatten()?;
        let (head, settings) = (record.head(), option_table::settings(record.config()));
        let kv_store =
            settings.iter().find(|(option, _)| *option == "kv-store").and_then(|(_, text)| text.parse().ok());
        let has_servers = kv_store.is_some_and(KvStore::has_servers);
        let goes_by_epochs = asked.get(EPOCHS).is_some_and(|epochs| !epochs.is_empty());
        let mut unlike = option_table::unlike(record.config(), asked);
        unlike.retain(|Unlike { name: option, asked, .. }| {
            let is_chosen =
                CHOSEN_LATER.contains(&(option.as_str(), asked.as_str())) || goes_by_epochs && option == ITERATIONS;
            let is_of_others = !has_servers && OF_SERVERS.contains(&option.as_str());
            let is_of_baseline = name.baseline && SET_IN_BASELINES.contains(&option.as_str());
            !(is_of_baseline || is_of_others || is_chosen)
        });
        let is_kept = |attempt: &u32| run_name::of_attempt(&name.log(root), *attempt).exists();
        Some(SweepRun {
            name,
            period: record.period(),
            ran_on: RanOn::of(head.environment, head.ranks),
            unlike,
            attempts_before: (1..).take_while(is_kept).last().unwrap_or_default(),
        })
    }
}
