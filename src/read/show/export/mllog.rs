//! MLPerf's log lines (mlperf_logging/mllog) of a run that went by epochs, with the keys of MLPerf Training's ResNet, SGD, as rules
//! 4.0 have them. What is not so is not said: a run of a benchmark has no submitter, division and status, clears no cache, and its
//! record does not know how long it took to start. The metadata name the line of the record that says it.

use std::path::Path;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::config::IMAGENET_IMAGES;
use ringmark_core::benchmark::train::{LearningConfig, LearningRateCourse, RunRecord, TrainConfig};
use ringmark_core::dimension::{Model, Seconds};
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::read::load::record;
use crate::read::show::export::time_line::{EpochTimes, TimeLine, milliseconds};

/// Images that MLPerf's ResNet trains with and predicts: ImageNet-1k's.
const IMAGENET: [u64; 2] = [IMAGENET_IMAGES, 50_000];

/// Top-1 that MLPerf's ResNet has to reach (MLPerf Training rules, closed division).
const RESNET_TARGET: f64 = 0.759;

/// Lines of one run.
struct MlLog<'a> {
    /// Path of the record below the folder of the result.
    file: &'a Path,
    lines: String,
}

/// The whole log of a run; `record_file` is the path of its record.
pub fn lines(record_file: &Path, record: &RunRecord) -> String {
    let time_line = TimeLine::of(record);
    let mut log = MlLog { file: record_file, lines: String::new() };
    let start = time_line.run.start;
    let last = record.iterations.len() + 2;
    for (key, value) in conditions(record) {
        log.event("POINT_IN_TIME", start, key, value, (1, Map::new()));
    }
    log.event("INTERVAL_START", start, "run_start", Value::Null, (1, Map::new()));
    for times in &time_line.epochs {
        log.epoch(times, record, last);
    }
    let status = json!({ "status": if is_success(record) { "success" } else { "aborted" } });
    log.event("INTERVAL_END", time_line.run.end, "run_stop", Value::Null, (last, object(status)));
    log.lines
}

/// What was asked and what it was measured with, by MLPerf's keys.
fn conditions(record: &RunRecord) -> Vec<(&'static str, Value)> {
    let config = &record.header.config;
    let ranks = record.header.ranks.len() as u32;
    let mut all = vec![
        ("submission_benchmark", benchmark(record).into()),
        ("submission_platform", platform(record).into()),
        ("seed", config.seed.into()),
        ("global_batch_size", config.joined_batch(ranks).into()),
        ("gradient_accumulation_steps", 1.into()),
        ("opt_name", "sgd".into()),
        ("sgd_opt_base_learning_rate", (config.learning_rate * f64::from(ranks)).into()),
        ("sgd_opt_end_learning_rate", config.learning_rate_at(config.iterations, ranks).into()),
        ("sgd_opt_momentum", config.momentum.into()),
        ("sgd_opt_weight_decay", config.weight_decay.into()),
    ];
    all.extend(course(config));
    // Of the network that MLPerf trains it is known that it has batch normalization, over the images of a rank.
    let has_span = config.model == Model::Resnet50V1b && !config.freeze_batch_norm && config.work_load.is_none();
    all.extend(has_span.then(|| ("model_bn_span", config.batch_size.into())));
    all.extend(trained_images(record).map(|images| ("train_samples", images.into())));
    all.extend(predicted_images(record).map(|images| ("eval_samples", images.into())));
    all
}

/// How the learning rate goes.
fn course(config: &TrainConfig) -> Vec<(&'static str, Value)> {
    let LearningConfig { course, step_epochs, factor, epoch_iterations, .. } = &config.learning;
    let mut all = vec![("opt_learning_rate_decay_schedule", Value::from(course.to_string()))];
    if let Some(epoch) = *epoch_iterations {
        let warmup = config.learning_rate_warmup.unwrap_or(epoch);
        all.push(("opt_learning_rate_warmup_epochs", (f64::from(warmup) / f64::from(epoch)).into()));
        if *course == LearningRateCourse::Cosine {
            all.push(("sgd_opt_learning_rate_decay_steps", config.iterations.saturating_sub(warmup).into()));
        }
    }
    let boundaries = json!(step_epochs);
    if boundaries.as_array().is_some_and(|epochs| !epochs.is_empty()) {
        all.push(("opt_learning_rate_decay_boundary_epochs", boundaries));
        all.push(("opt_learning_rate_decay_factor", (*factor).into()));
    }
    all
}

fn trained_images(record: &RunRecord) -> Option<u64> {
    record.end.as_ref()?.input.as_ref()?.items
}

fn predicted_images(record: &RunRecord) -> Option<u64> {
    record.end.as_ref()?.epochs.iter().find_map(|epoch| Some(epoch.validation?.images))
}

/// Whether network, images and their size are those of MLPerf's ResNet.
fn is_resnet(record: &RunRecord) -> bool {
    let config = &record.header.config;
    config.model == Model::Resnet50V1b
        && config.image_size() == config.model.image_size(None)
        && [trained_images(record), predicted_images(record)] == IMAGENET.map(Some)
}

/// MLPerf's name of the benchmark where it is MLPerf's; otherwise the network's, which MLPerf has not.
fn benchmark(record: &RunRecord) -> &'static str {
    if is_resnet(record) { "resnet" } else { record.header.config.model.keyword() }
}

/// `2n8g of NVIDIA H100 80GB HBM3`.
fn platform(record: &RunRecord) -> String {
    let names = record::device_names(&record.header.ranks);
    format!("{} of {}", record.header.case, names.into_iter().collect::<Vec<_>>().join(", "))
}

/// Trained to its end, and where MLPerf has a target, as far as that.
fn is_success(record: &RunRecord) -> bool {
    let epochs = record.end.as_ref().map(|end| end.epochs.as_slice()).unwrap_or_default();
    let best = epochs.iter().filter_map(|epoch| Some(epoch.validation?.top_1)).fold(0.0, f64::max);
    record.failure().is_none() && (!is_resnet(record) || best >= RESNET_TARGET)
}

impl MlLog<'_> {
    fn epoch(&mut self, times: &EpochTimes, record: &RunRecord, last: usize) {
        let EpochTimes { epoch, first_iteration, training, validation } = *times;
        // The record's first line is its head.
        let [first, end] = [first_iteration, epoch.iteration].map(|iteration| iteration as usize + 1);
        let number = || object(json!({ "epoch_num": epoch.epoch }));
        self.event("INTERVAL_START", training.start, "epoch_start", Value::Null, (first, number()));
        self.event("INTERVAL_END", training.end, "epoch_stop", Value::Null, (end, number()));
        let images = record.header.config.joined_batch(record.header.ranks.len() as u32) as f64;
        let seconds = training.end.0 - training.start.0;
        let throughput = json!({ "throughput": images * f64::from(epoch.iteration + 1 - first_iteration) / seconds });
        self.event("POINT_IN_TIME", training.end, "tracked_stats", throughput, (end, number()));
        if let Some(predicted) = epoch.validation {
            self.event("INTERVAL_START", validation.start, "eval_start", Value::Null, (last, number()));
            self.event("POINT_IN_TIME", validation.end, "eval_accuracy", predicted.top_1.into(), (last, number()));
            self.event("INTERVAL_END", validation.end, "eval_stop", Value::Null, (last, number()));
        }
    }

    /// `line`, from 1, is that of the record that says so.
    fn event(
        &mut self,
        event_type: &str,
        time: Seconds,
        key: &str,
        value: Value,
        (line, mut metadata): (usize, Map<String, Value>),
    ) {
        metadata.insert("file".to_owned(), self.file.to_string_lossy().into());
        metadata.insert("lineno".to_owned(), line.into());
        let event = Event { namespace: "", time_ms: milliseconds(time), event_type, key, value, metadata };
        // A map with text for keys is always JSON.
        let text = serde_json::to_string(&event).unwrap_or_default();
        self.lines += &format!(":::MLLOG {text}\n");
    }
}

/// In the order in which MLPerf's own logger writes them.
#[derive(Serialize)]
struct Event<'a> {
    namespace: &'a str,
    time_ms: i64,
    event_type: &'a str,
    key: &'a str,
    value: Value,
    metadata: Map<String, Value>,
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
