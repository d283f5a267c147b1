//! Names of files in a results folder. A run's log is `<root>/<case>/<model>_b<batch>_<dtype>_<run>.log`, as in DLPerf,
//! and its record has the same stem and `.jsonl`. A batch of all ranks is `g<batch>`, and one of sequences is followed
//! by their length, `_s<tokens>`. A strategy other than `all-reduce` is part of the name: `.._<dtype>_<strategy>_<run>.log`. Baselines have the same names below `<root>/no-communication`. The last
//! checkpoint of an unfinished run has the same stem and `.safetensors`.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{BatchShape, Case, Dtype, Model, Strategy};
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
    /// Strategy; `all-reduce` if nothing is trained.
    pub strategy: Strategy,
}

impl fmt::Display for Point {
    /// Formats as `ResNet50-v1b, batch size 128, fp32`, followed by `strategy dist_sync` unless that is `all-reduce`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { model, batch, dtype, strategy } = self;
        write!(formatter, "{}, {batch}, {dtype}", model.facts().title)?;
        if strategy.is_all_reduce() { Ok(()) } else { write!(formatter, ", strategy {strategy}") }
    }
}

impl Point {
    /// Returns true if a record of this point may be stored under the name of a run of `named`. Names that predate
    /// strategies do not contain them, so that a name without one matches any.
    pub fn is_named(&self, named: Point) -> bool {
        *self == named || (named.strategy.is_all_reduce() && Point { strategy: Strategy::AllReduce, ..*self } == named)
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
    /// Strategy, which is part of the name unless it is `all-reduce`.
    pub strategy: Strategy,
    /// Number of the run within its case, from 1.
    pub run: u32,
}

impl RunName {
    /// Returns the part of the configuration that the name contains.
    pub fn point(&self) -> Point {
        let RunName { model, batch, dtype, strategy, .. } = *self;
        Point { model, batch, dtype, strategy }
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

    /// Returns the path of one of the run's files below `root`: an existing one with the strategy's name of version 0.1,
    /// or the path with the name of today.
    fn with_extension(&self, root: &Path, extension: &str) -> PathBuf {
        let named = |strategy_name: &str| self.path(root, strategy_name, extension);
        let earlier = self.strategy.earlier_file_name().map(named).filter(|path| path.exists());
        earlier.unwrap_or_else(|| named(&self.strategy.file_name()))
    }

    fn path(&self, root: &Path, strategy_name: &str, extension: &str) -> PathBuf {
        let RunName { baseline, case, model, batch, dtype, strategy, run } = self;
        let root = if *baseline { root.join(BASELINE) } else { root.to_owned() };
        let strategy = if strategy.is_all_reduce() { String::new() } else { format!("{strategy_name}_") };
        let (model, batch) = (model.facts().file_name, batch.file_part());
        root.join(case.to_string()).join(format!("{model}_{batch}_{dtype}_{strategy}{run}.{extension}"))
    }

    /// Parses `.../<case>/<model>_<batch>_<dtype>_<run>.<any extension>`, with or without a strategy before the run;
    /// returns `None` for any other path. The run is a baseline if the case's folder is in a folder named [`BASELINE`].
    pub fn parse(path: &Path) -> Option<RunName> {
        let folder = path.parent()?;
        let case = folder.file_name()?.to_str()?.parse().ok()?;
        let (model, rest) = Model::split_from_file_name(path.file_stem()?.to_str()?)?;
        let mut parts: Vec<&str> = rest.split('_').collect();
        let has_length = parts.get(1).is_some_and(|part| part.starts_with('s'));
        let sequence_length = has_length.then(|| parts.remove(1));
        let (size, dtype, strategy, run) = match parts[..] {
            [size, dtype, run] => (size, dtype, Strategy::AllReduce, run),
            [size, dtype, strategy, run] => {
                (size, dtype, Strategy::from_file_name(strategy).filter(|strategy| !strategy.is_all_reduce())?, run)
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
            strategy,
            run: run.parse().ok()?,
        };
        Some(name)
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path(Path::new(""), &self.strategy.file_name(), "log").display().fmt(formatter)
    }
}

impl FromStr for RunName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<RunName> {
        let is_written = |name: &RunName| {
            let earlier = name.strategy.earlier_file_name();
            let earlier = earlier.map(|strategy| name.path(Path::new(""), strategy, "log"));
            name.to_string() == text || earlier.is_some_and(|earlier| earlier == Path::new(text))
        };
        let name = RunName::parse(Path::new(text)).filter(is_written);
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
        let (model, dtype, strategy) = (Model::Resnet50V1b, Dtype::Fp16, Strategy::AllReduce);
        let name = RunName { baseline: false, case, model, batch: BatchShape::per_rank(128), dtype, strategy, run: 3 };
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
    fn names_round_trip_and_omit_all_reduce() {
        let mut names = std::collections::BTreeSet::new();
        let case = Case { nodes: 2, gpus_per_node: 1 };
        for (&model, &dtype) in Model::ALL.iter().zip(Dtype::ALL.iter().cycle()) {
            for (&strategy, baseline) in Strategy::ALL.iter().zip([false, true].into_iter().cycle()) {
                let batch = BatchShape { sequence_length: model.sequence_length(None), ..BatchShape::per_rank(8) };
                let name = RunName { baseline, case, model, batch, dtype, strategy, run: 12 };
                assert_eq!(name.to_string().parse::<RunName>().expect("a name"), name);
                assert_eq!(RunName::parse(&name.record(Path::new("a/b"))), Some(name));
                assert!(names.insert(name.to_string()), "{name} is two runs");
                assert_eq!(
                    name.to_string().split('_').count(),
                    4 + usize::from(strategy != Strategy::AllReduce) + usize::from(batch.sequence_length.is_some()),
                    "{name}"
                );
            }
        }
        let name: RunName = "1n2g/rn50_b8_fp32_dist-device-sync_1.log".parse().expect("a name");
        assert_eq!(name.strategy, Strategy::DistDeviceSync);
        assert_eq!(name.point().to_string(), "ResNet50-v1b, batch size 8, fp32, strategy dist_device_sync");
    }

    #[test]
    fn name_without_strategy_matches_only_all_reduce() {
        let point =
            |strategy| Point { model: Model::Resnet18, batch: BatchShape::per_rank(8), dtype: Dtype::Fp32, strategy };
        let [all_reduce, device, local] = [Strategy::AllReduce, Strategy::Device, Strategy::Local].map(point);
        assert!(device.is_named(device) && device.is_named(all_reduce) && all_reduce.is_named(all_reduce));
        assert!(!all_reduce.is_named(device) && !local.is_named(device));
        assert!(!device.is_named(Point { batch: BatchShape::per_rank(9), ..all_reduce }));
    }

    #[test]
    fn files_named_by_version_0_1_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let earlier: RunName = "1n2g/rn50_b8_fp32_shard-weights_1.log".parse().expect("a name");
        assert_eq!(earlier.to_string(), "1n2g/rn50_b8_fp32_fsdp_1.log");
        assert_eq!(earlier.to_string().parse::<RunName>().expect("a name"), earlier);
        assert_eq!(earlier.log(folder.path()), folder.path().join(earlier.to_string()));
        let record = folder.path().join("1n2g/rn50_b8_fp32_shard-weights_1.jsonl");
        std::fs::create_dir(folder.path().join("1n2g")).expect("a folder");
        std::fs::write(&record, "").expect("a file");
        assert_eq!(earlier.record(folder.path()), record);
        assert_eq!(RunName::parse(&record), Some(earlier));
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
