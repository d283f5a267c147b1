//! Marks and warnings of `ringmark extract` for unreliable figures.

use expect_test::expect;
use ringmark_core::benchmark::train::{FingerprintedValues, Fingerprints, RankDifference, RunRecord};
use ringmark_core::benchmark::{BenchmarkKind, RunProfile};
use ringmark_core::dimension::{Phase, Seconds};
use ringmark_core::host::{HostUse, RankUse};
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::extract::{Extract, small_folder};
use crate::support::runs::{Folder, long_record, record};
use crate::support::sandbox::lines_with;

/// Sets the share of the host's two cores that other processes used.
fn disturbed(mut record: RunRecord, share: f64) -> RunRecord {
    let end = record.end.as_mut().expect("sound");
    let used = HostUse { host: "a".to_owned(), cores: 2, elapsed: Seconds(10.0), ..HostUse::default() };
    end.host_use = vec![HostUse { busy: Seconds(20.0 * share), ..used }];
    end.rank_use = record.header.ranks.iter().map(|_| RankUse::default()).collect();
    record
}

#[test]
fn disturbed_and_impossible_figures_are_unreliable() {
    let folder = Folder::new();
    for run in 1..=3 {
        folder.run(&disturbed(record("1n1g", run, 1.0), 0.1 + 0.2 * f64::from(run)));
        folder.run(&disturbed(record("1n2g", run, 0.45), 0.2));
        folder.run(&disturbed(record("1n4g", run, 1.5 + 0.6 * f64::from(run)), 0.25));
    }
    let sweep = ["ringmark", "sweep", "--out", "first", "--resume"].map(str::to_owned).to_vec();
    let mut manifest = Manifest::new(BenchmarkKind::Train, sweep, Conditions::default());
    for name in ["1n1g", "1n2g", "1n4g"]
        .iter()
        .flat_map(|case| (1..=3).map(move |run| format!("{case}/rn50_b4_fp32_{run}.log")))
    {
        manifest.run(name.parse().expect("a name")).state = RunState::Finished;
    }
    manifest.write(&folder.path()).expect("written");
    let (status, table, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    let row = |case: &str| -> Vec<&str> {
        let line = table.lines().find(|line| line.starts_with(case)).expect("a row");
        line.split_whitespace().collect()
    };
    // All figures of 1n1g and 1n4g, and those of 1n2g that are relative to 1n1g.
    assert!(row("1n1g")[3..7].iter().all(|figure| figure.starts_with('(') && figure.ends_with(')')), "{table}");
    let [speed, per_rank, speedup, efficiency, margin] = row("1n2g")[3..8] else { panic!("{table}") };
    assert!([speed, per_rank].iter().all(|speed| !speed.starts_with('(')), "{table}");
    assert_eq!((&speedup[..1], efficiency, margin), ("(", "(222.2)", "(0.0)"), "{table}");
    assert!(row("1n4g")[3].starts_with('('), "{table}");
    let times = table.lines().filter(|line| line.starts_with("1n1g")).nth(1).expect("its times");
    assert!(times.split_whitespace().skip(1).all(|time| time.starts_with('(')), "{table}");
    // The current location of the folder, which may have been moved.
    let resume = format!("ringmark sweep --out {} --resume", folder.path().display());
    let again = format!("repeat 1n1g: {resume} --repeat 1n1g");
    let reliability_warnings = [
        "other processes used the hosts' cores: 1n1g 70.0 % of a".to_owned(),
        "impossible efficiency: 1n2g 222.2 %: the base was disturbed".to_owned(),
        "runs vary by more than 10.0 % (CV): 1n4g 22.8 %: end other programs, or measure longer: raise --iters and --runs".to_owned(),
    ];
    let fix = format!("stop other processes, then repeat: {resume} --repeat 1n1g,1n4g");
    assert!(table.contains(&format!("\n    fix: {fix}\n")), "{table}");
    let markdown = folder.printed(&["--format", "markdown"]);
    assert!(markdown.contains(&format!("\nFix: {fix}\n")), "{markdown}");
    for warning in &reliability_warnings {
        assert!(table.contains(&format!("\nwarning: unreliable: {warning}\n")), "{warning}\n{table}");
        assert!(markdown.contains(&format!("\n**Warning (unreliable):** {warning}\n")), "{warning}\n{markdown}");
    }
    expect!["In parentheses: unreliable; the warnings above give the reason and the fix."]
        .assert_eq(&lines_with(&table, "In parentheses: unreliable;"));
    // A base with a warning needs no second one, and the load is listed once.
    assert!(
        !table.contains("its base 1n1g is unreliable")
            && !table.contains("1n1g, 3 of 3 runs, for example run 1: other"),
        "{table}"
    );

    let result = &folder.result()["rn50"];
    assert_eq!((&result["1n2g"]["is_reliable"], &result["1n1g"]["is_reliable"]), (&false.into(), &false.into()));
    // The third warning: two ranks have more threads than the two cores.
    assert_eq!(result["1n2g"]["reliability_warnings"].as_array().map(Vec::len), Some(3));
    let third = result["1n2g"]["reliability_warnings"][2]["reason"].as_str().expect("a reason");
    assert!(third.starts_with("its ranks share too few cores on a host"), "{third}");
    assert_eq!(result["1n2g"]["reliability_warnings"][0]["fix"], again);
    assert!((result["1n1g"]["runs"][2]["foreign_load"].as_f64().expect("a share") - 0.7).abs() < 1e-9);
    let csv = folder.printed(&["--format", "csv"]);
    assert!(csv.lines().skip(1).all(|line| line.contains(",false,")), "{csv}");

    // Exactly a quarter of the core time is not above the limit, and a valid folder has no figures in parentheses.
    let sound = Folder::new();
    (1..=3).for_each(|run| sound.run(&disturbed(record("1n1g", run, 1.0), 0.25)));
    let (_, table, _) = sound.extract(&[]);
    assert!(!table.contains("QUOTED") && !table.contains("(1"), "{table}");
    assert_eq!(sound.result()["rn50"]["1n1g"]["is_reliable"], true);
}

#[test]
fn case_with_wrong_values_is_unreliable() {
    let folder = Folder::new();
    folder.run(&record("1n1g", 1, 0.5));
    let mut corrupt = disturbed(record("1n4g", 1, 1.6), 0.1);
    let difference = RankDifference { values: FingerprintedValues::Gradients, iteration: 12, ranks: vec![3] };
    corrupt.end.as_mut().expect("sound").fingerprints =
        Some(Fingerprints { difference: Some(difference), ..Fingerprints::default() });
    folder.run(&corrupt);
    let (_, table, _) = folder.extract(&[]);
    let warning = "warning: unreliable: 1n4g: ranks computed different values in run 1 (rank 3 on host a): test the hardware, \
                   and repeat the sweep without it\n";
    assert!(table.contains(warning), "{table}");
    assert!(table.contains("rank 3 on host a differs from 3 other ranks in gradients in iteration 12: "), "{table}");
    let result = &folder.result()["rn50"];
    assert_eq!((&result["1n4g"]["is_reliable"], &result["1n1g"]["is_reliable"]), (&false.into(), &true.into()));
}

#[test]
fn quick_profile_is_marked_in_every_format() {
    let folder = Folder::new();
    let mut quick = record("1n1g", 1, 0.5);
    quick.header.profile = RunProfile::Quick;
    folder.run(&quick);
    assert!(folder.printed(&[]).starts_with("ResNet50-v1b, fp32, batch size 4 per rank - QUICK PROFILE"));
    assert!(folder.printed(&["--format", "markdown"]).contains("QUICK PROFILE"));
    assert!(folder.printed(&["--format", "csv"]).contains(",quick,"));
    assert_eq!(folder.result()["rn50"]["1n1g"]["profile"], "quick");
}

/// Rank 1 takes twice as long to compute in the first and third of three runs of 24 iterations, and the second run is
/// dominated by outliers.
#[test]
fn repeated_warnings_are_merged_in_every_format() {
    let folder = small_folder();
    for run in 1..=3 {
        folder.run(&long_record("1n1g", run, 0.5, |_| ()));
        folder.run(&long_record("1n2g", run, 0.5, |iteration| {
            if run != 2 {
                iteration.before_allreduce[1].0 *= 2.0;
                iteration.phases[Phase::ExposedAllreduce][0].0 += 0.0625;
            } else if iteration.iteration == 21 {
                iteration.step = vec![Seconds(3.0); 2];
            }
        }));
    }
    let straggler = "1n2g, 2 of 3 runs, for example run 1: rank 1 on host a is a straggler: in 100.0 % of the iterations, \
                     2.00 times the others' compute time; the others waited 62.5 ms for it in each: ";
    let outlier = "1n2g, run 2: 1 of 22 iterations took up to ";
    let (status, table, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(table.contains(&format!("\nwarning: {straggler}")), "{table}");
    assert!(table.contains(&format!("\nwarning: {outlier}")), "{table}");
    assert_eq!(table.matches("warning: 1n").count(), 2, "{table}");
    let runs = |case: &str| {
        let row = table.lines().find(|line| line.starts_with(case)).expect("a row");
        row.split_whitespace().nth(2).map(str::to_owned)
    };
    assert_eq!((runs("1n1g").as_deref(), runs("1n2g").as_deref()), (Some("3/3"), Some("3/3!")));
    expect!["!: these runs count but have warnings: see the lines that begin with warning."]
        .assert_eq(&lines_with(&table, "!: these runs"));
    assert!(folder.printed(&["--format", "markdown"]).contains(&format!("\n**Warning:** {straggler}")));

    let result = &folder.result()["rn50"];
    let warnings = result["1n2g"]["warnings"].as_array().expect("a list");
    assert!(warnings[0].as_str().is_some_and(|text| text.starts_with(straggler)), "{warnings:?}");
    assert_eq!((warnings.len(), result["1n1g"]["warnings"].as_array().map(Vec::len)), (2, Some(0)));
    let of_run = |run: usize| &result["1n2g"]["runs"][run]["warnings"];
    for (run, kind, about) in [(0, "straggler", "rank 1 on host a"), (1, "outliers", "the run")] {
        let Some([warning]) = of_run(run).as_array().map(Vec::as_slice) else { panic!("{result}") };
        assert_eq!((&warning["kind"], &warning["about"]), (&Value::from(kind), &Value::from(about)));
    }
    let csv = folder.printed(&["--format", "csv"]);
    let ends: Vec<Vec<&str>> = csv.lines().map(|line| line.rsplit(',').take(2).collect()).collect();
    let counts: Vec<&str> = ends.iter().map(|end| end[1]).collect();
    assert_eq!(counts, ["run_warnings", "0", "2"]);
    assert_eq!([ends[0][0], ends[1][0]], ["efficiency_margin", ""]);
    let margin = folder.result()["rn50"]["1n2g"]["efficiency_margin"].as_f64().expect("a margin");
    assert_eq!(ends[2][0].parse(), Ok(margin));

    // Analyzed again with another warm-up, and without fields that older workers did not write.
    let (_, warmup, _) = folder.extract(&["--warmup", "22"]);
    assert!(!warmup.contains("warning: 1n"), "{warmup}");
}

#[test]
fn runs_of_less_than_a_second_are_unreliable() {
    let [short, long] = [0.3, 0.4].map(|elapsed| {
        let folder = Folder::new();
        for run in 1..=3 {
            let mut record = disturbed(record("1n1g", run, 1.0), 0.0);
            record.end.as_mut().expect("sound").host_use[0].elapsed = Seconds(elapsed);
            folder.run(&record);
        }
        folder.extract(&[]).1
    });
    let warning = "1n1g: all runs together measure less than 1 s, so one disturbance changes the speed: raise --iters, \
                   with another --out";
    assert!(short.contains(warning), "{short}");
    assert!(!long.contains("less than 1 s"), "{long}");
}
