//! Properties of a run that the rules of a sweep check: period, environment, and deviations from the requested options.

use std::collections::BTreeMap;
use std::path::Path;

use ringmark_core::benchmark::SweepRecord;
use ringmark_core::dimension::Seconds;
use ringmark_core::file::run_name::{self, RunName};
use ringmark_core::manifest::ObservedEnvironment;
use ringmark_core::options::option_table::{self, ChangedOption, OptionSpec};

use crate::read::load::record;

/// A run, read from its record.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedRun {
    /// Name of the run.
    pub name: RunName,
    /// Start and end, in seconds since 1970 UTC.
    pub period: [Seconds; 2],
    /// Hosts, devices, software.
    pub ran_on: ObservedEnvironment,
    /// Options whose values differ from those requested for the sweep.
    pub unlike: Vec<ChangedOption>,
    /// Number of earlier attempts, whose files are kept.
    pub attempts_before: u32,
}

impl CheckedRun {
    /// Reads the run of this name below `root`; returns `None` without a usable record. `sweep_options` are the options of the
    /// sweep.
    pub fn read<R: SweepRecord>(
        root: &Path,
        name: RunName,
        sweep_options: &BTreeMap<String, String>,
    ) -> Option<CheckedRun> {
        let record: R = record::read_for_log(root, &name.log(Path::new(""))).ok().flatten()?;
        let head = record.head();
        let has_servers = record.point().strategy.has_servers();
        let is_compared = |option: &OptionSpec<R::Config>, requested: &str| {
            let is_of_baseline = name.baseline && option.is_set_in_baseline();
            let is_of_others = !has_servers && option.is_for_servers();
            !(is_of_baseline || is_of_others || option.is_resolved(requested) || option.is_derived(sweep_options))
        };
        let unlike = option_table::changed_options(record.config(), sweep_options, is_compared);
        let is_kept = |attempt: &u32| run_name::attempt_path(&name.log(root), *attempt).exists();
        Some(CheckedRun {
            name,
            period: record.period(),
            ran_on: ObservedEnvironment::from_record(head.environment, head.ranks),
            unlike,
            attempts_before: (1..).take_while(is_kept).last().unwrap_or_default(),
        })
    }
}
