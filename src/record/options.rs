//! What may be typed about one training run, the same in `ringmark-worker train` and `ringmark sweep`.
//!
//! Every field is optional here; [`TrainOptions::apply`] lays them over a [`TrainConfig`], and
//! [`arguments`] writes a configuration back as the words a worker is started with.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::config::{CollectiveChoice, DeviceChoice, Dtype, ExchangeConfig, Fault, Layout, Switch, TrainConfig, Wire};
use crate::words::Words;

/// Parses one word of `T`, and lists them in the help.
pub fn words<T: Words>() -> impl TypedValueParser<Value = T> {
    let value = |word: &'static str| {
        let aliases = T::ALIASES.iter().filter(move |(_, of)| *of == word).map(|(alias, _)| *alias);
        PossibleValue::new(word).aliases(aliases)
    };
    let values = PossibleValuesParser::new(T::WORDS.iter().map(|word| value(word)));
    values.try_map(|word| word.parse::<T>().map_err(|error| error.to_string()))
}

/// How gradients are exchanged; what is not given keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct ExchangeOptions {
    /// What sums the gradients; auto is NCCL on CUDA and shared memory on the CPU (MPI between hosts), none leaves
    /// every rank alone [default: auto]
    #[arg(long, value_parser = words::<CollectiveChoice>())]
    pub collective: Option<CollectiveChoice>,
    /// Element type of the gradients while they are exchanged [default: fp32]
    #[arg(long, value_parser = words::<Wire>())]
    pub wire: Option<Wire>,
    /// Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket [default: 25]
    #[arg(long, value_name = "MB")]
    pub bucket_mb: Option<f64>,
    /// Longest stretch that one MPI call sums, in kB (1e3 bytes); 0 is a bucket at once [default: 1000]
    #[arg(long, value_name = "KB")]
    pub piece_kb: Option<u32>,
}

impl ExchangeOptions {
    /// Lays what was typed over `config`.
    pub fn apply(self, config: ExchangeConfig) -> ExchangeConfig {
        ExchangeConfig {
            collective: self.collective.unwrap_or(config.collective),
            wire: self.wire.unwrap_or(config.wire),
            bucket_mb: self.bucket_mb.unwrap_or(config.bucket_mb),
            piece_kb: self.piece_kb.unwrap_or(config.piece_kb),
        }
    }
}

/// Options of a training run; what is not given keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "Training")]
pub struct TrainOptions {
    /// Images a rank and iteration [default: 128]
    #[arg(long, value_name = "IMAGES")]
    pub batch_size: Option<u32>,
    /// Precision of the step; fp32 is IEEE, tf32 only when asked for [default: fp32]
    #[arg(long, value_parser = words::<Dtype>())]
    pub dtype: Option<Dtype>,
    /// Where to train; auto takes CUDA where all of it is there and says what is missing [default: auto]
    #[arg(long, value_parser = words::<DeviceChoice>())]
    pub device: Option<DeviceChoice>,
    /// Memory layout: channels_last or contiguous [default: nhwc]
    #[arg(long, value_parser = words::<Layout>())]
    pub layout: Option<Layout>,
    /// Iterations of a run, warm-up included [default: 120]
    #[arg(long, value_name = "N")]
    pub iters: Option<u32>,
    /// First iterations that the figures leave out [default: 20]
    #[arg(long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Height and width of an image [default: 224]
    #[arg(long, value_name = "PIXELS")]
    pub image_size: Option<u32>,
    /// Start a bucket's all-reduce while backward goes on [default: on]
    #[arg(long, value_parser = words::<Switch>())]
    pub overlap: Option<Switch>,
    /// Gradients.
    #[command(flatten)]
    pub exchange: ExchangeOptions,
    /// Choose bucket and piece size by a short search before the first iteration; its table goes into the record
    #[arg(long)]
    pub autotune: bool,
    /// CPU threads of a rank [default: the host's cores shared among its ranks]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Seed of the weights and, plus the rank, of the data [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub seed: Option<i64>,
    /// Learning rate of one rank, multiplied by the number of ranks [default: 0.001]
    #[arg(long, value_name = "RATE")]
    pub lr: Option<f64>,
    /// Nesterov momentum [default: 0.875]
    #[arg(long, value_name = "FACTOR")]
    pub momentum: Option<f64>,
    /// L2 penalty on every parameter [default: 3.0518e-5]
    #[arg(long, value_name = "FACTOR")]
    pub weight_decay: Option<f64>,
    /// Iterations of linear learning-rate warm-up [default: one epoch of ImageNet, as DLPerf]
    #[arg(long, value_name = "N")]
    pub lr_warmup_iters: Option<u32>,
    /// First loss scale of fp16 [default: 65536]
    #[arg(long, value_name = "SCALE")]
    pub loss_scale: Option<f64>,
    /// Let batch normalization use its running statistics instead of the batch's
    #[arg(long)]
    pub freeze_batch_norm: bool,
    /// Train on this batch instead of a synthetic one: safetensors with `images` (n, 3, size, size) and `labels` (n)
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Weights to start from: safetensors with torchvision's names
    #[arg(long, value_name = "FILE")]
    pub init: Option<PathBuf>,
    /// Where rank 0 writes the last weights: safetensors with torchvision's names
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Put in a fault, for tests: fail:ITERATION:RANK, overflow:ITERATION, or slow:RANK:PERCENT (of its forward time)
    #[arg(long, value_name = "FAULT")]
    pub inject: Option<Fault>,
}

impl TrainOptions {
    /// Lays what was typed over `config`; [`TrainConfig::validate`] is the caller's next step.
    pub fn apply(self, config: TrainConfig) -> TrainConfig {
        TrainConfig {
            batch_size: self.batch_size.unwrap_or(config.batch_size),
            dtype: self.dtype.unwrap_or(config.dtype),
            device: self.device.unwrap_or(config.device),
            layout: self.layout.unwrap_or(config.layout),
            iterations: self.iters.unwrap_or(config.iterations),
            warmup: self.warmup.unwrap_or(config.warmup),
            image_size: self.image_size.unwrap_or(config.image_size),
            overlap: self.overlap.unwrap_or(config.overlap),
            exchange: self.exchange.apply(config.exchange),
            autotune: self.autotune || config.autotune,
            threads: self.threads.or(config.threads),
            seed: self.seed.unwrap_or(config.seed),
            learning_rate: self.lr.unwrap_or(config.learning_rate),
            momentum: self.momentum.unwrap_or(config.momentum),
            weight_decay: self.weight_decay.unwrap_or(config.weight_decay),
            learning_rate_warmup: self.lr_warmup_iters.or(config.learning_rate_warmup),
            loss_scale: self.loss_scale.unwrap_or(config.loss_scale),
            freeze_batch_norm: self.freeze_batch_norm || config.freeze_batch_norm,
            data: self.data.or(config.data),
            init: self.init.or(config.init),
            save: self.save.or(config.save),
            record: config.record,
            inject: self.inject.or(config.inject),
        }
    }
}

/// Options that are followed by no value.
const FLAGS: [&str; 2] = ["autotune", "freeze-batch-norm"];

/// The words that start `ringmark-worker train` with this configuration: only what differs from the default.
pub fn arguments(config: &TrainConfig) -> Vec<String> {
    changed(settings(config), settings(&TrainConfig::default()))
}

/// The words for this exchange: only what differs from the default.
pub fn exchange_arguments(config: &ExchangeConfig) -> Vec<String> {
    changed(exchange_settings(config), exchange_settings(&ExchangeConfig::default()))
}

fn changed(settings: Vec<(&str, String)>, defaults: Vec<(&str, String)>) -> Vec<String> {
    let mut words = Vec::new();
    for ((name, value), (_, default)) in settings.into_iter().zip(defaults) {
        if value != default {
            words.push(format!("--{name}"));
            words.extend((!FLAGS.contains(&name)).then_some(value));
        }
    }
    words
}

/// Every option of `ringmark-worker train` with its value as it is typed: empty where there is none, and a flag's is
/// `yes`.
pub fn settings(config: &TrainConfig) -> Vec<(&'static str, String)> {
    let number = |value: &Option<u32>| value.map_or(String::new(), |value| value.to_string());
    let path = |value: &Option<PathBuf>| value.as_ref().map_or(String::new(), |value| value.display().to_string());
    let flag = |value: bool| if value { "yes".to_owned() } else { String::new() };
    let mut settings = vec![
        ("batch-size", config.batch_size.to_string()),
        ("dtype", config.dtype.to_string()),
        ("device", config.device.to_string()),
        ("layout", config.layout.to_string()),
        ("iters", config.iterations.to_string()),
        ("warmup", config.warmup.to_string()),
        ("image-size", config.image_size.to_string()),
        ("overlap", config.overlap.to_string()),
        ("threads", number(&config.threads)),
        ("seed", config.seed.to_string()),
        ("lr", config.learning_rate.to_string()),
        ("momentum", config.momentum.to_string()),
        ("weight-decay", config.weight_decay.to_string()),
        ("lr-warmup-iters", number(&config.learning_rate_warmup)),
        ("loss-scale", config.loss_scale.to_string()),
        ("data", path(&config.data)),
        ("init", path(&config.init)),
        ("save", path(&config.save)),
        ("record", path(&config.record)),
        ("inject", config.inject.map_or(String::new(), |fault| fault.to_string())),
    ];
    settings.extend(exchange_settings(&config.exchange));
    settings.push(("autotune", flag(config.autotune)));
    settings.push(("freeze-batch-norm", flag(config.freeze_batch_norm)));
    settings
}

fn exchange_settings(config: &ExchangeConfig) -> Vec<(&'static str, String)> {
    vec![
        ("collective", config.collective.to_string()),
        ("wire", config.wire.to_string()),
        ("bucket-mb", config.bucket_mb.to_string()),
        ("piece-kb", config.piece_kb.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: TrainOptions,
        #[arg(long)]
        record: Option<PathBuf>,
    }

    fn parse(words: &[String]) -> TrainConfig {
        let program = std::iter::once("worker".to_owned());
        let typed = Typed::try_parse_from(program.chain(words.iter().cloned())).expect("valid words");
        TrainConfig { record: typed.record, ..typed.options.apply(TrainConfig::default()) }
    }

    #[test]
    fn the_default_needs_no_words() {
        assert_eq!(arguments(&TrainConfig::default()), Vec::<String>::new());
        assert_eq!(parse(&[]), TrainConfig::default());
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let config = TrainConfig {
            batch_size: 2,
            dtype: Dtype::Bf16,
            device: DeviceChoice::Cpu,
            layout: Layout::Nchw,
            iterations: 7,
            warmup: 3,
            image_size: 64,
            overlap: Switch::Off,
            exchange: ExchangeConfig {
                collective: CollectiveChoice::Mpi,
                wire: Wire::Fp16,
                bucket_mb: 0.5,
                piece_kb: 0,
            },
            autotune: true,
            threads: Some(3),
            seed: -4,
            learning_rate: 0.25,
            momentum: 0.5,
            weight_decay: 1e-7,
            learning_rate_warmup: Some(0),
            loss_scale: 128.0,
            freeze_batch_norm: true,
            data: Some("batch.safetensors".into()),
            init: Some("a b.safetensors".into()),
            save: Some("c.safetensors".into()),
            record: Some("d.jsonl".into()),
            inject: Some(Fault::Fail { rank: 1, iteration: 2 }),
        };
        assert_eq!(parse(&arguments(&config)), config);
    }

    #[test]
    fn an_unknown_word_lists_the_known_ones() {
        let error = Typed::try_parse_from(["worker", "--dtype", "fp8"]).err().expect("refused").to_string();
        assert!(error.contains("fp32, tf32, fp16, bf16"), "{error}");
    }
}
