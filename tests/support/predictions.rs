//! Predictions from the sweeps of simulated clusters.

use ringmark::read::analyze::prediction::evidence::Evidence;
use ringmark::read::analyze::prediction::exchange_pattern::ExchangePattern;
use ringmark::read::analyze::prediction::model::predict;
use ringmark::read::analyze::results::SweepGroups;
use ringmark::read::analyze::training::figures::TrainingGroup;
use ringmark::read::results;
use ringmark_core::dimension::Strategy;

use crate::support::model_cluster::ModelCluster;
use crate::support::runs::Folder;

pub const MEASURED: [&str; 4] = ["1n1g", "1n2g", "2n2g", "4n2g"];

pub fn group_of(folder: &Folder, strategy: Strategy) -> TrainingGroup {
    let result = results::read_training(&folder.path(), None).expect("a folder of runs");
    let is_of = |group: &TrainingGroup| group.conditions.point.strategy == strategy;
    let SweepGroups::Training(groups) = result.sweep else { panic!("not of training") };
    groups.into_iter().find(is_of).expect("a group of it")
}

pub fn evidence(folder: &Folder, strategy: Strategy) -> Evidence {
    let group = group_of(folder, strategy);
    let pattern = ExchangePattern::from_group(&group).expect("it can be predicted");
    Evidence::from_group(&group, pattern).expect("runs that count")
}

/// Checks that the band contains the true result for twice the hosts in at least nine of ten sweeps, of which each cluster
/// has 20.
pub fn assert_covered<C: ModelCluster>(
    what: &str,
    clusters: &[C],
    evidence: impl Fn(&C, &Folder) -> Evidence,
    most_off: f64,
) {
    let (mut inside, mut widths, mut off) = (0, Vec::new(), Vec::new());
    for cluster in clusters {
        let truths = ["8n2g", "4n2g"].map(|next| (next, cluster.truth(next)));
        for seed in 1..=10 {
            let sweep = cluster.sweep(&MEASURED, seed);
            for (next, truth) in truths {
                // The predicted case was not measured.
                if MEASURED.contains(&next) {
                    sweep.remove(next);
                }
                let case = next.parse().expect("a case");
                let band = predict(&evidence(cluster, &sweep), case).expect("the level is there").step;
                inside += u32::from((band.low..=band.high).contains(&truth));
                widths.push((band.high - band.low) / truth);
                off.push((band.mid / truth - 1.0).abs());
            }
        }
    }
    let all = widths.len();
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (width, off) = (median(&mut widths), median(&mut off));
    println!("{what}: {inside} of {all}, width {width:.2}, middle off by {off:.2}");
    assert!(f64::from(inside) >= 0.9 * all as f64, "{what}: {inside} of {all}");
    // The band must not be so wide that it contains anything.
    assert!(width < 1.4 && off < most_off, "{what}: {width}, {off}");
}
