//! Simulated clusters with known times, and sweeps on them.

use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{Case, Seconds};

use crate::support::runs::{Folder, record};
use ringmark_core::stats::random::Random;

pub trait ModelCluster {
    /// Number of iterations averaged for the true value.
    const OF_TRUTH: u32;
    /// Number of iterations of a run.
    const OF_RUN: u32;

    /// Returns an iteration. All times of the run are multiplied by `slow`.
    fn iteration(&self, case: Case, number: u32, slow: f64, noise: &mut Random) -> Iteration;

    /// Returns the relative deviation of all times between runs.
    fn drift(&self) -> f64;

    /// Sets what a record contains beside its times.
    fn describe(&self, case: Case, made: &mut RunRecord);

    fn record(&self, name: &str, run: u32, iterations: u32, noise: &mut Random) -> RunRecord {
        let mut made = record(name, run, 0.1);
        let case: Case = name.parse().expect("a case");
        let slow = 1.0 + self.drift() * noise.normal();
        made.header.config.iterations = iterations;
        self.describe(case, &mut made);
        made.iterations = (1..=iterations).map(|number| self.iteration(case, number, slow, noise)).collect();
        let end = made.end.as_mut().expect("a whole record");
        end.iterations = iterations;
        end.wall = Seconds(made.iterations.iter().map(|iteration| iteration.step[0].0).sum());
        made
    }

    /// Returns the mean step of many iterations without drift.
    fn truth(&self, name: &str) -> f64 {
        let (case, mut noise) = (name.parse().expect("a case"), Random(99));
        let steps: Vec<f64> = (1..=Self::OF_TRUTH)
            .flat_map(|number| self.iteration(case, number, 1.0, &mut noise).step)
            .map(|step| step.0)
            .collect();
        steps.iter().sum::<f64>() / steps.len() as f64
    }

    /// Returns a sweep with five runs of each case.
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

/// Distributes the ranks of a record over the hosts of its case.
pub fn place_ranks(case: Case, made: &mut RunRecord) {
    for rank in &mut made.header.ranks {
        rank.host = format!("host{}", rank.rank / case.gpus_per_node);
        rank.local_rank = rank.rank % case.gpus_per_node;
    }
}
