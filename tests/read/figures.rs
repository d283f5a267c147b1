//! Every command that reads a sweep prints the same results, and no result is computed from a rounded one.

use std::path::Path;

use serde_json::Value;

use crate::support::runs::{Folder, record, rows_by_case};
use crate::support::sandbox::{ringmark, succeeds};

fn output_of(command: &str, folder: &Path, options: &[&str]) -> String {
    succeeds(ringmark(command).arg(folder).args(options))
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Returns a sweep whose runs differ, so that means, medians and rounded values are all different; one run was
/// disturbed.
fn sweep() -> Folder {
    let folder = Folder::new();
    for (number, noise) in [(1, 1.0), (2, 1.013), (3, 1.009), (4, 1.371), (5, 0.993)] {
        folder.run(&record("1n1g", number, 0.5 * noise));
        folder.run(&record("1n2g", number, 0.5731 * noise * noise));
    }
    folder
}

#[test]
fn every_command_prints_the_same_figures() {
    let folder = sweep();
    let path = folder.path();
    let result = rows_by_case(&json(&output_of("extract", &path, &["--json"])));
    let row = &result["rn50"]["1n2g"];
    let [speed, speedup, efficiency] =
        ["units_per_second", "speedup_over_base", "efficiency"].map(|key| number(&row[key]));

    // By definition, from the runs alone.
    let of_runs = |case: &str| {
        let runs = result["rn50"][case]["runs"].as_array().expect("runs");
        let mut speeds: Vec<f64> = runs.iter().map(|run| number(&run["units_per_second"])).collect();
        speeds.sort_by(f64::total_cmp);
        speeds[2]
    };
    assert_eq!(speed, of_runs("1n2g"));
    assert_eq!(speedup, of_runs("1n2g") / of_runs("1n1g"));
    assert_eq!(efficiency, speedup / 2.0);
    let close = |what: &str, actual: f64, expected: f64| {
        assert!((actual / expected - 1.0).abs() < 1e-12, "{what}: {actual}, expected {expected}");
    };
    close("the loss", number(&row["scaling_loss"]["efficiency"]), efficiency);
    close("the step", number(&row["seconds_per_iteration"]["step"]), 8.0 / speed);

    // Every format of extract.
    let csv = output_of("extract", &path, &["--format", "csv"]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let field = |name: &str| {
        let place = lines[0].iter().position(|column| *column == name).expect(name);
        lines[2][place].parse::<f64>().expect("a number")
    };
    assert_eq!((field("speed_images_per_s"), field("efficiency")), (speed, efficiency));
    let shown = [format!("{speed:.2}"), format!("{:.2}", speed / 2.0), format!("{speedup:.2}")];
    let percent = format!("{:.1}", efficiency * 100.0);
    for format in ["table", "markdown"] {
        let text = output_of("extract", &path, &["--format", format]);
        let row = text.lines().find(|line| line.trim_start_matches("| ").starts_with("1n2g")).expect("a row");
        shown.iter().chain([&percent]).for_each(|figure| assert!(row.contains(figure.as_str()), "{figure}: {row}"));
    }

    // Report.
    let report = json(&output_of("report", &path, &["--json"]));
    assert_eq!(rows_by_case(&report["results"][0])["rn50"]["1n2g"], *row);
    let page = output_of("report", &path, &[]);
    let headline = [format!("Speed of 1n2g: ({speed:.1}"), format!("Efficiency of 1n2g: ({percent} %")];
    headline.iter().for_each(|line| assert!(page.contains(line), "{line}: {page}"));

    // Comparison and prediction.
    let compared = json(&output_of("diff", &path, &[path.to_str().expect("a plain name"), "--json"]));
    let case = &compared["tables"][0]["cases"][1];
    assert_eq!((&case["name"], number(&case["throughput"]["base"])), (&Value::from("1n2g"), speed));
    let predicted = json(&output_of("predict", &path, &["--cases", "1n2g", "--json"]));
    let measured = &predicted["groups"][0]["predictions"][0];
    close("predict", number(&measured["units_per_second"]["mid"]), speed);
    close("predict", number(&measured["efficiency"]["mid"]), efficiency);

    // PyTorch's suite: all iterations of all runs; their means are the runs' speeds.
    let suite = json(&output_of("extract", &path, &["--format", "pytorch-ddp"]));
    let iterations: Vec<f64> = suite["benchmark_results"][0]["result"][2]["measurements"]
        .as_array()
        .expect("times")
        .iter()
        .map(number)
        .collect();
    let mut speeds: Vec<f64> =
        iterations.chunks(iterations.len() / 5).map(|run| 8.0 * run.len() as f64 / run.iter().sum::<f64>()).collect();
    speeds.sort_by(f64::total_cmp);
    close("the suite", speeds[2], speed);

    // DLPerf uses other means, and only in its own file are they called median_speed.
    let dlperf = json(&output_of("extract", &path, &["--format", "dlperf"]));
    assert_eq!(dlperf["rn50"]["1n2g"]["median_speed"], row["dlperf"]["median_speed"]);
    assert_ne!(number(&row["dlperf"]["median_speed"]), speed);
}
