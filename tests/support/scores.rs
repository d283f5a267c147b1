//! Generated scoring sweeps.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::score::{ScoreConfig, ScoreRecord};
use ringmark_core::benchmark::{BenchmarkKind, RunLabel, RunProfile};
use ringmark_core::dimension::{Bytes, DeviceKind, Seconds, Strategy, TeraflopsPerSecond};
use ringmark_core::file::run_name::RunName;
use ringmark_core::manifest::{Conditions, Manifest, RunState};
use serde_json::Value;

use crate::support::runs::{self, Folder};
use crate::support::sandbox::{ringmark, run};

/// Creates a valid run on the CPU: 10 passes of this time on every rank, each 1 % longer than the previous one.
pub fn record(point: &str, number: u32, pass: f64) -> ScoreRecord {
    let name: RunName = format!("{point}_{number}.log").parse().expect("the name of a run");
    let ranks = name.case.ranks();
    let passes = (0..10).map(|index| Seconds(pass * (1.0 + 0.01 * f64::from(index))));
    ScoreRecord {
        seconds: vec![passes.collect(); ranks as usize],
        peak_memory: vec![Bytes(200_000_000 + 30_000_000 * u64::from(name.batch.size.number())); ranks as usize],
        matrix_product: vec![TeraflopsPerSecond(0.25); ranks as usize],
        confidence: vec![0.125; ranks as usize],
        ..ScoreRecord::new(
            RunLabel { case: name.case, run: number, profile: RunProfile::Full },
            Seconds(1.7e9 + f64::from(number)),
            ScoreConfig {
                model: name.model,
                dtype: name.dtype,
                batch_size: name.batch.size.number(),
                image_size: name.model.image_size(None),
                threads: Some(1),
                ..ScoreConfig::default().on(DeviceKind::Cpu)
            },
            runs::environment(),
            runs::places(ranks),
        )
    }
}

fn name_of(record: &ScoreRecord) -> RunName {
    let ScoreConfig { model, dtype, .. } = record.config;
    let batch = record.config.batch();
    RunName { baseline: false, case: record.case, model, batch, dtype, strategy: Strategy::AllReduce, run: record.run }
}

pub trait Score {
    /// Writes log and record of a run.
    fn score(&self, record: &ScoreRecord);
    /// Writes a manifest with the states of these runs.
    fn manifest(&self, runs: &[(&str, RunState)]);
    /// Returns exit status, standard output and standard error of a command on the folder.
    fn ringmark(&self, command: &str, options: &[&str]) -> (Option<i32>, String, String);
    /// Returns the JSON that extract wrote.
    fn result(&self) -> Value;
}

impl Score for Folder {
    fn score(&self, record: &ScoreRecord) {
        let name = name_of(record);
        let speed = record.speed().map_or(0.0, |speed| speed.0);
        let log = format!(
            "# ringmark-worker 0.1.0\nINFO:root:batch size {:2}, dtype float32, images/sec: {speed:.6}\n",
            name.batch.size.number()
        );
        let mut bytes = Vec::new();
        record.write(&mut bytes).expect("an in-memory write succeeds");
        let below = |path: PathBuf| path.to_str().expect("ASCII").to_owned();
        self.write(&below(name.log(Path::new(""))), log);
        self.write(&below(name.record(Path::new(""))), bytes);
    }

    fn manifest(&self, runs: &[(&str, RunState)]) {
        let command = ["ringmark", "score", "--resume"].map(str::to_owned).into();
        let mut manifest = Manifest::new(BenchmarkKind::Score, command, Conditions::default());
        for (name, state) in runs {
            manifest.run(name.parse().expect("the name of a run")).state = state.clone();
        }
        manifest.write(&self.path()).expect("a writable folder");
    }

    fn ringmark(&self, command: &str, options: &[&str]) -> (Option<i32>, String, String) {
        // Outside of a sweep's folder, extract writes files only with --out.
        let out = (command == "extract").then(|| [PathBuf::from("--out"), self.path()]);
        run(ringmark(command).arg(self.path()).args(options).args(out.into_iter().flatten()))
    }

    fn result(&self) -> Value {
        let text = fs::read_to_string(self.path().join("first_result.json")).expect("the result was written");
        serde_json::from_str(&text).expect("JSON")
    }
}

/// Creates two networks with two precisions, three batch sizes, two cases, and two runs each, without 1n2g of
/// ResNet-18.
pub fn small_folder() -> Folder {
    let folder = Folder::new();
    for (model, pass) in [("rn50", 0.25), ("resnet18", 0.0625)] {
        for (dtype, faster) in [("fp32", 1.0), ("bf16", 0.5)] {
            for batch_size in [1, 4, 32] {
                for (case, slower) in [("1n1g", 1.0), ("1n2g", 1.25)] {
                    for number in [1, 2] {
                        let pass = pass * faster * slower * f64::from(batch_size).powf(0.75);
                        let pass = pass * (1.0 + 0.01 * f64::from(number));
                        if (model, case) != ("resnet18", "1n2g") {
                            folder.score(&record(&format!("{case}/{model}_b{batch_size}_{dtype}"), number, pass));
                        }
                    }
                }
            }
        }
    }
    folder
}
