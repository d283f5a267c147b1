//! Clusters whose every time is known, and the sweeps that run on them.

use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::Case;

use crate::support::random::Random;
use crate::support::runs::Folder;

pub trait ModelCluster {
    /// Iterations whose mean is the truth.
    const OF_TRUTH: u32;
    /// Iterations of a run.
    const OF_RUN: u32;

    /// `slow` is what all times of the run are longer by.
    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration;

    fn record(&self, name: &str, run: u32, iterations: u32, noise: &mut Random) -> RunRecord;

    /// Mean step of many iterations without a drift.
    fn truth(&self, name: &str) -> f64 {
        let (case, mut noise) = (name.parse().expect("a case"), Random(99));
        let steps: Vec<f64> = (1..=Self::OF_TRUTH)
            .flat_map(|number| self.iteration(case, number, 1.0, &mut noise).step)
            .map(|step| step.0)
            .collect();
        steps.iter().sum::<f64>() / steps.len() as f64
    }

    /// Five runs of each case.
    fn sweep(&self, cases: &[&str], seed: u64) -> Folder {
        let folder = Folder::new();
        let mut noise = Random(seed);
        for name in cases {
            for run in 1..=5 {
                folder.run(&self.record(name, run, Self::OF_RUN, &mut noise));
            }
        }
        folder
    }
}
