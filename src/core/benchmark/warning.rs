//! Warnings about a run's figures, produced by [`crate::validity`].

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;

/// Relative distance below the hosts' median from which a host's rate of reading or writing is named: equal hosts differ
/// by a few percent, a failing disk or link costs half of the rate.
pub(super) const SLOW_HOST: f64 = 0.2;

keyword_enum!(
    /// Subject of a warning, the most serious first.
    WarningKind {
        /// A rank or host that the others wait for in most iterations.
        Straggler = "straggler",
        /// A rank or host that was slow in some iterations.
        SlowAtTimes = "slow-at-times",
        /// A rank that was slow in one range of iterations.
        SlowOnce = "slow-once",
        /// More threads than cores.
        Oversubscribed = "oversubscribed",
        /// A control group's quota that throttled ranks.
        Quota = "quota",
        /// Ranks that compute other values than the others.
        Corruption = "corruption",
        /// Memory errors of a GPU.
        MemoryErrors = "memory-errors",
        /// Devices or cores slowed by heat.
        Heat = "heat",
        /// Clock rates that fell while iterations became longer.
        Clock = "clock",
        /// Core time used by processes outside the run.
        OtherLoad = "other-load",
        /// Core time that the hypervisor gave to other virtual machines.
        Steal = "steal",
        /// Packet loss in the network.
        Network = "network",
        /// Ranks that waited for memory pages from a disk.
        Memory = "memory",
        /// Ranks that waited for images.
        Input = "input",
        /// Hosts that write or read checkpoints slowly.
        Storage = "storage",
        /// A speed that changed during the run.
        Drift = "drift",
        /// Iterations that took far longer than the others.
        Outliers = "outliers",
        /// Updates that were skipped.
        Skipped = "skipped",
        /// Step times that do not add up to the elapsed time.
        WallClock = "wall-clock",
        /// A resumed run whose parts ran in different environments.
        Resumed = "taken-up",
    }
);

/// A warning about the figures of a run that is valid nonetheless.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Subject of the warning.
    pub kind: WarningKind,
    /// Affected rank, host or run: `rank 3 on host d`, `host d` or `the run`. Identical in every run with the same
    /// problem.
    pub about: String,
    /// Observation, measured value and remedy.
    pub text: String,
}

/// Maximum number of texts of one kind in a list: a problem of thousands of hosts is not listed host by host.
pub const SHOWN: usize = 16;

/// Returns the text of each warning; if a kind has many, the first ones and the number of the others.
pub fn texts(warnings: &[Warning]) -> Vec<String> {
    let mut numbers: BTreeMap<WarningKind, usize> = BTreeMap::new();
    let mut texts = Vec::new();
    for warning in warnings {
        let number = numbers.entry(warning.kind).or_default();
        *number += 1;
        texts.extend((*number <= SHOWN).then(|| warning.text.clone()));
    }
    texts.extend(numbers.into_iter().filter_map(|(kind, number)| left_out(kind, number)));
    texts
}

/// Returns the [`texts`] as lines of a log.
pub fn lines(warnings: &[Warning]) -> impl Iterator<Item = String> {
    texts(warnings).into_iter().map(|text| format!("warning: {text}"))
}

/// Returns a note on the warnings of a kind that are not in a list; `None` if all are.
pub fn left_out(kind: WarningKind, number: usize) -> Option<String> {
    (number > SHOWN).then(|| format!("{} more warnings of kind {kind}: the record contains all", number - SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_warnings_of_each_kind_are_shown() {
        let warning = |kind, host: u32| Warning { kind, about: String::new(), text: format!("host {host}") };
        let mut warnings: Vec<Warning> = (0..8192).map(|host| warning(WarningKind::Heat, host)).collect();
        warnings.push(warning(WarningKind::Drift, 7));
        let texts = texts(&warnings);
        assert_eq!(texts.len(), SHOWN + 2);
        assert_eq!(texts[SHOWN..], ["host 7", "8176 more warnings of kind heat: the record contains all"]);
    }
}
