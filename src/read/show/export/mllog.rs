//! MLPerf log lines (mlperf_logging/mllog) of a run with epochs, with the keys of MLPerf Training's ResNet, SGD, in
//! rules 4.0. Keys without a counterpart are omitted: a benchmark run has no submitter, division or status, clears no
//! cache, and does not record its startup time. The metadata contain the line number of the record that is the source.

use std::path::Path;

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::optimizer::{AdamConfig, Optimizer};
use ringmark_core::benchmark::train::{LearningConfig, LearningRateSchedule, RunRecord, TrainConfig};
use ringmark_core::dimension::{IMAGENET_IMAGES, Model, Seconds};
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::read::load::environment;
use crate::read::show::export::time_line::{EpochTimes, TimeLine, milliseconds};

/// Images that MLPerf's ResNet uses for training and validation: those of ImageNet-1k.
const IMAGENET: [u64; 2] = [IMAGENET_IMAGES, 50_000];

/// Top-1 accuracy target of MLPerf's ResNet (MLPerf Training rules, closed division).
const RESNET_TARGET: f64 = 0.759;

/// Log lines of one run.
struct MlLog<'a> {
    /// Path of the record, relative to the folder of the result.
    file: &'a Path,
    lines: String,
}

/// Returns the complete log of a run; `record_file` is the path of its record.
pub fn lines(record_file: &Path, record: &RunRecord) -> String {
    let time_line = TimeLine::from_record(record);
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

/// Returns the options and the measurement conditions, by MLPerf's keys.
fn conditions(record: &RunRecord) -> Vec<(&'static str, Value)> {
    let config = &record.header.config;
    let ranks = record.header.ranks.len() as u32;
    let mut all = vec![
        ("submission_benchmark", benchmark(record).into()),
        ("submission_platform", platform(record).into()),
        ("seed", config.seed.into()),
        ("global_batch_size", config.joined_batch(ranks).into()),
        ("gradient_accumulation_steps", config.accumulate.into()),
    ];
    all.extend(update_rule(config, ranks));
    all.extend(config.clip_norm.map(|norm| ("opt_gradient_clip_norm", norm.into())));
    all.extend(schedule(config));
    // Only the network that MLPerf trains is known to use batch normalization, over the images of a rank.
    let has_span = config.model == Model::Resnet50V1b && !config.freeze_batch_norm && config.work_load.is_none();
    all.extend(has_span.then(|| ("model_bn_span", config.batch_size.into())));
    all.extend(trained_samples(record).map(|samples| ("train_samples", samples.into())));
    all.extend(predicted_samples(record).map(|samples| ("eval_samples", samples.into())));
    all
}

/// Returns the optimizer and its constants.
fn update_rule(config: &TrainConfig, ranks: u32) -> Vec<(&'static str, Value)> {
    let rate = config.learning_rate * f64::from(ranks);
    let last_rate = config.learning_rate_at(config.iterations, ranks);
    let AdamConfig { beta1, beta2, epsilon } = config.adam;
    match config.optimizer {
        Optimizer::Sgd | Optimizer::Nag => vec![
            ("opt_name", "sgd".into()),
            ("sgd_opt_base_learning_rate", rate.into()),
            ("sgd_opt_end_learning_rate", last_rate.into()),
            ("sgd_opt_momentum", config.momentum.into()),
            ("sgd_opt_weight_decay", config.weight_decay.into()),
        ],
        Optimizer::Adam | Optimizer::AdamW => vec![
            ("opt_name", config.optimizer.to_string().into()),
            ("opt_base_learning_rate", rate.into()),
            ("opt_end_learning_rate", last_rate.into()),
            ("opt_adam_beta_1", beta1.into()),
            ("opt_adam_beta_2", beta2.into()),
            ("opt_adam_epsilon", epsilon.into()),
            ("opt_weight_decay", config.weight_decay.into()),
        ],
    }
}

/// Returns the schedule of the learning rate.
fn schedule(config: &TrainConfig) -> Vec<(&'static str, Value)> {
    let LearningConfig { course, step_epochs, factor, epoch_iterations, .. } = &config.learning;
    let mut all = vec![("opt_learning_rate_decay_schedule", Value::from(course.to_string()))];
    if let Some(epoch) = *epoch_iterations {
        let warmup = config.learning_rate_warmup.unwrap_or(epoch);
        all.push(("opt_learning_rate_warmup_epochs", (f64::from(warmup) / f64::from(epoch)).into()));
        if *course == LearningRateSchedule::Cosine {
            let key = if config.optimizer.is_adam() {
                "opt_learning_rate_decay_steps"
            } else {
                "sgd_opt_learning_rate_decay_steps"
            };
            all.push((key, config.iterations.saturating_sub(warmup).into()));
        }
    }
    let boundaries = json!(step_epochs);
    if boundaries.as_array().is_some_and(|epochs| !epochs.is_empty()) {
        all.push(("opt_learning_rate_decay_boundary_epochs", boundaries));
        all.push(("opt_learning_rate_decay_factor", (*factor).into()));
    }
    all
}

fn trained_samples(record: &RunRecord) -> Option<u64> {
    record.end.as_ref()?.input.as_ref()?.items
}

fn predicted_samples(record: &RunRecord) -> Option<u64> {
    record.end.as_ref()?.epochs.iter().find_map(|epoch| Some(epoch.validation?.samples))
}

/// Returns true if the network, the images and their size are those of MLPerf's ResNet.
fn is_resnet(record: &RunRecord) -> bool {
    let config = &record.header.config;
    config.model == Model::Resnet50V1b
        && config.sample_size() == config.model.facts().default_size()
        && [trained_samples(record), predicted_samples(record)] == IMAGENET.map(Some)
}

/// Returns MLPerf's name of the benchmark, or the network's name if it is not an MLPerf benchmark.
fn benchmark(record: &RunRecord) -> &'static str {
    if is_resnet(record) { "resnet" } else { record.header.config.model.keyword() }
}

/// Returns a text such as `2n8g of NVIDIA H100 80GB HBM3`.
fn platform(record: &RunRecord) -> String {
    let names = environment::device_names(&record.header.ranks);
    format!("{} of {}", record.header.case, names.into_iter().collect::<Vec<_>>().join(", "))
}

/// Returns true if the training finished and reached MLPerf's target, if there is one.
fn is_success(record: &RunRecord) -> bool {
    let epochs = record.end.as_ref().map(|end| end.epochs.as_slice()).unwrap_or_default();
    let best = epochs.iter().filter_map(|epoch| epoch.validation?.top_1).fold(0.0, f64::max);
    record.failure().is_none() && (!is_resnet(record) || best >= RESNET_TARGET)
}

impl MlLog<'_> {
    fn epoch(&mut self, times: &EpochTimes, record: &RunRecord, last: usize) {
        let EpochTimes { epoch, first_iteration, training, validation } = *times;
        // The header is the first line of the record.
        let [first, end] = [first_iteration, epoch.iteration].map(|iteration| iteration as usize + 1);
        let number = || object(json!({ "epoch_num": epoch.epoch }));
        self.event("INTERVAL_START", training.start, "epoch_start", Value::Null, (first, number()));
        self.event("INTERVAL_END", training.end, "epoch_stop", Value::Null, (end, number()));
        let samples = record.header.config.joined_batch(record.header.ranks.len() as u32) as f64;
        let seconds = training.end.0 - training.start.0;
        let throughput = json!({ "throughput": samples * f64::from(epoch.iteration + 1 - first_iteration) / seconds });
        self.event("POINT_IN_TIME", training.end, "tracked_stats", throughput, (end, number()));
        if let Some(predicted) = epoch.validation {
            self.event("INTERVAL_START", validation.start, "eval_start", Value::Null, (last, number()));
            if let Some(top_1) = predicted.top_1 {
                self.event("POINT_IN_TIME", validation.end, "eval_accuracy", top_1.into(), (last, number()));
            }
            self.event("INTERVAL_END", validation.end, "eval_stop", Value::Null, (last, number()));
        }
    }

    /// Adds an event; `line` is the line number of its source in the record, from 1.
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
        // Serializing a map with text keys cannot fail.
        let text = serde_json::to_string(&event).unwrap_or_default();
        self.lines += &format!(":::MLLOG {text}\n");
    }
}

/// Event with its fields in the order of MLPerf's own logger.
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
