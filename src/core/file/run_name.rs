//! Where a run's log and record lie: `<root>/<case>/<model>_b<batch>_<dtype>_<run>.log`, DLPerf's names, with the
//! record beside the log under the same stem and `.jsonl`; `.._<dtype>_<kv-store>_<run>.log` where that is not `ring`; the same below `<root>/no-communication` for baselines; those
//! of a bandwidth run, one a case; and what else a folder of results holds. A run under way that keeps checkpoints has the last one
//! under the same stem and `.safetensors`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Case, Dtype, KvStore, Model, Operation};
use crate::options::keyword_enum::KeywordEnum;
use crate::text_value;

/// Folder, in that of a sweep, of the same cases without any exchange of gradients. One level deeper than DLPerf's
/// extractor looks.
pub const BASELINE: &str = "no-communication";

/// Folder, in that of a sweep, of the trials that looked for the largest batch: none of them is a run.
pub const BATCH_SIZE_TRIALS: &str = "batch-size-trials";

/// The same of the trials that looked for the fastest way to exchange, each in a folder of its own.
pub const STRATEGY_TRIALS: &str = "autotune-trials";

/// Log of a case's bandwidth run of an all-reduce, in the case's folder.
pub const BANDWIDTH_LOG: &str = "bandwidth.log";

/// Record of a case's bandwidth run of an all-reduce, beside its log.
pub const BANDWIDTH_RECORD: &str = "bandwidth.json";

/// Log and record of a case's bandwidth run: `bandwidth_all_gather.log` and `.json` of what is no all-reduce.
pub fn bandwidth_files(operation: Operation) -> [String; 2] {
    match operation {
        Operation::AllReduce => [BANDWIDTH_LOG, BANDWIDTH_RECORD].map(str::to_owned),
        other => ["log", "json"].map(|ending| format!("bandwidth_{other}.{ending}")),
    }
}

/// What a bandwidth run did, by the name of its log or record; `None` for any other file.
pub fn bandwidth_operation(file: &Path) -> Option<Operation> {
    let name = file.file_name()?.to_str()?;
    Operation::ALL.iter().copied().find(|operation| bandwidth_files(*operation).iter().any(|file| file == name))
}

/// Log of `ringmark input`, in its folder.
pub const INPUT_LOG: &str = "input.log";

/// Its record, beside it.
pub const INPUT_RECORD: &str = "input.json";

/// What a sweep was asked and how far it is, in its folder: see [`crate::manifest`].
pub const MANIFEST: &str = "sweep.json";

/// Held by the command that writes into the folder.
pub const LOCK: &str = ".ringmark.lock";

/// Where that command is, once a second: see [`crate::progress`]. No result: its name begins with a point.
pub const PROGRESS: &str = ".ringmark.progress.json";

/// Name of a log while its job runs: neither DLPerf's extractor, which takes `*.log`, nor ours takes it for a run's.
pub fn under_way(log: &Path) -> PathBuf {
    with_suffix(log, ".part")
}

/// Name of the log or record of an earlier attempt, from 1; no extractor takes it for a run's.
pub fn of_attempt(file: &Path, attempt: u32) -> PathBuf {
    with_suffix(file, &format!(".{attempt}"))
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    PathBuf::from(name)
}

/// The part of a configuration that a run's name repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Network.
    pub model: Model,
    /// Images of a rank and iteration.
    pub batch_size: u32,
    /// Precision.
    pub dtype: Dtype,
    /// Where gradients are summed and weights updated; `ring` of what trains nothing.
    pub kv_store: KvStore,
}

impl fmt::Display for Point {
    /// `ResNet50-v1b, batch size 128, fp32`, and behind it `kv-store dist_sync` where that is not `ring`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { model, batch_size, dtype, kv_store } = self;
        write!(formatter, "{}, batch size {batch_size}, {dtype}", model.facts().title)?;
        if kv_store.is_ring() { Ok(()) } else { write!(formatter, ", kv-store {kv_store}") }
    }
}

impl Point {
    /// Whether a record of this point may lie under the name of a run of `named`. A name of before kv-stores were part of names
    /// says nothing of them.
    pub fn is_named(&self, named: Point) -> bool {
        *self == named || (named.kv_store.is_ring() && Point { kv_store: KvStore::Ring, ..*self } == named)
    }
}

/// What a log's path says of the run in it; written as that path below its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RunName {
    /// Whether its ranks exchange nothing: the baseline of its case, in [`BASELINE`].
    pub baseline: bool,
    /// Taken from the folder.
    pub case: Case,
    /// Network.
    pub model: Model,
    /// Images a rank and iteration.
    pub batch_size: u32,
    /// Precision of the training step.
    pub dtype: Dtype,
    /// Where gradients are summed and weights updated; its name is in that of the run where it is not `ring`.
    pub kv_store: KvStore,
    /// Number of the run in its case, from 1.
    pub run: u32,
}

impl RunName {
    /// What the run was asked, as far as the name says it.
    pub fn point(&self) -> Point {
        let RunName { model, batch_size, dtype, kv_store, .. } = *self;
        Point { model, batch_size, dtype, kv_store }
    }

    /// The log's path below `root`.
    pub fn log(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "log")
    }

    /// The record's path below `root`.
    pub fn record(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "jsonl")
    }

    /// The path below `root` of its checkpoint, which is there while it is not finished.
    pub fn checkpoint(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "safetensors")
    }

    /// The path below `root` of its trace, where it was traced.
    pub fn trace(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "trace.json")
    }

    /// What messages and tables call its case: `1n2g`, or `1n2g without communication`.
    pub fn what(&self) -> String {
        format!("{}{}", self.case, if self.baseline { " without communication" } else { "" })
    }

    fn with_extension(&self, root: &Path, extension: &str) -> PathBuf {
        let RunName { baseline, case, model, batch_size, dtype, kv_store, run } = self;
        let root = if *baseline { root.join(BASELINE) } else { root.to_owned() };
        let kv_store = if kv_store.is_ring() { String::new() } else { format!("{}_", kv_store.file_name()) };
        let model = model.facts().file_name;
        root.join(case.to_string()).join(format!("{model}_b{batch_size}_{dtype}_{kv_store}{run}.{extension}"))
    }

    /// Reads `.../<case>/<model>_b<batch>_<dtype>_<run>.<any extension>`, with a kv-store before the run or none; `None` for any
    /// other path. It is a baseline's where the folder of the case lies in one that is called [`BASELINE`].
    pub fn parse(path: &Path) -> Option<RunName> {
        let folder = path.parent()?;
        let case = folder.file_name()?.to_str()?.parse().ok()?;
        let (model, rest) = path.file_stem()?.to_str()?.split_once("_b")?;
        let parts: Vec<&str> = rest.split('_').collect();
        let (batch_size, dtype, kv_store, run) = match parts[..] {
            [batch_size, dtype, run] => (batch_size, dtype, KvStore::Ring, run),
            [batch_size, dtype, kv_store, run] => {
                (batch_size, dtype, KvStore::of_file_name(kv_store).filter(|kv_store| !kv_store.is_ring())?, run)
            }
            _ => return None,
        };
        let name = RunName {
            baseline: folder.parent().and_then(Path::file_name).is_some_and(|name| name == BASELINE),
            case,
            model: Model::of_file_name(model)?,
            batch_size: batch_size.parse().ok()?,
            dtype: dtype.parse().ok()?,
            kv_store,
            run: run.parse().ok()?,
        };
        (name.batch_size > 0).then_some(name)
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log(Path::new("")).display().fmt(formatter)
    }
}

impl FromStr for RunName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<RunName> {
        let name = RunName::parse(Path::new(text)).filter(|name| name.to_string() == text);
        name.with_context(|| {
            format!("{text:?} is not the log of a run, as 1n1g/{}_b128_fp32_1.log", Model::default().facts().file_name)
        })
    }
}

text_value!(RunName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_found_again_by_its_name() {
        let case = Case { nodes: 2, gpus_per_node: 8 };
        let (model, dtype, kv_store) = (Model::Resnet50V1b, Dtype::Fp16, KvStore::Ring);
        let name = RunName { baseline: false, case, model, batch_size: 128, dtype, kv_store, run: 3 };
        let path = name.log(Path::new("results/a"));
        assert_eq!(path, Path::new("results/a/2n8g/rn50_b128_fp16_3.log"));
        assert_eq!(RunName::parse(&path), Some(name));
        assert_eq!(RunName::parse(&name.record(Path::new("."))), Some(name));
        assert_eq!(name.trace(Path::new("a")), Path::new("a/2n8g/rn50_b128_fp16_3.trace.json"));
        assert_eq!(RunName::parse(&name.trace(Path::new("a"))), None);
        assert_eq!(name.to_string(), "2n8g/rn50_b128_fp16_3.log");
        assert_eq!(name.to_string().parse::<RunName>().expect("a name"), name);
        assert!("a/2n8g/rn50_b128_fp16_3.log".parse::<RunName>().is_err());
        let other = RunName { model: Model::Resnet18, ..name };
        assert_eq!(other.to_string(), "2n8g/resnet18_b128_fp16_3.log");
        assert_eq!(other.to_string().parse::<RunName>().expect("a name"), other);
        let baseline = RunName { baseline: true, ..name };
        assert_eq!((name.what(), baseline.what()), ("2n8g".to_owned(), "2n8g without communication".to_owned()));
        assert_eq!(baseline.to_string(), "no-communication/2n8g/rn50_b128_fp16_3.log");
        assert_eq!(baseline.to_string().parse::<RunName>().expect("a name"), baseline);
    }

    #[test]
    fn every_name_is_read_back_and_ring_is_not_in_it() {
        let mut names = std::collections::BTreeSet::new();
        let case = Case { nodes: 2, gpus_per_node: 1 };
        for (&model, &dtype) in Model::ALL.iter().zip(Dtype::ALL.iter().cycle()) {
            for (&kv_store, baseline) in KvStore::ALL.iter().zip([false, true].into_iter().cycle()) {
                let name = RunName { baseline, case, model, batch_size: 8, dtype, kv_store, run: 12 };
                assert_eq!(name.to_string().parse::<RunName>().expect("a name"), name);
                assert_eq!(RunName::parse(&name.record(Path::new("a/b"))), Some(name));
                assert!(names.insert(name.to_string()), "{name} is two runs");
                assert_eq!(
                    name.to_string().split('_').count(),
                    if kv_store == KvStore::Ring { 4 } else { 5 },
                    "{name}"
                );
            }
        }
        let name: RunName = "1n2g/rn50_b8_fp32_dist-device-sync_1.log".parse().expect("a name");
        assert_eq!(name.kv_store, KvStore::DistDeviceSync);
        assert_eq!(name.point().to_string(), "ResNet50-v1b, batch size 8, fp32, kv-store dist_device_sync");
    }

    #[test]
    fn a_name_without_a_kv_store_says_nothing_of_it() {
        let point = |kv_store| Point { model: Model::Resnet18, batch_size: 8, dtype: Dtype::Fp32, kv_store };
        let [ring, device, local] = [KvStore::Ring, KvStore::Device, KvStore::Local].map(point);
        assert!(device.is_named(device) && device.is_named(ring) && ring.is_named(ring));
        assert!(!ring.is_named(device) && !local.is_named(device));
        assert!(!device.is_named(Point { batch_size: 9, ..ring }));
    }

    #[test]
    fn neither_a_run_under_way_nor_an_earlier_attempt_is_taken_for_a_run() {
        for path in
            [under_way(Path::new("1n1g/rn50_b128_fp32_1.log")), of_attempt(Path::new("1n1g/rn50_b128_fp32_1.log"), 2)]
        {
            assert_eq!(RunName::parse(&path), None, "{}", path.display());
            assert_ne!(path.extension().expect("one"), "log");
        }
    }

    #[test]
    fn other_files_are_not_runs() {
        for path in [
            "2n8g/notes.log",
            "2n8g/rn50_b128_fp32.log",
            "2n8g/rn50_b128_fp32_1_2.log",
            "2n8g/rn50_b128_fp32_ring_1.log",
            "2n8g/rn50_b128_fp32_dist_sync_1.log",
            "2n8g/rn50_b128_fp32_dist-sync.log",
            "2n8g/rn50_b0_fp32_1.log",
            "x/rn50_b128_fp32_1.log",
        ] {
            assert_eq!(RunName::parse(Path::new(path)), None, "{path}");
        }
    }
}
