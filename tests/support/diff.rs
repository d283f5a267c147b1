//! `ringmark diff` and its output.

use std::path::Path;

use ringmark_core::benchmark::bandwidth::BandwidthRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::DeviceKind;
use serde_json::Value;

use crate::support::bandwidth::{self, result};
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{ringmark, run};

pub struct Output {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Checks for status 2, no comparison, and these words.
    pub fn is_refused(&self, words: &[&str]) {
        assert_eq!((self.status, self.stdout.as_str()), (2, ""), "{}", self.stderr);
        words.iter().for_each(|word| assert!(self.stderr.contains(word), "{word}: {}", self.stderr));
    }

    /// Checks for status 0 and these words.
    pub fn is_ok_with(&self, words: &[&str]) {
        assert_eq!(self.status, 0, "{}", self.stderr);
        words.iter().for_each(|word| assert!(self.stdout.contains(word), "{word}: {}", self.stdout));
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{}{}", self.stdout, self.stderr))
    }

    /// Returns the verdicts with the names of the cases.
    pub fn verdicts(&self) -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let of_table = |table: &Value| table["cases"].as_array().expect("cases").clone();
        let cases = self.json()["tables"].as_array().expect("tables").iter().flat_map(of_table).collect::<Vec<_>>();
        cases.iter().map(|case| (text(&case["name"]), text(&case["verdict"]))).collect()
    }
}

pub fn diff(base: impl AsRef<Path>, test: impl AsRef<Path>, options: &[&str]) -> Output {
    let (status, stdout, stderr) = run(ringmark("diff").args([base.as_ref(), test.as_ref()]).args(options));
    Output { status: status.expect("no signal"), stdout, stderr }
}

/// Writes three runs of each case that differ slightly.
pub fn sweep(cases: &[&str], step: f64, change: impl Fn(&mut RunRecord)) -> Folder {
    let folder = Folder::new();
    for case in cases {
        for (run, factor) in [(1, 1.0), (2, 1.002), (3, 0.997)] {
            let mut run = record(case, run, step * factor);
            change(&mut run);
            folder.run(&run);
        }
    }
    folder
}

/// Creates a record of `ringmark bandwidth` with two ranks: 1 MiB in `seconds`.
pub fn bandwidth(seconds: f64, device: DeviceKind, failure: Option<&str>) -> String {
    let mut trained = record("1n2g", 1, 0.5);
    for place in &mut trained.header.ranks {
        (place.device, place.device_name) = (device, "V100".to_owned());
    }
    let results = vec![result(1 << 20, 2, 20, [Some(seconds); 2])];
    bandwidth::text(&BandwidthRecord { failure: failure.map(str::to_owned), ..bandwidth::record(&trained, results) })
}
