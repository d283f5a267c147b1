//! Profiles of sweeps and of runs.

use crate::keyword_enum;

keyword_enum!(
    /// Preset for the options of a sweep that are not given.
    SweepProfile {
        /// DLPerf's protocol: 120 iterations of 128 images.
        Dlperf = "dlperf",
        /// A measurement that takes minutes on a CPU.
        Cpu = "cpu",
        /// A quick look, too short for reliable figures.
        Quick = "quick",
    }
);

impl SweepProfile {
    /// Returns the number of runs of each point.
    pub fn runs(self) -> u32 {
        match self {
            SweepProfile::Dlperf => 5,
            SweepProfile::Cpu => 3,
            SweepProfile::Quick => 2,
        }
    }

    /// Returns the profile in the records of its runs.
    pub fn run_profile(self) -> RunProfile {
        match self {
            SweepProfile::Quick => RunProfile::Quick,
            SweepProfile::Dlperf | SweepProfile::Cpu => RunProfile::Full,
        }
    }
}

keyword_enum!(
    /// Intended use of a run's figures.
    #[schemars(rename = "Profile")]
    RunProfile {
        /// A measurement, with any sweep profile except quick.
        Full = "full",
        /// A quick look, too short for reliable figures.
        Quick = "quick",
    }
);
