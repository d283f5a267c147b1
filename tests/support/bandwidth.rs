//! Runs of `ringmark bandwidth` and `ringmark-worker bandwidth`, and readers of their tables and records.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::bandwidth::{BandwidthConfig, BandwidthRecord, MessageResult, Timing};
use ringmark_core::benchmark::train::{RunHeader, RunRecord};
use ringmark_core::dimension::{BackendName, Bytes, Seconds};

use crate::support::sandbox::{Sandbox, mpirun, ringmark, words};

impl Sandbox {
    /// Returns `ringmark bandwidth` with this worker on this machine's cores and results in the folder `out`. The
    /// timeout ends a hanging run.
    pub fn bandwidth(&self, options: &str) -> Command {
        let mut command = ringmark("bandwidth --no-doctor --device cpu --timeout 900");
        command.arg("--worker").arg(self.worker()).arg("--out").arg(self.path("out")).args(words(options));
        command
    }

    /// Returns `ringmark-worker bandwidth` with this many ranks.
    pub fn worker_ranks(&self, ranks: u32, options: &str) -> Command {
        let mut command = mpirun(ranks);
        command.args(words("--timeout 900")).arg(self.worker()).args(words("bandwidth --device cpu"));
        command.args(words(options));
        command
    }
}

/// Creates a record of the ranks and the environment of a training run.
pub fn record(trained: &RunRecord, results: Vec<MessageResult>) -> BandwidthRecord {
    let RunHeader { environment, ranks, .. } = &trained.header;
    let config = BandwidthConfig::default();
    let empty = BandwidthRecord::new(Seconds(1.7e9), config, environment.clone(), ranks.clone());
    BandwidthRecord { backend: BackendName::Mpi, results, ..empty }
}

/// Creates the result of a size from the seconds of every iteration on every rank, out of place and in place.
pub fn result(bytes: u64, ranks: u32, iterations: usize, sides: [Option<f64>; 2]) -> MessageResult {
    let timing = |seconds: f64| Timing {
        seconds: vec![vec![Seconds(seconds); iterations]; ranks as usize],
        back_to_back: Vec::new(),
        wrong: Some(0),
        error: vec![0.0; iterations],
    };
    let [out_of_place, in_place] = sides.map(|seconds| seconds.map(timing));
    let (count, element, buckets) = (bytes / 4, "float".to_owned(), vec![Bytes(bytes)]);
    MessageResult { bytes: Bytes(bytes), count, element, buckets, out_of_place, in_place }
}

pub fn text(record: &BandwidthRecord) -> String {
    let mut bytes = Vec::new();
    record.write(&mut bytes).expect("an in-memory write succeeds");
    String::from_utf8(bytes).expect("JSON")
}

pub fn read(path: &Path) -> BandwidthRecord {
    BandwidthRecord::read(BufReader::new(File::open(path).expect("there is a record"))).expect("a record")
}

/// Returns the rows of nccl-tests' table: every line whose first word is a number.
pub fn rows(output: &str) -> Vec<Vec<&str>> {
    let rows = output.lines().map(|line| words(line).collect::<Vec<_>>());
    rows.filter(|row| row.first().is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit()))).collect()
}

pub fn number(word: &str) -> f64 {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is not a number"))
}
