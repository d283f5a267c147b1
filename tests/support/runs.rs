//! Generated folders of results: records of valid runs and matching logs.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::train::{Iteration, RunEnd, RunHeader, RunRecord, TrainConfig};
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::{
    BackendName, Bytes, DeviceKind, Phase, Phases, Seconds, TeraflopsPerSecond, UnitsPerSecond,
};
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::{Environment, RankPlace};
use ringmark_core::line::dlperf;
use serde_json::{Map, Value};
use tempfile::TempDir;

/// A temporary folder called `first`.
pub struct Folder {
    pub parent: TempDir,
}

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder { parent: TempDir::new().expect("a temporary folder") };
        fs::create_dir(folder.path()).expect("an empty place");
        folder
    }

    pub fn path(&self) -> PathBuf {
        self.parent.path().join("first")
    }

    /// Writes a file with any content below the folder.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
        fs::write(path, content).expect("a writable folder");
    }

    /// Removes a case, which leaves a smaller sweep.
    pub fn remove(&self, case: &str) {
        fs::remove_dir_all(self.path().join(case)).expect("it was measured");
    }

    /// Writes a log without a record, like DLPerf.
    pub fn log(&self, path: &str, speeds: &[f64]) {
        self.write(path, dlperf_log(speeds));
    }

    /// Writes log and record of one run; a run with `--backend none` is a baseline.
    pub fn run(&self, record: &RunRecord) {
        let header = &record.header;
        let name = RunName {
            baseline: header.config.exchange.backend == BackendChoice::None,
            case: header.case,
            model: header.config.model,
            batch: header.config.batch(),
            dtype: header.config.dtype,
            strategy: header.config.strategy.strategy,
            run: header.run,
        };
        let work = name.batch.work(name.case);
        let mut log = String::from("ringmark-worker 0.1.0\n");
        for iteration in &record.iterations {
            let speed = UnitsPerSecond(work / iteration.step[0].0);
            log.push_str(&dlperf::write(
                dlperf::Batch::at_iteration(iteration.iteration, None),
                speed,
                name.batch.unit(),
                iteration.loss[0],
            ));
            log.push('\n');
        }
        let mut lines = Vec::new();
        record.write(&mut lines).expect("an in-memory write succeeds");
        let below = |path: PathBuf| path.to_str().expect("ASCII").to_owned();
        self.write(&below(name.log(Path::new(""))), log);
        self.write(&below(name.record(Path::new(""))), lines);
    }
}

/// Returns a committed folder below results/.
pub fn committed(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name)
}

/// Returns the rows of `ringmark extract`'s result by group, then by case.
pub fn rows_by_case(result: &Value) -> Value {
    let mut groups = Map::new();
    for row in result["rows"].as_array().expect("rows") {
        let name = |key: &str| row[key].as_str().expect("a name").to_owned();
        let group = groups.entry(name("group")).or_insert_with(|| Value::Object(Map::new()));
        let twice = group.as_object_mut().expect("made so").insert(name("case"), row.clone());
        assert_eq!(twice, None, "one row a case");
    }
    Value::Object(groups)
}

/// Returns DLPerf's log of these speeds: a header, one line per iteration, and other lines in between.
pub fn dlperf_log(speeds: &[f64]) -> String {
    let mut log = String::from("Warning: Permanently added '10.11.0.3' to the list of known hosts.\n");
    for (index, speed) in speeds.iter().enumerate() {
        let batch = index + 1;
        log.push_str(&format!("INFO:root:Epoch[0] Batch[{batch}]\tSpeed: {speed:.2} samples/sec\n"));
        if batch % 50 == 0 {
            log.push_str("INFO:root:Epoch[0] Time cost=12.3\n");
        }
    }
    log
}

/// Returns the environment of a CPU build.
pub fn environment() -> Environment {
    let (ringmark_version, libtorch_version) = ("0.1.0".to_owned(), "2.11.0".to_owned());
    Environment { ringmark_version, libtorch_version, ..Environment::default() }
}

/// Returns the locations of this number of ranks on the processor of one laptop.
pub fn places(ranks: u32) -> Vec<RankPlace> {
    let name = || "Processor of a laptop".to_owned();
    let place =
        |rank| RankPlace { device_name: name(), memory: Some(Bytes(4_000_000)), ..RankPlace::on_cpu(rank, rank, "a") };
    (0..ranks).map(place).collect()
}

/// Creates a record with 24 iterations, each modified by `change`: long enough to compare its ranks.
pub fn long_record(case: &str, run: u32, step: f64, change: impl Fn(&mut Iteration)) -> RunRecord {
    let mut long = record(case, run, step);
    let last = long.iterations[5].clone();
    long.iterations.resize(24, last);
    for (index, iteration) in long.iterations.iter_mut().enumerate() {
        iteration.iteration = index as u32 + 1;
        change(iteration);
    }
    long.header.config.iterations = 24;
    let end = long.end.as_mut().expect("an end");
    (end.iterations, end.wall) = (24, Seconds(long.iterations.iter().map(|one| one.step[0].0).sum()));
    long
}

/// Creates a valid run on the CPU: 4 images per rank, 6 iterations of which 2 are warm-up.
pub fn record(case: &str, run: u32, step: f64) -> RunRecord {
    let case: ringmark_core::dimension::Case = case.parse().expect("a case");
    let ranks = case.ranks();
    let each = |value: f64| vec![Seconds(value); ranks as usize];
    let iteration = |iteration: u32| {
        let step = if iteration <= 2 { 4.0 * step } else { step * (1.0 + 0.01 * f64::from(iteration)) };
        let exposed = if ranks == 1 { 0.0 } else { 0.125 * step };
        Iteration {
            iteration,
            step: each(step),
            phases: Phases::from_fn(|phase| {
                each(match phase {
                    Phase::Input => 0.0,
                    Phase::Forward => 0.25 * step,
                    Phase::Backward => 0.5 * step,
                    Phase::ExposedAllreduce => exposed,
                    Phase::Optimizer => 0.0625 * step,
                })
            }),
            before_allreduce: each(0.375 * step),
            loss: vec![7.0 - f64::from(iteration) / 8.0; ranks as usize],
            loss_scale: 1.0,
            skipped: false,
        }
    };
    let iterations: Vec<Iteration> = (1..=6).map(iteration).collect();
    let wall = Seconds(iterations.iter().map(|iteration| iteration.step[0].0).sum());
    RunRecord {
        header: RunHeader {
            backend: if ranks == 1 { BackendName::Solo } else { BackendName::Mpi },
            buckets: vec![Bytes(102_228_128)],
            ..RunHeader::new(
                RunLabel { case, run, profile: RunProfile::Full },
                Seconds(1.7e9),
                TrainConfig {
                    batch_size: 4,
                    iterations: 6,
                    warmup: 2,
                    image_size: Some(64),
                    seed: i64::from(run),
                    ..TrainConfig::default().on(DeviceKind::Cpu)
                },
                environment(),
                places(ranks),
            )
        },
        iterations,
        end: Some(RunEnd {
            iterations: 6,
            wall,
            parameter_checksums: vec!["00ff".to_owned(); ranks as usize],
            peak_memory: vec![Bytes(1_000_000); ranks as usize],
            matrix_product: vec![TeraflopsPerSecond(0.05); ranks as usize],
            ..RunEnd::default()
        }),
    }
}
