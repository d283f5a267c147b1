//! `ringmark extract` on a generated folder.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::runs::{Folder, record, rows_by_case};
use crate::support::sandbox::{ringmark, run};

pub trait Extract {
    /// Returns exit status, standard output and standard error.
    fn extract(&self, options: &[&str]) -> (Option<i32>, String, String);
    /// Returns the rows of the result by group, then by case.
    fn result(&self) -> Value;
    fn dlperf(&self) -> Value;

    fn printed(&self, options: &[&str]) -> String {
        self.extract(options).1
    }
}

impl Extract for Folder {
    fn extract(&self, options: &[&str]) -> (Option<i32>, String, String) {
        extract(&self.path(), options)
    }

    fn result(&self) -> Value {
        let text = fs::read_to_string(self.path().join("first_result.json")).expect("the result was written");
        rows_by_case(&serde_json::from_str(&text).expect("JSON"))
    }

    fn dlperf(&self) -> Value {
        let text = fs::read_to_string(self.path().join("first_dlperf.json")).expect("the file was written");
        serde_json::from_str(&text).expect("JSON")
    }
}

pub fn extract(folder: &Path, options: &[&str]) -> (Option<i32>, String, String) {
    // Outside of a sweep's folder, files are written only with --out.
    let is_told = options.iter().any(|option| ["--out", "-o"].contains(option));
    let out = (!is_told).then(|| [Path::new("--out"), folder]);
    run(ringmark("extract").arg(folder).args(options).args(out.into_iter().flatten()))
}

/// Returns `count` speeds: 20 slow ones, then pairs around `mean`.
pub fn speeds(mean: f64, count: usize) -> Vec<f64> {
    (0..count)
        .map(|index| match index {
            0..20 => mean / 3.0,
            _ if index % 2 == 0 => mean - 0.5,
            _ => mean + 0.5,
        })
        .collect()
}

pub fn assert_close(value: &Value, expected: f64) {
    assert!(value.as_f64().is_some_and(|value| (value / expected - 1.0).abs() < 1e-9), "{value}, expected {expected}");
}

/// Creates two cases with two runs each, and a failed run.
pub fn small_folder() -> Folder {
    let folder = Folder::new();
    for (run, slower) in [(1, 1.0), (2, 1.02)] {
        folder.run(&record("1n1g", run, 0.5 * slower));
        folder.run(&record("1n2g", run, 0.5625 * slower));
    }
    let mut failed = record("1n2g", 3, 0.5);
    failed.iterations[4].loss[1] = f64::NAN;
    folder.run(&failed);
    folder
}

/// Adds one defect to a folder with two valid logs; expects the message, exit status 1, and the figures of the other
/// runs.
pub fn expect_left_out(expected: &str, damage: impl FnOnce(&Folder)) {
    let folder = Folder::new();
    folder.log("1n1g/rn50_b128_fp32_1.log", &speeds(384.19, 120));
    folder.log("1n2g/rn50_b128_fp32_1.log", &speeds(749.04, 120));
    damage(&folder);
    let (status, stdout, stderr) = folder.extract(&[]);
    assert_eq!(status, Some(1), "{expected}");
    assert!(stderr.contains(&format!("not in the figures: {expected}")), "{expected}\n{stderr}");
    assert!(stderr.contains("are not complete: see the message above"), "{expected}\n{stderr}");
    assert!(stdout.contains(" 749.0 "), "{expected}\n{stdout}");
    let markdown = fs::read_to_string(folder.path().join("first_result.md")).expect("written");
    assert!(markdown.contains(expected), "{expected}\n{markdown}");
    assert_eq!(folder.dlperf()["rn50"]["1n2g"]["median_speed"], 749.04, "{expected}");
}

/// Path of a third log, in case 1n2g.
pub const SECOND: &str = "1n2g/rn50_b128_fp32_2.log";
