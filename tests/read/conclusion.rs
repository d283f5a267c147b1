//! Summary at the end of a sweep, from generated folders.

use std::path::Path;

use expect_test::expect;
use ringmark::read::extract::summary;
use ringmark_core::benchmark::train::{Iteration, RunRecord};
use ringmark_core::dimension::{Phase, Phases, Seconds};

use crate::support::runs::{Folder, record};
use crate::support::sandbox::{ringmark, succeeds};

/// Returns the paragraph below the table.
fn line(folder: &Folder) -> String {
    let summary = summary(&folder.path(), false).expect("runs");
    summary.split("\n\n").nth(2).expect(&summary).trim_end().to_owned()
}

#[test]
fn conclusion_contains_speedup_and_largest_loss() {
    let folder = Folder::new();
    assert_eq!(summary(&folder.path(), false), None, "nothing has run");
    (1..=3).for_each(|run| folder.run(&record("1n1g", run, 0.5)));
    let alone = line(&folder);
    expect!["1n1g: 7.656 images/s, CV 0.0 % over 3 runs"].assert_eq(&alone);
    for run in 1..=3 {
        let mut record = record("1n2g", run, 0.6);
        let exposed = record.iterations.iter_mut().flat_map(|iteration| &mut iteration.phases[Phase::ExposedAllreduce]);
        // Longer than the computing loss, and no rank is late.
        exposed.for_each(|time| time.0 *= 1.5);
        folder.run(&record);
    }
    let transfer = "1n2g: speedup 1.67 of 2, efficiency 83 %; most of the loss is transfer (all-reduce not hidden by backward, with all \
                    ranks ready)";
    assert_eq!(line(&folder), transfer);
    // The runs vary, and no part is significantly larger than the next.
    let folder = Folder::new();
    for (run, step) in [(1, 0.59), (2, 0.6), (3, 0.61)] {
        folder.run(&record("1n1g", run, 0.5));
        folder.run(&record("1n2g", run, step));
    }
    expect!["1n2g: speedup 1.67 of 2, efficiency 83 %; the largest part of the loss is compute, 75 %, or transfer, 75 %: their intervals overlap"].assert_eq(&line(&folder));
    // As fast as one rank, within the differences between runs.
    let folder = Folder::new();
    for (run, step) in [(1, 0.49), (2, 0.5), (3, 0.51)] {
        folder.run(&record("1n1g", run, step));
        folder.run(&record("1n2g", run, step + 0.001));
    }
    let even = line(&folder);
    expect!["1n2g: speedup 2.00 of 2, efficiency 100 %; the runs vary too much to break down the loss"]
        .assert_eq(&even);
    let text = summary(&folder.path(), false).expect("runs");
    expect![[r#"
        ResNet50-v1b, fp32, batch size 4 per rank
        Sound: runs vary by 2.0 % (CV); all 6 runs count

        case  ranks  runs     speed  per rank  speedup  efficiency    ±   CV
                           images/s  images/s                    %    %    %
        --------------------------------------------------------------------
        1n1g      1   3/3     7.656     7.656     1.00       100.0    -  2.0
        1n2g      2   3/3     15.28     7.640     2.00        99.8  4.5  2.0

        1n2g: speedup 2.00 of 2, efficiency 100 %; the runs vary too much to break down the loss
    "#]]
    .assert_eq(&text);
}

/// Returns twenty iterations in which the last of several ranks takes 0.2 s longer and the others wait for it.
fn with_straggler(case: &str, run: u32) -> RunRecord {
    let mut record = record(case, run, 0.5);
    let ranks = record.header.ranks.len();
    let is_slow = |rank: usize| rank > 0 && rank + 1 == ranks;
    let each = |of: &dyn Fn(usize) -> f64| (0..ranks).map(|rank| Seconds(of(rank))).collect::<Vec<Seconds>>();
    let late = |rank| if is_slow(rank) { 0.2 } else { 0.0 };
    let wait = |rank| if ranks > 1 { 0.2 - late(rank) } else { 0.0 };
    let first = record.iterations[0].clone();
    let iteration = |number| Iteration {
        iteration: number,
        step: each(&|rank| 0.45 + late(rank) + wait(rank)),
        phases: Phases::from_fn(|phase| match phase {
            Phase::Input => each(&|_| 0.0),
            Phase::Forward => each(&|_| 0.15),
            Phase::Backward => each(&|rank| 0.25 + late(rank)),
            Phase::ExposedAllreduce => each(&wait),
            Phase::Optimizer => each(&|_| 0.05),
        }),
        before_allreduce: each(&|rank| 0.4 + late(rank)),
        ..first.clone()
    };
    record.iterations = (1..=20).map(iteration).collect();
    record.header.config.iterations = 20;
    let end = record.end.as_mut().expect("an end");
    (end.iterations, end.wall) = (20, Seconds(20.0 * record.iterations[0].step[0].0));
    record
}

#[test]
fn conclusion_names_the_straggler() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&with_straggler("1n1g", run));
        folder.run(&with_straggler("1n4g", run));
    }
    // 0.2 s are lost: three of four ranks wait, one computes.
    let line = line(&folder);
    expect!["1n4g: speedup 2.77 of 4, efficiency 69 %; most of the loss is waiting for rank 3 on host a"]
        .assert_eq(&line);
}

/// Compute, the third part, has a wide interval.
#[test]
fn part_with_a_wide_interval_may_be_the_largest() {
    let result = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/llm-2-cores");
    let report = succeeds(ringmark("report").arg(result));
    let conclusion = report.lines().find(|line| line.starts_with("- 1n2g: speedup ")).expect("a conclusion");
    expect!["- 1n2g: speedup 1.94 of 2, efficiency 97 %; the largest part of the loss is transfer, 43 %, or compute, 19 %: their intervals overlap"].assert_eq(conclusion);
}
