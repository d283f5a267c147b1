//! Format of the JSON of PyTorch's DDP benchmark (`benchmarks/distributed/ddp/benchmark.py --json`), which its
//! `diff.py` reads.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, bail};
use ringmark_core::dimension::{Case, Dtype, Seconds};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Complete file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DdpBenchmark {
    /// `torch.__version__`.
    pub pytorch_version: String,
    /// `torch.version.cuda`; `null` for a CPU build.
    pub cuda_version: Option<String>,
    /// Name of the backend, such as `nccl` or `gloo`.
    pub distributed_backend: String,
    /// Bucket size of DistributedDataParallel in MiB.
    pub bucket_size: f64,
    /// Conditions that PyTorch's benchmark does not vary and ringmark does; `diff.py` prints them with the others.
    #[serde(flatten)]
    pub ours: Option<RingmarkConditions>,
    /// Results, one per model.
    pub benchmark_results: Vec<ModelResult>,
}

/// All groups of one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelResult {
    /// Name in torchvision.
    pub model: String,
    /// Images per rank and iteration.
    pub batch_size: u32,
    /// Extension of ringmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ringmark: Option<RingmarkResult>,
    /// Groups by number of ranks. The first is a single rank without DistributedDataParallel, which `diff.py` skips by
    /// its position.
    pub result: Vec<GroupResult>,
}

/// One group of ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// Rank numbers, from 0.
    pub ranks: Vec<u32>,
    /// Extension of ringmark: nodes and ranks per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub case: Option<Case>,
    /// Times of all measured iterations of all ranks in seconds, in one list.
    pub measurements: Vec<f64>,
}

/// Top-level fields of files written by ringmark; multiple values are separated by ` / `.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingmarkConditions {
    /// Precision: `fp32` (IEEE), `tf32` (the default of PyTorch's benchmark on GPUs that support it), `bf16` or `fp16`.
    pub precision: String,
    /// Height and width in pixels; always 224 in PyTorch's benchmark.
    pub image_size: String,
    /// Names of the devices.
    pub device: String,
    /// Profile: `full`, or `quick`, which is not a measurement.
    pub profile: String,
}

/// Fields that do not exist in PyTorch's schema; `diff.py` ignores them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingmarkResult {
    /// Name of the group of equal conditions, as in the other outputs.
    pub label: String,
    /// Precision of the step.
    pub dtype: Dtype,
    /// Options of the runs by their keys in a record; empty in older files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Value>,
    /// Groups of several ranks without communication.
    pub without_communication: Vec<GroupResult>,
    /// Reasons why times are unreliable; empty in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reliability_warnings: Vec<String>,
}

/// A parsed file.
#[derive(Debug)]
pub struct DdpFile {
    /// Its results.
    pub benchmark: DdpBenchmark,
    /// All fields by name; `diff.py` prints all except the results side by side.
    pub fields: BTreeMap<String, Value>,
}

impl DdpFile {
    /// Reads a file; an error contains the field, and the line if the JSON is malformed.
    pub fn read(mut input: impl Read) -> anyhow::Result<DdpFile> {
        let mut text = Vec::new();
        input.read_to_end(&mut text).context("cannot be read")?;
        let benchmark: DdpBenchmark = serde_json::from_slice(&text).context("not a PyTorch DDP benchmark file")?;
        for model in &benchmark.benchmark_results {
            let silent = model.ringmark.iter().flat_map(|ours| &ours.without_communication);
            for group in model.result.iter().chain(silent) {
                let is_time = |time: &f64| *time > 0.0 && Seconds(*time).is_duration();
                if let Some(wrong) = group.measurements.iter().find(|time| !is_time(time)) {
                    bail!("{} with {} ranks has an invalid iteration time: {wrong} s", model.model, group.ranks.len());
                }
            }
        }
        Ok(DdpFile { fields: serde_json::from_slice(&text)?, benchmark })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"pytorch_version": "1.4.0a0+05140f0", "cuda_version": "10.0", "distributed_backend": "nccl",
        "bucket_size": 25, "benchmark_results": [{"model": "resnet50", "batch_size": 32, "result": [
        {"ranks": [0], "measurements": [0.097, 0.098]}, {"ranks": [0, 1], "measurements": [0.1, 0.101]}]}]}"#;

    #[test]
    fn pytorch_file_is_read() {
        let file = DdpFile::read(FILE.as_bytes()).expect("sound");
        assert_eq!(file.benchmark.benchmark_results[0].result[1].measurements, [0.1, 0.101]);
    }

    #[test]
    fn other_content_is_rejected() {
        let error = |text: &str| format!("{:#}", DdpFile::read(text.as_bytes()).expect_err("refused"));
        assert!(error("{}").contains("pytorch_version"));
        assert!(
            error(&FILE.replace("0.101", "-0.101"))
                .contains("resnet50 with 2 ranks has an invalid iteration time: -0.101 s")
        );
        for no_time in ["NaN", "1e999"] {
            assert!(error(&FILE.replace("0.101", no_time)).contains("line 3"));
        }
        let silent = r#""ringmark": {"label": "", "dtype": "fp32", "without_communication": [
            {"ranks": [0, 1, 2], "measurements": [0.1, 0.0]}]}, "result""#;
        let error = error(&FILE.replace("\"result\"", silent));
        assert!(error.contains("resnet50 with 3 ranks has an invalid iteration time: 0 s"), "{error}");
    }
}
