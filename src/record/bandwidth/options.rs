//! What may be typed about a bandwidth run, the same in `ringmark-worker bandwidth` and `ringmark bandwidth`.
//!
//! The short options are those of nccl-tests.

use clap::Args;

use crate::bandwidth::config::{BandwidthConfig, Growth, Messages, ModelChoice, OptimizerChoice, TypedSize};
use crate::config::DeviceChoice;
use crate::options::{ExchangeOptions, exchange_arguments, words};
use crate::units::{Bytes, GigabytesPerSecond};

/// Options of a bandwidth run; what is not given keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Args)]
#[command(next_help_heading = "All-reduce")]
pub struct BandwidthOptions {
    /// First message size: bytes, or with K, M, G in steps of 1024 [default: 8]
    #[arg(short, long, value_name = "SIZE")]
    pub begin: Option<TypedSize>,
    /// Last message size [default: 128M]
    #[arg(short, long, value_name = "SIZE")]
    pub end: Option<TypedSize>,
    /// Each size is the one before times this [default: 2]
    #[arg(short, long, value_name = "N", conflicts_with = "increment")]
    pub factor: Option<u64>,
    /// Each size is the one before plus this
    #[arg(short, long, value_name = "SIZE")]
    pub increment: Option<TypedSize>,
    /// Exchange the gradients of this network in its buckets, instead of growing sizes
    #[arg(long, conflicts_with_all = ["begin", "end", "factor", "increment"], value_parser = words::<ModelChoice>())]
    pub model: Option<ModelChoice>,
    /// Measured iterations of each size [default: 20]
    #[arg(short = 'n', long, value_name = "N")]
    pub iters: Option<u32>,
    /// Iterations before them that no figure holds [default: 5]
    #[arg(short, long, value_name = "N")]
    pub warmup: Option<u32>,
    /// Check every result on every rank, 1, or none, 0 [default: 1]
    #[arg(short, long, value_name = "0|1", value_parser = clap::value_parser!(u8).range(0..=1))]
    pub check: Option<u8>,
    /// What follows the all-reduce inside the measured time; sgd updates the weights of --model [default: none]
    #[arg(long, value_parser = words::<OptimizerChoice>())]
    pub optimizer: Option<OptimizerChoice>,
    /// Where to exchange; auto takes CUDA where all of it is there and says what is missing [default: auto]
    #[arg(long, value_parser = words::<DeviceChoice>())]
    pub device: Option<DeviceChoice>,
    /// CPU threads of a rank, for the optimizer [default: the host's cores shared among its ranks]
    #[arg(long, value_name = "N")]
    pub threads: Option<u32>,
    /// Fail, by exit status 1, where the average bus bandwidth is below this
    #[arg(long, value_name = "GB/S")]
    pub min_busbw: Option<f64>,
    /// Gradients.
    #[command(flatten)]
    pub exchange: ExchangeOptions,
}

impl BandwidthOptions {
    /// Lays what was typed over `config`; [`BandwidthConfig::validate`] is the caller's next step.
    pub fn apply(self, config: BandwidthConfig) -> BandwidthConfig {
        let messages = match (self.model, config.messages) {
            (Some(model), _) => Messages::Gradients(model),
            (None, Messages::Sizes { begin, end, growth }) => {
                let typed = |size: Option<TypedSize>, default: Bytes| size.map_or(default, |size| size.0);
                let begin = typed(self.begin, begin);
                Messages::Sizes {
                    begin,
                    // A begin beyond the default end, with no end beside it, means this size alone.
                    end: self.end.map_or(Bytes(end.0.max(begin.0)), |size| size.0),
                    growth: match (self.factor, self.increment) {
                        (Some(factor), _) => Growth::Factor(factor),
                        (None, Some(increment)) => Growth::Increment(increment.0),
                        (None, None) => growth,
                    },
                }
            }
            (None, gradients) => gradients,
        };
        BandwidthConfig {
            messages,
            device: self.device.unwrap_or(config.device),
            threads: self.threads.or(config.threads),
            exchange: self.exchange.apply(config.exchange),
            iterations: self.iters.unwrap_or(config.iterations),
            warmup: self.warmup.unwrap_or(config.warmup),
            check: self.check.map_or(config.check, |check| check == 1),
            optimizer: self.optimizer.unwrap_or(config.optimizer),
            json: config.json,
            min_busbw: self.min_busbw.map(GigabytesPerSecond).or(config.min_busbw),
        }
    }
}

/// The words that start `ringmark-worker bandwidth` with this configuration: only what differs from the default.
pub fn arguments(config: &BandwidthConfig) -> Vec<String> {
    let default = BandwidthConfig::default();
    let mut words = Vec::new();
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    match config.messages {
        messages if messages == default.messages => {}
        Messages::Gradients(model) => option("model", model.to_string()),
        Messages::Sizes { begin, end, growth } => {
            option("begin", begin.0.to_string());
            option("end", end.0.to_string());
            match growth {
                Growth::Factor(factor) => option("factor", factor.to_string()),
                Growth::Increment(increment) => option("increment", increment.0.to_string()),
            }
        }
    }
    if config.device != default.device {
        option("device", config.device.to_string());
    }
    if let Some(threads) = config.threads {
        option("threads", threads.to_string());
    }
    if config.iterations != default.iterations {
        option("iters", config.iterations.to_string());
    }
    if config.warmup != default.warmup {
        option("warmup", config.warmup.to_string());
    }
    if config.check != default.check {
        option("check", u8::from(config.check).to_string());
    }
    if config.optimizer != default.optimizer {
        option("optimizer", config.optimizer.to_string());
    }
    if let Some(json) = &config.json {
        option("json", json.display().to_string());
    }
    if let Some(least) = config.min_busbw {
        option("min-busbw", least.0.to_string());
    }
    words.extend(exchange_arguments(&config.exchange));
    words
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser;

    use super::*;
    use crate::config::{CollectiveChoice, ExchangeConfig, Wire};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: BandwidthOptions,
        #[arg(long)]
        json: Option<PathBuf>,
    }

    fn parse(words: &[String]) -> BandwidthConfig {
        let program = std::iter::once("worker".to_owned());
        let typed = Typed::try_parse_from(program.chain(words.iter().cloned())).expect("valid words");
        BandwidthConfig { json: typed.json, ..typed.options.apply(BandwidthConfig::default()) }
    }

    #[test]
    fn the_default_needs_no_words() {
        assert_eq!(arguments(&BandwidthConfig::default()), Vec::<String>::new());
        assert_eq!(parse(&[]), BandwidthConfig::default());
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let sizes = BandwidthConfig {
            messages: Messages::Sizes { begin: Bytes(64), end: Bytes(640), growth: Growth::Increment(Bytes(64)) },
            device: DeviceChoice::Cpu,
            threads: Some(3),
            exchange: ExchangeConfig {
                collective: CollectiveChoice::SharedMemory,
                wire: Wire::Bf16,
                bucket_mb: 1.5,
                piece_kb: 250,
            },
            iterations: 7,
            warmup: 0,
            check: false,
            optimizer: OptimizerChoice::None,
            json: Some("a b.json".into()),
            min_busbw: Some(GigabytesPerSecond(2.5)),
        };
        assert_eq!(parse(&arguments(&sizes)), sizes);
        let messages = Messages::Gradients(ModelChoice::Resnet50V1b);
        let gradients = BandwidthConfig { messages, optimizer: OptimizerChoice::Sgd, ..sizes };
        assert_eq!(parse(&arguments(&gradients)), gradients);
    }

    #[test]
    fn nccl_tests_short_options_are_understood() {
        let words = ["-b", "8", "-e", "1G", "-f", "4", "-n", "9", "-w", "1", "-c", "0"].map(str::to_owned);
        let config = parse(&words);
        let messages = Messages::Sizes { begin: Bytes(8), end: Bytes(1 << 30), growth: Growth::Factor(4) };
        assert_eq!((config.messages, config.iterations, config.warmup, config.check), (messages, 9, 1, false));
    }
}
