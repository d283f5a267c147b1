//! Runs of the worker on virtual GPUs: stand-ins for the driver, libtorch's CUDA library and NCCL ([`libraries`])
//! that need no GPU.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ringmark_core::benchmark::train::RunRecord;
use serde_json::Value;

use crate::support::worker_run::{Finished, Run};

/// A network and image size for which batch normalization has more than two values per channel.
pub const SMALL: &str = "--model resnet18 --image-size 64";

/// Learning rate for it.
pub const RATE: &str = "--lr 0.001";

/// Limits oneDNN to kernels that every processor has: with AVX-512 and AMX, an operation of the CPU and the same one under
/// the CUDA key get kernels that round differently, and a few updates magnify that.
pub const SAME_KERNELS: (&str, &str) = ("ONEDNN_MAX_CPU_ISA", "AVX2");

/// Returns the folder with libcuda.so.1, libtorch_cuda.so, libnccl.so.2 and nvidia-smi, built once.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual_cuda");
        let mut build = Command::new(root.join("tests/programs/virtual_cuda/build.sh"));
        let output = build.arg(root.join(".libtorch/torch")).arg(&folder).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        folder
    })
}

/// Returns the variables of a process on virtual GPUs: the libraries, and a separate cache of compiled kernels. The
/// version of the stand-in compiler depends on its sources, so kernels of an earlier build are not reused.
pub fn variables() -> [(&'static str, PathBuf); 2] {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("virtual_cuda_cache");
    [("LD_LIBRARY_PATH", libraries().to_owned()), ("XDG_CACHE_HOME", cache)]
}

/// Returns a PATH with the virtual GPUs' nvidia-smi.
pub fn program_path() -> String {
    format!("{}:{}", libraries().display(), std::env::var("PATH").expect("set"))
}

/// A run on virtual GPUs.
pub struct Virtual {
    pub run: Run,
    pub report: PathBuf,
}

/// Report of one rank's virtual GPU.
#[derive(Debug)]
pub struct Report {
    pub device: u64,
    pub waits: u64,
    pub synchronizations: u64,
    pub races: u64,
    pub peak_resident_kb: u64,
}

impl Virtual {
    pub fn new(run: Run) -> Virtual {
        let report = run.path("report.jsonl");
        let run = variables().into_iter().fold(run, |run, (name, value)| run.variable(name, value));
        let run = run.variable("PATH", program_path());
        let run = run.variable("VIRTUAL_CUDA_REPORT", &report);
        Virtual { run, report }
    }

    pub fn ranks(ranks: u32, options: &str) -> Virtual {
        Virtual::new(Run::ranks(ranks, &format!("--device cuda {options}")))
    }

    /// Runs one rank, with NCCL.
    pub fn single_rank(options: &str) -> Virtual {
        Virtual::new(Run::single_rank(&format!("--device cuda --backend nccl {options}")))
    }

    pub fn set(self, name: &str, value: impl ToString) -> Virtual {
        let run = self.run.variable(&format!("VIRTUAL_CUDA_{name}"), value.to_string());
        Virtual { run, ..self }
    }

    pub fn variable(self, name: &str, value: impl AsRef<OsStr>) -> Virtual {
        Virtual { run: self.run.variable(name, value), ..self }
    }

    pub fn file(self, option: &str, path: &Path) -> Virtual {
        Virtual { run: self.run.file(option, path), ..self }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.run.path(name)
    }

    /// Returns the error of a run that must fail with exit status `status` and write no record.
    pub fn refused(self, status: i32) -> String {
        self.run.refused(status)
    }

    pub fn save(self) -> Virtual {
        Virtual { run: self.run.save(), ..self }
    }

    pub fn finish(self) -> (Finished, Vec<Report>) {
        let finished = self.run.finish();
        let text = fs::read_to_string(&self.report).unwrap_or_default();
        (finished, text.lines().map(Report::parse).collect())
    }

    /// Returns the record of a run that must be valid and free of races.
    pub fn valid_record(self) -> RunRecord {
        let (finished, reports) = self.finish();
        assert!(!reports.is_empty() && reports.iter().all(|report| report.races == 0), "{}", finished.stderr);
        finished.valid_record()
    }
}

impl Report {
    fn parse(line: &str) -> Report {
        let values: Value = serde_json::from_str(line).expect("JSON");
        let number = |name: &str| values[name].as_u64().expect("a number");
        Report {
            device: number("device"),
            waits: number("waits"),
            synchronizations: number("synchronizations"),
            races: number("races"),
            peak_resident_kb: number("peak_resident_kb"),
        }
    }
}

pub fn assert_near(actual: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((actual - expected).abs() <= tolerance * expected.abs(), "{what}: {actual}, not {expected}");
}

/// Asserts that at least one of four seeds satisfies `is_near`. CPUs and virtual GPUs use different kernels, and
/// rounding may move a value across ReLU's corner, after which results diverge. This happens with one seed in ten;
/// which ones depends on the processor.
pub fn assert_near_for_a_seed(is_near: impl FnMut(u32) -> bool, what: &str) {
    assert!((1..=4).any(is_near), "{what}: apart for every seed");
}

/// Returns the largest relative difference between the losses of two runs.
pub fn difference(actual: &RunRecord, expected: &RunRecord) -> f64 {
    let losses = |record: &RunRecord| record.iterations.iter().flat_map(|one| one.loss.clone()).collect::<Vec<f64>>();
    let (actual, expected) = (losses(actual), losses(expected));
    assert_eq!(actual.len(), expected.len());
    actual.iter().zip(&expected).map(|(actual, expected)| ((actual - expected) / expected).abs()).fold(0.0, f64::max)
}
