//! What one training run is asked to do: validated once, every default and every range in this file.
//!
//! [`crate::options`] holds what was typed; nothing below the two rooms called `cli` sees anything but this.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};

use crate::environment::DeviceKind;
use crate::units::Bytes;
use crate::words;

words!(
    /// Precision of the training step.
    Dtype {
        /// IEEE single precision in every operation.
        Fp32 = "fp32",
        /// Single precision with TensorFloat-32 convolutions and products where the device has them.
        Tf32 = "tf32",
        /// Half precision by autocast, with dynamic loss scaling.
        Fp16 = "fp16",
        /// bfloat16 by autocast.
        Bf16 = "bf16",
    }
);

words!(
    /// Where to train.
    DeviceChoice {
        /// CUDA where driver, libtorch_cuda, NCCL and a device are all there, otherwise the CPU.
        Auto = "auto",
        /// The CPU.
        Cpu = "cpu",
        /// CUDA, or an error that lists what is missing.
        Cuda = "cuda",
    }
);

words!(
    /// Memory layout of images, activations and convolution weights.
    Layout {
        /// channels_last.
        Nhwc = "nhwc",
        /// contiguous.
        Nchw = "nchw",
    }
);

words!(
    /// A choice of two.
    Switch {
        /// Done.
        On = "on",
        /// Not done.
        Off = "off",
    }
);

words!(
    /// What sums the gradients.
    CollectiveChoice {
        /// NCCL on CUDA, shared memory on the CPU.
        Auto = "auto",
        /// NCCL, on CUDA only.
        Nccl = "nccl",
        /// The ranks of a host from each other's memory, hosts among each other by MPI; on the CPU only.
        SharedMemory = "shared-memory",
        /// MPI, through host memory.
        Mpi = "mpi",
        /// No exchange: every rank trains alone. The base line of what communication costs.
        None = "none",
    }
);

words!(
    /// Element type of the gradients while they are exchanged.
    Wire {
        /// As they are.
        Fp32 = "fp32",
        /// Rounded to half precision, half the bytes.
        Fp16 = "fp16",
        /// Rounded to bfloat16, half the bytes.
        Bf16 = "bf16",
    }
);

/// How gradients are exchanged, in training and in a bandwidth run alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ExchangeConfig {
    /// What sums the gradients.
    pub collective: CollectiveChoice,
    /// Element type of the exchanged gradients.
    pub wire: Wire,
    /// Size of a gradient bucket in MB (1e6 bytes of fp32); 0 makes every parameter a bucket.
    pub bucket_mb: f64,
    /// Longest stretch that one MPI call sums, in kB (1e3 bytes); 0 is a bucket at once.
    #[serde(default = "ExchangeConfig::first_piece")]
    pub piece_kb: u32,
}

impl Default for ExchangeConfig {
    fn default() -> ExchangeConfig {
        ExchangeConfig { collective: CollectiveChoice::Auto, wire: Wire::Fp32, bucket_mb: 25.0, piece_kb: 1000 }
    }
}

impl ExchangeConfig {
    /// Of records that were written before there was a choice.
    fn first_piece() -> u32 {
        4000
    }

    /// Size of a gradient bucket.
    pub fn bucket(&self) -> Bytes {
        Bytes((self.bucket_mb * 1e6) as u64)
    }

    /// Refuses values outside their range, and a library that `device` rules out.
    pub fn validate(&self, device: DeviceChoice) -> anyhow::Result<()> {
        in_range("--bucket-mb", self.bucket_mb, 0.0, 100_000.0)?;
        in_range("--piece-kb", self.piece_kb, 0, 1_000_000)?;
        ensure!(
            !(device == DeviceChoice::Cpu && self.collective == CollectiveChoice::Nccl),
            "--collective nccl needs a GPU, --device is cpu: choose --collective shared-memory, mpi or auto"
        );
        ensure!(
            !(device == DeviceChoice::Cuda && self.collective == CollectiveChoice::SharedMemory),
            "--collective shared-memory sums host memory, --device is cuda: choose --collective nccl or auto"
        );
        Ok(())
    }
}

/// Refuses a value outside `low..=high`, NaN included; the message names option, value and range.
pub(crate) fn in_range<T: PartialOrd + fmt::Display>(option: &str, value: T, low: T, high: T) -> anyhow::Result<()> {
    ensure!(value >= low && value <= high, "{option} {value} is out of range: choose {low} to {high}");
    Ok(())
}

/// A fault put in on purpose, for tests of what ringmark does about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Fault {
    /// Rank `rank` fails at the start of iteration `iteration`.
    Fail {
        /// From 0.
        rank: u32,
        /// From 1.
        iteration: u32,
    },
    /// Rank 0's gradient of iteration `iteration` becomes infinite.
    Overflow {
        /// From 1.
        iteration: u32,
    },
    /// Rank `rank` computes longer in every iteration, before its first all-reduce.
    Slow {
        /// From 0.
        rank: u32,
        /// Of the time that its forward takes, added to it.
        percent: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Fail { rank, iteration } => write!(formatter, "fail:{iteration}:{rank}"),
            Fault::Overflow { iteration } => write!(formatter, "overflow:{iteration}"),
            Fault::Slow { rank, percent } => write!(formatter, "slow:{rank}:{percent}"),
        }
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Fault> {
        let words: Vec<&str> = text.split(':').collect();
        let fault = match words[..] {
            ["fail", iteration, rank] => {
                iteration.parse().ok().zip(rank.parse().ok()).map(|(iteration, rank)| Fault::Fail { rank, iteration })
            }
            ["overflow", iteration] => iteration.parse().ok().map(|iteration| Fault::Overflow { iteration }),
            ["slow", rank, percent] => {
                rank.parse().ok().zip(percent.parse().ok()).map(|(rank, percent)| Fault::Slow { rank, percent })
            }
            _ => None,
        };
        match fault {
            Some(fault) => Ok(fault),
            None => bail!("{text:?} is none of fail:ITERATION:RANK, overflow:ITERATION, slow:RANK:PERCENT"),
        }
    }
}

impl TryFrom<String> for Fault {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Fault> {
        text.parse()
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> String {
        fault.to_string()
    }
}

/// One training run. [`TrainConfig::default`] is DLPerf's: batch 128, 120 iterations of which 20 are warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// Images a rank and iteration.
    pub batch_size: u32,
    /// Precision of the step.
    pub dtype: Dtype,
    /// Where to train.
    pub device: DeviceChoice,
    /// Memory layout.
    pub layout: Layout,
    /// Iterations, warm-up included.
    pub iterations: u32,
    /// First iterations that the figures leave out.
    pub warmup: u32,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// Whether a bucket's all-reduce starts while backward goes on.
    pub overlap: Switch,
    /// How gradients are exchanged.
    #[serde(flatten)]
    pub exchange: ExchangeConfig,
    /// Whether bucket and piece size are chosen by a short search before the first iteration.
    #[serde(default)]
    pub autotune: bool,
    /// CPU threads of a rank; `None` shares the host's cores among its ranks.
    pub threads: Option<u32>,
    /// Seed of weights and data; rank r's data take `seed + r`.
    pub seed: i64,
    /// Learning rate of one rank; the step uses it times the number of ranks.
    pub learning_rate: f64,
    /// Nesterov momentum.
    pub momentum: f64,
    /// L2 penalty on every parameter.
    pub weight_decay: f64,
    /// Iterations of linear learning-rate warm-up; `None` is DLPerf's: one epoch of ImageNet.
    pub learning_rate_warmup: Option<u32>,
    /// First loss scale of fp16.
    pub loss_scale: f64,
    /// Whether batch normalization uses its running statistics instead of the batch's.
    pub freeze_batch_norm: bool,
    /// Batch to train on (safetensors with `images` and `labels`) instead of a synthetic one.
    pub data: Option<PathBuf>,
    /// Weights to start from (safetensors).
    pub init: Option<PathBuf>,
    /// Where rank 0 writes the last weights (safetensors).
    pub save: Option<PathBuf>,
    /// Where rank 0 writes the run record (JSON Lines).
    pub record: Option<PathBuf>,
    /// A fault to put in.
    pub inject: Option<Fault>,
}

impl Default for TrainConfig {
    fn default() -> TrainConfig {
        TrainConfig {
            batch_size: 128,
            dtype: Dtype::Fp32,
            device: DeviceChoice::Auto,
            layout: Layout::Nhwc,
            iterations: 120,
            warmup: 20,
            image_size: 224,
            overlap: Switch::On,
            exchange: ExchangeConfig::default(),
            autotune: false,
            threads: None,
            seed: 0,
            learning_rate: 0.001,
            momentum: 0.875,
            weight_decay: 3.0518e-5,
            learning_rate_warmup: None,
            loss_scale: 65536.0,
            freeze_batch_norm: false,
            data: None,
            init: None,
            save: None,
            record: None,
            inject: None,
        }
    }
}

/// Number of images in an epoch of ImageNet-1k, which DLPerf's learning-rate warm-up is counted in.
pub const IMAGENET_IMAGES: u64 = 1_281_167;

impl TrainConfig {
    /// The quick profile: minutes instead of hours, for a first look that is not a result to quote.
    pub fn quick(device: DeviceKind) -> TrainConfig {
        let (batch_size, iterations, warmup) = match device {
            DeviceKind::Cpu => (4, 12, 2),
            DeviceKind::Cuda => (32, 40, 10),
        };
        TrainConfig { batch_size, iterations, warmup, ..TrainConfig::default() }
    }

    /// Refuses values outside their range; the message names the option, the value and the range.
    pub fn validate(&self) -> anyhow::Result<()> {
        in_range("--batch-size", self.batch_size, 1, 65_536)?;
        in_range("--iters", self.iterations, 1, 10_000_000)?;
        ensure!(
            self.warmup < self.iterations,
            "--warmup {} leaves none of --iters {} to measure: choose a smaller --warmup",
            self.warmup,
            self.iterations
        );
        in_range("--image-size", self.image_size, 32, 4096)?;
        self.exchange.validate(self.device)?;
        if let Some(threads) = self.threads {
            in_range("--threads", threads, 1, 4096)?;
        }
        in_range("--lr", self.learning_rate, 0.0, 1e6)?;
        in_range("--momentum", self.momentum, 0.0, 1.0)?;
        in_range("--weight-decay", self.weight_decay, 0.0, 1e6)?;
        in_range("--loss-scale", self.loss_scale, 1.0, 16_777_216.0)?;
        if let Some(Fault::Fail { iteration, .. } | Fault::Overflow { iteration }) = self.inject {
            in_range("--inject iteration", iteration, 1, self.iterations)?;
        }
        Ok(())
    }

    /// Learning rate of update `update` (from 1) on `ranks` ranks: linear from 0 to `lr x ranks` over the warm-up.
    ///
    /// DLPerf's warm-up is one epoch, `ceil(floor(1281167 / ranks) / batch)` iterations (DLPerf, MxNet/Classification/RN50v1b).
    pub fn learning_rate_at(&self, update: u32, ranks: u32) -> f64 {
        let full = self.learning_rate * f64::from(ranks);
        let epoch = (IMAGENET_IMAGES / u64::from(ranks)).div_ceil(u64::from(self.batch_size));
        let warmup = self.learning_rate_warmup.map_or(epoch, u64::from);
        if u64::from(update) >= warmup { full } else { full * f64::from(update) / warmup as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    #[test]
    fn the_default_and_the_quick_profile_are_valid() {
        TrainConfig::default().validate().expect("defaults are in range");
        for device in [DeviceKind::Cpu, DeviceKind::Cuda] {
            TrainConfig::quick(device).validate().expect("the profile is in range");
        }
    }

    #[test]
    fn each_range_names_its_option_and_the_value() {
        type Change = fn(&mut TrainConfig);
        let cases: [(&str, &str, Change); 8] = [
            ("--batch-size", "0", |config| config.batch_size = 0),
            ("--iters", "0", |config| config.iterations = 0),
            ("--warmup", "120", |config| config.warmup = 120),
            ("--image-size", "31", |config| config.image_size = 31),
            ("--bucket-mb", "NaN", |config| config.exchange.bucket_mb = f64::NAN),
            ("--threads", "0", |config| config.threads = Some(0)),
            ("--lr", "inf", |config| config.learning_rate = f64::INFINITY),
            ("--momentum", "2", |config| config.momentum = 2.0),
        ];
        for (option, value, change) in cases {
            let mut config = TrainConfig::default();
            change(&mut config);
            let error = config.validate().expect_err(option).to_string();
            assert!(error.contains(option) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn nccl_on_the_cpu_is_refused() {
        let exchange = ExchangeConfig { collective: CollectiveChoice::Nccl, ..ExchangeConfig::default() };
        assert!(exchange.validate(DeviceChoice::Cpu).is_err());
        assert!(exchange.validate(DeviceChoice::Auto).is_ok());
    }

    #[test]
    fn learning_rate_warms_up_over_dlperf_s_epoch() {
        let config = TrainConfig::default();
        // 1 rank, batch 128: ceil(1281167 / 128) = 10010 iterations.
        assert_eq!(config.learning_rate_at(10_010, 1), 0.001);
        assert_eq!(config.learning_rate_at(1001, 1), 0.001 * 1001.0 / 10_010.0);
        // 8 ranks: ceil(floor(1281167 / 8) / 128) = ceil(160145 / 128) = 1252 iterations to 0.008.
        assert_eq!(config.learning_rate_at(1252, 8), 0.008);
        let flat = TrainConfig { learning_rate_warmup: Some(0), ..config };
        assert_eq!(flat.learning_rate_at(1, 4), 0.004);
    }

    #[test]
    fn words_and_faults_write_what_they_read() {
        for word in Dtype::WORDS {
            assert_eq!(&word.parse::<Dtype>().expect("a dtype").to_string(), word);
        }
        assert!("fp8".parse::<Dtype>().expect_err("unknown").to_string().contains("fp32, tf32, fp16, bf16"));
        for text in ["fail:3:1", "overflow:2", "slow:1:50"] {
            assert_eq!(text.parse::<Fault>().expect("a fault").to_string(), text);
        }
        assert!("fail:3".parse::<Fault>().is_err());
    }
}
