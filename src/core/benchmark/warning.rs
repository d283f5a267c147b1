//! What a reader of a run's figures should know, though the run counts. [`crate::validity`] works them out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keyword_enum;

keyword_enum!(
    /// What a warning is about, the gravest first.
    WarningKind {
        /// A rank or host that the others wait for, in most iterations.
        Straggler = "straggler",
        /// A rank or host that was slow in some iterations.
        SlowAtTimes = "slow-at-times",
        /// A rank that was slow in one range of iterations.
        SlowOnce = "slow-once",
        /// More threads than cores.
        Oversubscribed = "oversubscribed",
        /// A control group's quota that held ranks back.
        Quota = "quota",
        /// Memory of a GPU that failed.
        MemoryErrors = "memory-errors",
        /// Devices or cores that were slowed for their heat.
        Heat = "heat",
        /// Clocks that fell while iterations became longer.
        Clock = "clock",
        /// Core time that went to processes that are not the run's.
        OtherLoad = "other-load",
        /// Core time that the hypervisor gave to other virtual machines.
        Steal = "steal",
        /// A network that loses what is sent.
        Network = "network",
        /// Ranks that waited for memory to come from a disk.
        Memory = "memory",
        /// Ranks that waited for images.
        Input = "input",
        /// A speed that changed over the run.
        Drift = "drift",
        /// Iterations that took far longer than the others.
        Outliers = "outliers",
        /// Updates that were skipped.
        Skipped = "skipped",
        /// Step times that are not the time that passed.
        WallClock = "wall-clock",
        /// Parts of a run that ran on something else.
        TakenUp = "taken-up",
    }
);

/// What a reader of a run's figures should know, though the run counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// Of what sort.
    pub kind: WarningKind,
    /// `rank 3 on host d`, `host d`, or `the run`: equal in every run that has the same trouble.
    pub about: String,
    /// What was seen, the value, what to do.
    pub text: String,
}

/// Texts of one kind in a list for readers: what thousands of hosts have is not read host by host.
pub const SHOWN: usize = 16;

/// Returns the text of each warning; of many of one kind the first, and how many more there are.
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

/// Says how many of `number` warnings of a kind are not in a list; `None` if all are.
pub fn left_out(kind: WarningKind, number: usize) -> Option<String> {
    (number > SHOWN).then(|| format!("{} more warnings of the kind {kind}: the record has all", number - SHOWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_warnings_of_a_kind_the_first_are_shown() {
        let warning = |kind, host: u32| Warning { kind, about: String::new(), text: format!("host {host}") };
        let mut warnings: Vec<Warning> = (0..8192).map(|host| warning(WarningKind::Heat, host)).collect();
        warnings.push(warning(WarningKind::Drift, 7));
        let texts = texts(&warnings);
        assert_eq!(texts.len(), SHOWN + 2);
        assert_eq!(texts[SHOWN..], ["host 7", "8176 more warnings of the kind heat: the record has all"]);
    }
}
