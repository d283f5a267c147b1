//! What a reader of a run's figures should know, though the run counts. [`crate::validity`] works them out.

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
