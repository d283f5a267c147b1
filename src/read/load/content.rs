//! Detects the type of a file from its content, independent of its name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ringmark_core::benchmark::{BenchmarkKind, RECORDS};
use ringmark_core::dimension::Model;
use ringmark_core::file::schema::kind_of;
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::de::IgnoredAny;

/// Kind of the training result that `ringmark extract` writes.
pub const RESULT: &str = "ringmark-result";

/// Kind of the scoring result that `ringmark extract` writes.
pub const SCORE_RESULT: &str = "ringmark-score-result";

/// Suffix of the name of a result file of either kind.
pub const RESULT_ENDING: &str = "_result.json";

/// Key of the hashes of the files next to a result file.
pub const HASHES: &str = "files_sha256";

/// Type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Training result of `ringmark extract`.
    Result,
    /// Scoring result of `ringmark extract`.
    ScoreResult,
    /// Result of PyTorch's DDP benchmark.
    PytorchDdp,
    /// Record of a benchmark.
    Record(BenchmarkKind),
    /// Output of nccl-tests.
    NcclTests,
}

impl Content {
    /// Returns the name for use in a sentence.
    pub fn text(self) -> String {
        let text = match self {
            Content::Result => "result of ringmark extract",
            Content::ScoreResult => "inference result of ringmark extract",
            Content::PytorchDdp => "JSON file of PyTorch's DDP benchmark",
            Content::Record(benchmark) => return format!("record of ringmark {benchmark}"),
            Content::NcclTests => "JSON file of nccl-tests",
        };
        text.to_owned()
    }
}

/// Returns the type of a file, from the keys of its first JSON object; `None` for anything else.
pub fn content_of(file: &Path) -> anyhow::Result<Option<Content>> {
    // A pipe can be read only once.
    if !fs::metadata(file)?.is_file() {
        return Ok(None);
    }
    let mut input = BufReader::new(File::open(file)?);
    if input.fill_buf()?.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Ok(None);
    }
    let mut objects = serde_json::Deserializer::from_reader(input).into_iter::<BTreeMap<String, IgnoredAny>>();
    let keys = match objects.next() {
        Some(object) => object.context("not JSON")?,
        None => return Ok(None),
    };
    let has = |key: &str| keys.contains_key(key);
    Ok(if has("benchmark_results") {
        Some(Content::PytorchDdp)
    } else if has("nccl_version") && has("args") {
        Some(Content::NcclTests)
    } else if has("kind") && has("rows") {
        kind_of(file).and_then(|kind| match kind.as_str() {
            RESULT => Some(Content::Result),
            SCORE_RESULT => Some(Content::ScoreResult),
            _ => None,
        })
    } else if has("kind") && has("ranks") {
        benchmark_of(file).map(Content::Record)
    } else if !keys.is_empty() && keys.keys().all(|key| model_of(key).is_some()) {
        Some(Content::Result)
    } else {
        None
    })
}

/// Returns the benchmark of a record, from the kind in its header; `None` if the header is incomplete. The rest of the
/// record may be damaged.
pub fn benchmark_of(record: &Path) -> Option<BenchmarkKind> {
    let kind = kind_of(record)?;
    RECORDS.iter().find(|format| format.kind == kind).map(|format| format.benchmark)
}

/// Returns the network of a table's key, which starts with the network's file name: `rn50`, `rn50_b128_fp32`.
pub fn model_of(key: &str) -> Option<Model> {
    let is_named = |model: &&Model| key.starts_with(model.facts().file_name);
    Model::ALL.iter().filter(is_named).max_by_key(|model| model.facts().file_name.len()).copied()
}

/// Returns the files in a folder, down to the given number of levels below it, sorted by name. Hidden files are
/// skipped.
pub fn files_below(folder: &Path, levels: u32) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    entries.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true if levels > 0 => files_below(&path, levels - 1),
        true => Vec::new(),
        false => vec![path],
    };
    entries.into_iter().flat_map(below).collect()
}
