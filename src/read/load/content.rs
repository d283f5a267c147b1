//! What a file holds, recognised by its content and never by its name. Not for reading it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::Model;
use ringmark_core::file::whole_file;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::schemas::RECORDS;
use serde::de::IgnoredAny;

/// Kind of what `ringmark extract` writes of training.
pub const RESULT: &str = "ringmark-result";

/// Kind of what it writes of scoring.
pub const SCORE_RESULT: &str = "ringmark-score-result";

/// End of the name of a result file of either kind.
pub const RESULT_ENDING: &str = "_result.json";

/// Key of the hashes of the files beside a result file.
pub const HASHES: &str = "files_sha256";

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Content {
    /// Of `ringmark extract`, of training.
    Result,
    /// Of `ringmark extract`, of scoring.
    ScoreResult,
    /// Of PyTorch's DDP benchmark.
    PytorchDdp,
    /// Of `ringmark bandwidth`.
    Bandwidth,
    /// Of nccl-tests.
    NcclTests,
}

impl Content {
    /// In a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Content::Result => "result of ringmark extract",
            Content::ScoreResult => "scoring result of ringmark extract",
            Content::PytorchDdp => "JSON of PyTorch's DDP benchmark",
            Content::Bandwidth => "record of ringmark bandwidth",
            Content::NcclTests => "JSON of nccl-tests",
        }
    }
}

/// What a file is, by the keys of the first JSON object in it; `None` for anything else.
pub fn content_of(file: &Path) -> anyhow::Result<Option<Content>> {
    // A pipe could be read only once.
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
    } else if has("kind") && has("ranks") && has("results") {
        Some(Content::Bandwidth)
    } else if !keys.is_empty() && keys.keys().all(|key| model_of(key).is_some()) {
        Some(Content::Result)
    } else {
        None
    })
}

/// Of which benchmark a run's record is, by the kind in its head; `None` where that says nothing, as in a record that was
/// cut off at once. The rest may be damaged.
pub fn benchmark_of(record: &Path) -> Option<BenchmarkKind> {
    let kind = kind_of(record)?;
    RECORDS.iter().find(|format| format.kind == kind).map(|format| format.benchmark)
}

/// The kind in the head of a file.
fn kind_of(file: &Path) -> Option<String> {
    /// More than any head has.
    const HEAD: u64 = 200;
    let mut head = Vec::new();
    whole_file::open(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let kind = head.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"kind\"")?.trim_start();
    let kind = kind.strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Some(kind.split('"').next()?.to_owned())
}

/// The network of a table's key, which begins with its name in file names: `rn50`, `rn50_b128_fp32`.
pub fn model_of(key: &str) -> Option<Model> {
    let is_named = |model: &&Model| key.starts_with(model.facts().file_name);
    Model::ALL.iter().filter(is_named).max_by_key(|model| model.facts().file_name.len()).copied()
}

/// Files in a folder and so many levels of folders below it, by name; none whose name begins with a point.
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
