//! Names of files in a results folder. A run's log is `<root>/<case>/<model>_b<batch>_<dtype>_<run>.log`, as in DLPerf,
//! and its record has the same stem and `.jsonl`. A batch of all ranks is `g<batch>`, and one of sequences is followed
//! by their length, `_s<tokens>`. A kv-store other than `ring` is part of the name: `.._<dtype>_<kv-store>_<run>.log`. Baselines have the same names below `<root>/no-communication`. The last
//! checkpoint of an unfinished run has the same stem and `.safetensors`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{BatchShape, Case, Dtype, KvStore, Model};
use crate::text_value;

/// Folder of the same cases without any exchange of gradients, inside that of a sweep. One level deeper than DLPerf's
/// extractor searches.
pub const BASELINE: &str = "no-communication";

/// Folder of the trials of the batch-size search, inside that of a sweep; no trial is a run.
pub const BATCH_SIZE_TRIALS: &str = "batch-size-trials";

/// Folder of the autotune trials, inside that of a sweep; each trial has its own folder.
pub const STRATEGY_TRIALS: &str = "autotune-trials";

/// Configuration and progress of a sweep, in its folder: see [`crate::manifest`].
pub const MANIFEST: &str = "sweep.json";

/// Lock held by the command that writes into the folder.
pub const LOCK: &str = ".ringmark.lock";

/// Progress of that command, written once a second: see [`crate::progress`]. It is not a result, so its name begins with a dot.
pub const PROGRESS: &str = ".ringmark.progress.json";

/// Returns the name of a log while its job runs. Neither DLPerf's extractor, which takes `*.log`, nor ours counts it as
/// a run.
pub fn unfinished_log_path(log: &Path) -> PathBuf {
    with_suffix(log, ".part")
}

/// Returns the name of the log or record of an earlier attempt, numbered from 1; no extractor counts it as a run.
pub fn attempt_path(file: &Path, attempt: u32) -> PathBuf {
    with_suffix(file, &format!(".{attempt}"))
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    PathBuf::from(name)
}

/// Part of a configuration that is repeated in a run's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct Point {
    pub model: Model,
    /// Samples of an iteration.
    pub batch: BatchShape,
    pub dtype: Dtype,
    /// Kv-store; `ring` if nothing is trained.
    pub kv_store: KvStore,
}

impl fmt::Display for Point {
    /// Formats as `ResNet50-v1b, batch size 128, fp32`, followed by `strategy dist_sync` unless that is `ring`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { model, batch, dtype, kv_store } = self;
        write!(formatter, "{}, {batch}, {dtype}", model.facts().title)?;
        if kv_store.is_ring() { Ok(()) } else { write!(formatter, ", strategy {kv_store}") }
    }
}

impl Point {
    /// Returns true if a record of this point may be stored under the name of a run of `named`. Names that predate
    /// kv-stores do not contain them, so that a name without one matches any.
    pub fn is_named(&self, named: Point) -> bool {
        *self == named || (named.kv_store.is_ring() && Point { kv_store: KvStore::Ring, ..*self } == named)
    }
}

/// Run identified by its log's path; serialized as that path below its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RunName {
    /// True for the baseline of its case, whose ranks exchange nothing, in [`BASELINE`].
    pub baseline: bool,
    /// Case, from the folder's name.
    pub case: Case,
    /// Network.
    pub model: Model,
    /// Samples of an iteration.
    pub batch: BatchShape,
    /// Precision of the training step.
    pub dtype: Dtype,
    /// Kv-store, which is part of the name unless it is `ring`.
    pub kv_store: KvStore,
    /// Number of the run within its case, from 1.
    pub run: u32,
}

impl RunName {
    /// Returns the part of the configuration that the name contains.
    pub fn point(&self) -> Point {
        let RunName { model, batch, dtype, kv_store, .. } = *self;
        Point { model, batch, dtype, kv_store }
    }

    /// Returns the name that all runs of the same case and point share: number 0.
    pub fn of_any_number(&self) -> RunName {
        RunName { run: 0, ..*self }
    }

    /// Returns the log's path below `root`.
    pub fn log(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "log")
    }

    /// Returns the record's path below `root`.
    pub fn record(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "jsonl")
    }

    /// Returns the checkpoint's path below `root`; the file exists until the run is finished.
    pub fn checkpoint(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "safetensors")
    }

    /// Returns the trace's path below `root`; the file exists if the run was traced.
    pub fn trace(&self, root: &Path) -> PathBuf {
        self.with_extension(root, "trace.json")
    }

    /// Returns the case's name in messages and tables: `1n2g`, or `1n2g baseline`.
    pub fn description(&self) -> String {
        format!("{}{}", self.case, if self.baseline { " baseline" } else { "" })
    }

    fn with_extension(&self, root: &Path, extension: &str) -> PathBuf {
        let RunName { baseline, case, model, batch, dtype, kv_store, run } = self;
        let root = if *baseline { root.join(BASELINE) } else { root.to_owned() };
        let kv_store = if kv_store.is_ring() { String::new() } else { format!("{}_", kv_store.file_name()) };
        let (model, batch) = (model.facts().file_name, batch.file_part());
        root.join(case.to_string()).join(format!("{model}_{batch}_{dtype}_{kv_store}{run}.{extension}"))
    }

    /// Parses `.../<case>/<model>_<batch>_<dtype>_<run>.<any extension>`, with or without a kv-store before the run;
    /// returns `None` for any other path. The run is a baseline if the case's folder is in a folder named [`BASELINE`].
    pub fn parse(path: &Path) -> Option<RunName> {
        let folder = path.parent()?;
        let case = folder.file_name()?.to_str()?.parse().ok()?;
        let (model, rest) = Model::split_from_file_name(path.file_stem()?.to_str()?)?;
        let mut parts: Vec<&str> = rest.split('_').collect();
        let has_length = parts.get(1).is_some_and(|part| part.starts_with('s'));
        let sequence_length = has_length.then(|| parts.remove(1));
        let (size, dtype, kv_store, run) = match parts[..] {
            [size, dtype, run] => (size, dtype, KvStore::Ring, run),
            [size, dtype, kv_store, run] => {
                (size, dtype, KvStore::from_file_name(kv_store).filter(|kv_store| !kv_store.is_ring())?, run)
            }
            _ => return None,
        };
        let name = RunName {
            baseline: folder.parent().and_then(Path::file_name).is_some_and(|name| name == BASELINE),
            case,
            model,
            batch: BatchShape::from_file_parts(size, sequence_length)
                .filter(|batch| batch.unit() == model.facts().unit())?,
            dtype: dtype.parse().ok()?,
            kv_store,
            run: run.parse().ok()?,
        };
        Some(name)
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
            format!(
                "{text:?} is not the log of a run, such as \
                     1n1g/{}_b128_fp32_1.log",
                Model::default().facts().file_name
            )
        })
    }
}

text_value!(RunName);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::keyword_enum::KeywordEnum;

    #[test]
    fn log_name_round_trips() {
        let case = Case { nodes: 2, gpus_per_node: 8 };
        let (model, dtype, kv_store) = (Model::Resnet50V1b, Dtype::Fp16, KvStore::Ring);
        let name = RunName { baseline: false, case, model, batch: BatchShape::per_rank(128), dtype, kv_store, run: 3 };
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
        assert_eq!((name.description(), baseline.description()), ("2n8g".to_owned(), "2n8g baseline".to_owned()));
        assert_eq!(baseline.to_string(), "no-communication/2n8g/rn50_b128_fp16_3.log");
        assert_eq!(baseline.to_string().parse::<RunName>().expect("a name"), baseline);
    }

    #[test]
    fn names_round_trip_and_omit_ring() {
        let mut names = std::collections::BTreeSet::new();
        let case = Case { nodes: 2, gpus_per_node: 1 };
        for (&model, &dtype) in Model::ALL.iter().zip(Dtype::ALL.iter().cycle()) {
            for (&kv_store, baseline) in KvStore::ALL.iter().zip([false, true].into_iter().cycle()) {
                let batch = BatchShape { sequence_length: model.sequence_length(None), ..BatchShape::per_rank(8) };
                let name = RunName { baseline, case, model, batch, dtype, kv_store, run: 12 };
                assert_eq!(name.to_string().parse::<RunName>().expect("a name"), name);
                assert_eq!(RunName::parse(&name.record(Path::new("a/b"))), Some(name));
                assert!(names.insert(name.to_string()), "{name} is two runs");
                assert_eq!(
                    name.to_string().split('_').count(),
                    4 + usize::from(kv_store != KvStore::Ring) + usize::from(batch.sequence_length.is_some()),
                    "{name}"
                );
            }
        }
        let name: RunName = "1n2g/rn50_b8_fp32_dist-device-sync_1.log".parse().expect("a name");
        assert_eq!(name.kv_store, KvStore::DistDeviceSync);
        assert_eq!(name.point().to_string(), "ResNet50-v1b, batch size 8, fp32, strategy dist_device_sync");
    }

    #[test]
    fn name_without_kv_store_matches_only_ring() {
        let point =
            |kv_store| Point { model: Model::Resnet18, batch: BatchShape::per_rank(8), dtype: Dtype::Fp32, kv_store };
        let [ring, device, local] = [KvStore::Ring, KvStore::Device, KvStore::Local].map(point);
        assert!(device.is_named(device) && device.is_named(ring) && ring.is_named(ring));
        assert!(!ring.is_named(device) && !local.is_named(device));
        assert!(!device.is_named(Point { batch: BatchShape::per_rank(9), ..ring }));
    }

    #[test]
    fn unfinished_runs_and_old_attempts_are_not_runs() {
        for path in [
            unfinished_log_path(Path::new("1n1g/rn50_b128_fp32_1.log")),
            attempt_path(Path::new("1n1g/rn50_b128_fp32_1.log"), 2),
        ] {
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
