//! Options of a training run, each with its default.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::compression::GradientCompression;
use crate::benchmark::data_input::{DataFiles, DataInputConfig};
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig, Switch};
use crate::benchmark::optimizer::{AdamConfig, DecayedWeights, Optimizer};
use crate::benchmark::strategy::StrategyConfig;
use crate::benchmark::train::learning::LearningConfig;
use crate::benchmark::train::program::ProgramConfig;
use crate::benchmark::train::rank_loss::{LossKind, RandomLosses};
use crate::benchmark::train::work_load::WorkLoad;
use crate::benchmark::{AUTO_BATCH_SIZE, CPU_SEQUENCE_LENGTH, SweepProfile, is_default, is_one, one, shared_options};
use crate::dimension::{
    BatchShape, BatchSize, DeviceChoice, DeviceKind, Dtype, GraphChoice, IMAGENET_IMAGES, KernelsChoice, LayoutChoice,
    Model, SampleSize, WorkUnit,
};
use crate::host::BindChoice;
use crate::number_text::count;
use crate::options::keyword_enum::KeywordEnum;
use crate::options::option_table::OptionSpec;
use crate::trace::TraceConfig;
use crate::{config_options, keyword_enum, text_value};

keyword_enum!(
    /// Activations that backward computes again instead of storing them.
    #[derive(Default)]
    Recompute {
        /// Stores all activations.
        #[default]
        None = "none",
        /// Stores the inputs of each transformer block and computes its activations again.
        Block = "block",
    }
);

/// An injected fault, used to test how ringmark reacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Fault {
    /// Rank `rank` fails at the start of iteration `iteration`.
    Fail {
        /// Rank, counted from 0.
        rank: u32,
        /// Iteration, counted from 1.
        iteration: u32,
    },
    /// Rank 0's gradient of iteration `iteration` becomes infinite.
    Overflow {
        /// Iteration, counted from 1.
        iteration: u32,
    },
    /// One bit of rank `rank`'s gradient of iteration `iteration` is flipped: in the first element of the largest
    /// parameter.
    Flip {
        /// Rank, counted from 0.
        rank: u32,
        /// Iteration, counted from 1.
        iteration: u32,
        /// Bit, counted from the lowest.
        bit: u32,
    },
    /// Rank `rank` is slowed down in every iteration, before its first all-reduce.
    Slow {
        /// Rank, counted from 0.
        rank: u32,
        /// Added time, in percent of the rank's forward time.
        percent: u32,
    },
    /// Rank `rank` is lost at the start of iteration `iteration` of a run that was not started again yet.
    Lose {
        /// Kind of the loss.
        kind: LossKind,
        /// Iteration, counted from 1.
        iteration: u32,
        /// Rank, counted from 0.
        rank: u32,
    },
    /// Ranks are lost at random times.
    Random(RandomLosses),
}

impl Fault {
    /// Rejects a rank that no job of up to `ranks` ranks has.
    pub fn check(self, ranks: u32) -> anyhow::Result<()> {
        match self {
            Fault::Fail { rank, .. }
            | Fault::Slow { rank, .. }
            | Fault::Flip { rank, .. }
            | Fault::Lose { rank, .. }
                if rank >= ranks =>
            {
                bail!("--inject {self}: there is no rank {rank}: the largest case has {}, from 0", count(ranks, "rank"))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Fail { rank, iteration } => write!(formatter, "fail:{iteration}:{rank}"),
            Fault::Overflow { iteration } => write!(formatter, "overflow:{iteration}"),
            Fault::Flip { rank, iteration, bit } => write!(formatter, "flip:{iteration}:{rank}:{bit}"),
            Fault::Slow { rank, percent } => write!(formatter, "slow:{rank}:{percent}"),
            Fault::Lose { kind, iteration, rank } => write!(formatter, "{kind}:{iteration}:{rank}"),
            Fault::Random(losses) => losses.fmt(formatter),
        }
    }
}

impl FromStr for Fault {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Fault> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let numbers: Option<Vec<u32>> = rest.split(':').map(|number| number.parse().ok()).collect();
        match (kind, numbers.as_deref()) {
            ("fail", Some(&[iteration, rank])) => Ok(Fault::Fail { rank, iteration }),
            ("overflow", Some(&[iteration])) => Ok(Fault::Overflow { iteration }),
            ("flip", Some(&[iteration, rank, bit])) => Ok(Fault::Flip { rank, iteration, bit }),
            ("slow", Some(&[rank, percent])) => Ok(Fault::Slow { rank, percent }),
            ("random", _) => RandomLosses::parse(rest).map(Fault::Random).with_context(|| text.to_owned()),
            (kind, Some(&[iteration, rank])) if LossKind::KEYWORDS.contains(&kind) => {
                Ok(Fault::Lose { kind: kind.parse()?, iteration, rank })
            }
            _ => bail!(
                "{text:?} is not one of fail:ITERATION:RANK, overflow:ITERATION, flip:ITERATION:RANK:BIT, \
                 slow:RANK:PERCENT, kill:ITERATION:RANK, stop:ITERATION:RANK, link:ITERATION:RANK, \
                 random:MTBF:SEED:KINDS"
            ),
        }
    }
}

text_value!(Fault);

config_options! {
    /// One training run. [`TrainConfig::default`] is DLPerf's: batch 128, 120 iterations of which 20 are warm-up.
    TrainConfig {
        /// Network.
        #[serde(default)]
        model: Model = Model::default() => option("model", "NAME",
            "Network, such as gpt2-124m or llama-1b"),
        /// Images or sequences per rank and iteration; the mean over the ranks if `work_load` divides them unevenly.
        batch_size: u32 = 128 => option("batch-size", "N", "Images, or sequences of tokens, per GPU (rank) and iteration")
            .range(1u32..=65_536).keyword_of_launcher(AUTO_BATCH_SIZE, "the largest that fits, found by trials")
            .default_is("128; 4 sequences").set_by_profile("128, on CPUs 8; 4 sequences")
            .default_by(|config| config.model.facts().default_sequences().filter(|_| config.global_batch.is_none())),
        /// Images or sequences of all ranks in an iteration. A record contains the part of a rank as `batch_size`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        global_batch: Option<u32> = None => option("global-batch", "N",
            "Images or sequences of all ranks and iteration, divided equally: the same in every case (strong scaling), \
             with the learning rate of a single rank").range(1u32..=16_777_216).aliases(&["global-batch-size"]).default_is("--batch-size x ranks")
            .conflicts_with(&["batch-size"]),
        /// Number of parts in which a rank computes its batch before the exchange. Their gradients are added.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        accumulate: u32 = 1 => option("accumulate", "N",
            "Compute each rank's batch in N parts, add their gradients and exchange the sum once; only the \
             activations of one part are in memory").range(1u32..=65_536).derived_from(&["micro-batch"]),
        /// Largest number of images or sequences of a part, from which `accumulate` is derived. A record contains both.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        micro_batch: Option<u32> = None => option("micro-batch", "N",
            "Images or sequences per micro-batch; sets --accumulate, also with --global-batch").range(1u32..=65_536).aliases(&["micro-batch-size"])
            .default_is("the batch of a rank / --accumulate").conflicts_with(&["accumulate", "work-load"]),
        /// Division of the images of all ranks; `None` gives every rank the same number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work_load: Option<WorkLoad> = None => option("work-load", "WEIGHTS",
            "Divide the images or sequences of all ranks (batch size x ranks) by these weights: one per rank (3,1) or one per rank \
             of each host (a=3,b=1); auto measures the speed of each rank first")
            .default_is("the same for every rank"),
        /// Precision of the training step.
        dtype: Dtype = Dtype::Fp32 => shared(shared_options::dtype),
        /// Device to train on.
        device: DeviceChoice = DeviceChoice::Auto => shared(shared_options::device),
        /// Memory layout. A record contains the resolved value.
        layout: LayoutChoice = LayoutChoice::Auto => shared(shared_options::layout),
        /// Kernels of the layers on a GPU. A record contains the kernels that ran.
        #[serde(default, skip_serializing_if = "is_default")]
        kernels: KernelsChoice = KernelsChoice::Auto => option("kernels", "NAME",
            "GPU kernels for training in nhwc: fused (normalization, pooling and 1x1 convolutions), norm (without the \
             convolutions) or libtorch; auto uses fused if the kernels compile").resolved_from("auto"),
        /// Use of CUDA graphs for forward and backward. A record contains the outcome; absent means off.
        #[serde(default, skip_serializing_if = "is_default")]
        graphs: GraphChoice = GraphChoice::Off => option("graphs", "WHEN",
            "Capture forward and backward as CUDA graphs during warm-up and replay them (GPUs only): faster for small \
             batches, but the exchange is not timed separately; auto falls back to separate launches").free_on_resume()
            .resolved_from("auto"),
        /// Iterations, warm-up included.
        iterations: u32 = 120 => option("iters", "N",
            "Iterations per run, including warm-up, like DLPerf's 120; in bandwidth, --iters excludes warm-up")
            .range(1u32..=10_000_000).set_by_profile("120, on CPUs 25")
            .free_on_resume_if(|config| !config.learning.ends_with_run()).derived_from(&["epochs", "program"]),
        /// Number of first iterations that the figures exclude.
        warmup: u32 = 20 => option("warmup", "N", "Warm-up iterations, not measured").set_by_profile("20, on CPUs 5")
            .free_on_resume().derived_from(&["program-finds-warmup"]),
        /// Height and width of an image in pixels; `None` is the network's default. A record contains the resolved
        /// value.
        image_size: Option<u32> = None => shared(shared_options::image_size),
        /// Tokens of a sequence; `None` is the network's default, and required for networks of images. A record contains
        /// the resolved value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sequence_length: Option<u32> = None => shared(shared_options::sequence_length),
        /// Activations of a language model that backward computes again.
        #[serde(default, skip_serializing_if = "is_default")]
        recompute: Recompute = Recompute::None => option("recompute", "WHAT",
            "Activations of a language model that backward computes again to save memory: none, or those of each block"),
        /// Overlap of a bucket's all-reduce with the rest of backward.
        overlap: Switch = Switch::On => option("overlap", "ON|OFF",
            "Start a bucket's all-reduce during backward"),
        /// Options of the gradient exchange.
        #[serde(flatten)]
        exchange: ExchangeConfig = ExchangeConfig::default() => group(ExchangeConfig::options()),
        /// Strategy that sums gradients and updates weights.
        #[serde(flatten)]
        strategy: StrategyConfig = StrategyConfig::default() => group(StrategyConfig::options()),
        /// Compression of the exchanged gradients.
        #[serde(default, skip_serializing_if = "GradientCompression::is_none")]
        gradient_compression: GradientCompression = GradientCompression::None => each([OptionSpec::new(
            "gradient-compression", "CODE",
            "Gradient compression: none, fp16 or bf16 (as --wire), 2bit or 2bit:THRESHOLD (as in MXNet), or \
             topk:RATIO of each bucket's values (each array's with servers); 2bit and topk add the compression error \
             to the next step",
            |config: &Self| config.gradient_compression.display_text(),
            |config: &mut Self, text| config.gradient_compression.set(&mut config.exchange, text),
        )]).default_is("none").aliases(&["gc-type"]).set_in_baseline(),
        /// True if bucket and chunk size are chosen by a short search before the first iteration.
        #[serde(default)]
        autotune: bool = false => option("autotune", "",
            "Search for the best bucket and chunk size before the first iteration, and record all trials"),
        /// File for the trials of that search, in the columns of Horovod's log; written by rank 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        autotune_log: Option<PathBuf> = None => option("autotune-log", "FILE",
            "Write the trials of a search as CSV in the columns of Horovod's autotune log, with the best repeated at \
             the end: those of --autotune on rank 0, those of --autotune-over in a sweep on this machine")
            .aliases(&["autotune-log-file"]).free_on_resume(),
        /// CPU threads of a rank; `None` divides the host's cores among its ranks.
        threads: Option<u32> = None => shared(shared_options::threads).free_on_resume(),
        /// Number of ranks that share a host's cores if `threads` is `None`; `None` is the number of ranks on the host.
        /// A sweep sets this to the ranks of its largest case, so that a device is the same in all cases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cores_divided_by: Option<u32> = None => shared(shared_options::cores_divided_by).free_on_resume(),
        /// Binding of ranks to processors. A record contains the resolved value; absent means none.
        #[serde(default, skip_serializing_if = "is_default")]
        bind: BindChoice = BindChoice::Auto => shared(shared_options::bind),
        /// Seed of weights and data; the data of rank r use `seed + r`.
        seed: i64 = 0 => shared(shared_options::seed),
        /// Learning rate of one rank; the step multiplies it by the number of ranks.
        learning_rate: f64 = 0.001 => option("lr", "RATE",
            "Learning rate per rank, multiplied by the number of ranks unless --global-batch is given").range(0.0..=1e6),
        /// Weight update rule.
        #[serde(default, skip_serializing_if = "is_default")]
        optimizer: Optimizer = Optimizer::default() => option("optimizer", "NAME",
            "Weight update rule, named as in MXNet: nag (Nesterov momentum), sgd (classical momentum), adam, or adamw \
             (decoupled weight decay)"),
        /// Momentum of nag and sgd.
        momentum: f64 = 0.875 => option("momentum", "FACTOR", "Momentum of nag and sgd").range(0.0..=1.0)
            .aliases(&["mom"]),
        /// Constants of adam and adamw.
        #[serde(default, skip_serializing_if = "is_default")]
        adam: AdamConfig = AdamConfig::default() => group(AdamConfig::options()),
        /// L2 penalty on every parameter; with adamw, decay of the weights themselves.
        weight_decay: f64 = 3.0518e-5 => option("weight-decay", "FACTOR",
            "L2 penalty on every parameter; with adamw, decay of the weights themselves")
            .range(0.0..=1e6).aliases(&["wd"]),
        /// Parameters to which `weight_decay` applies.
        #[serde(default, skip_serializing_if = "is_default")]
        decayed_weights: DecayedWeights = DecayedWeights::All => option("weight-decay-on", "WHICH",
            "Parameters to which --weight-decay applies: all, or matrices (no biases and no scales of normalization, as \
             in nanoGPT and Megatron-LM)"),
        /// Maximum norm of the mean gradient; `None` does not limit it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clip_norm: Option<f64> = None => option("clip-norm", "NORM",
            "Scale the gradients of all parameters so that their joint L2 norm is at most NORM, as PyTorch's \
             clip_grad_norm_ does")
            .range(1e-6..=1e6).default_is("no limit").aliases(&["grad-clip", "clip-grad", "max-grad-norm"]),
        /// Iterations of linear learning-rate warm-up; `None` is one epoch of the data that are read, otherwise of
        /// ImageNet, as in DLPerf, and 0 for language models, as in Megatron-LM.
        learning_rate_warmup: Option<u32> = None => option("lr-warmup-iters", "N",
            "Iterations of linear learning-rate warm-up")
            .default_is("one epoch of --data, or of ImageNet as in DLPerf; language models: 0"),
        /// Epochs, validation and the learning-rate schedule.
        #[serde(default, skip_serializing_if = "is_default")]
        learning: LearningConfig = LearningConfig::default() => group(LearningConfig::options()).order(1),
        /// Initial loss scale of fp16.
        loss_scale: f64 = 65536.0 => option("loss-scale", "SCALE", "Initial loss scale of fp16")
            .range(1.0..=16_777_216.0),
        /// True if batch normalization uses its running statistics instead of the batch's.
        freeze_batch_norm: bool = false => option("freeze-batch-norm", "",
            "Use running statistics in batch normalization instead of the batch's"),
        /// Dropout probability; `None` is the network's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dropout: Option<f64> = None => option("dropout", "P",
            "Dropout probability; use 0 to compare losses")
            .range(0.0..=0.99).default_is("that of the network: 0.5 for AlexNet, VGG and Inception-v3, 0 for the \
                                           others"),
        /// Images or tokens to train on, or one batch (safetensors with `images` and `labels`), instead of a synthetic one.
        data: DataFiles = DataFiles::default() => option("data", "FILES",
            "Images or tokens to train on: comma-separated .rec files, a folder of them or of classes, MNIST's arrays, or \
             CIFAR's files; .safetensors with `images` (n, channels, size, size) and `labels` (n) is one batch, used \
             in every iteration. For language models: token files (.bin) of nanoGPT or Megatron-LM")
            .default_is("synthetic").free_on_resume(),
        /// Options for reading images.
        #[serde(default, skip_serializing_if = "is_default")]
        input: DataInputConfig = DataInputConfig::default() => group(DataInputConfig::options()).order(1),
        /// Weights to start from (safetensors).
        init: Option<PathBuf> = None => option("init", "FILE",
            "Initial weights: safetensors with the names of the network's source, or the index (.json) of several files")
            .free_on_resume(),
        /// File for the final weights (safetensors), written by rank 0.
        save: Option<PathBuf> = None => option("save", "FILE",
            "File for the final weights, written by rank 0: safetensors with the names of the network's source")
            .free_on_resume(),
        /// File for the run record (JSON Lines), written by rank 0.
        record: Option<PathBuf> = None => option("record", "FILE", "File for the run record (JSON Lines), written by rank 0")
            .for_worker().free_on_resume(),
        /// Trace options.
        #[serde(default, skip_serializing_if = "is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options()).order(1).free_on_resume(),
        /// True if all ranks have the same batch, and their gradients and weights are compared in each iteration.
        #[serde(default, skip_serializing_if = "is_default")]
        fingerprint: bool = false => option("fingerprint", "",
            "Give every rank the same batch, and compare the bits of their gradients and weights in each iteration: \
             finds hardware that computes wrong values; needs --overlap off"),
        /// Program that trains instead of ringmark's own step.
        #[serde(default, skip_serializing_if = "is_default")]
        program: ProgramConfig = ProgramConfig::default() => group(ProgramConfig::options()),
        /// A fault to inject.
        inject: Option<Fault> = None => option("inject", "FAULT",
            "Inject a fault, for tests: fail:ITERATION:RANK, overflow:ITERATION, flip:ITERATION:RANK:BIT (of one \
             gradient), slow:RANK:PERCENT (of its forward time), kill:ITERATION:RANK, stop:.. and link:.. (once in a run \
             with --restarts), or random:MTBF:SEED:KINDS (losses at random times, such as random:600:1:kill+stop)")
            .free_on_resume(),
    }
}

/// Minimum warm-up of a run with CUDA graphs: they are captured before its last iteration.
pub const GRAPH_WARMUP: u32 = 4;

impl TrainConfig {
    /// Returns the defaults of a sweep with this profile.
    pub fn for_profile(profile: SweepProfile, device: DeviceKind) -> TrainConfig {
        let dlperf = TrainConfig::default();
        let (batch_size, iterations, warmup) = match (profile, device) {
            (SweepProfile::Dlperf, _) => return dlperf,
            (SweepProfile::Cpu, _) => (8, 25, 5),
            (SweepProfile::Quick, DeviceKind::Cpu) => (4, 12, 2),
            (SweepProfile::Quick, DeviceKind::Cuda) => (32, 40, 10),
        };
        let sequence_length =
            (device == DeviceKind::Cpu || profile == SweepProfile::Cpu).then_some(CPU_SEQUENCE_LENGTH);
        TrainConfig { batch_size, iterations, warmup, sequence_length, ..dlperf }
    }

    /// Resolves automatic choices for `device`.
    pub fn on(&self, device: DeviceKind) -> TrainConfig {
        let layout = self.layout.resolve(self.dtype, device).into();
        let exchange = self.exchange.on(device, self.strategy.strategy);
        let graphs = self.graphs.on(device);
        let (image_size, sequence_length) =
            (self.model.image_size(self.image_size), self.model.sequence_length(self.sequence_length));
        let kernels = match (device, image_size) {
            (DeviceKind::Cpu, _) => KernelsChoice::Auto,
            (DeviceKind::Cuda, Some(_)) => self.kernels,
            // There are none for decoders.
            (DeviceKind::Cuda, None) => KernelsChoice::Libtorch,
        };
        TrainConfig { layout, kernels, graphs, image_size, sequence_length, exchange, ..self.clone() }
    }

    /// Returns the configuration on `ranks` ranks, each with an equal part of a global batch, and the number of parts in
    /// which a rank computes its batch.
    ///
    /// # Errors
    ///
    /// Fails if the global batch has no equal parts.
    pub fn on_ranks(&self, ranks: u32) -> anyhow::Result<TrainConfig> {
        let batch_size = match self.global_batch {
            None => self.batch_size,
            Some(samples) => {
                ensure!(
                    samples.is_multiple_of(ranks),
                    "--global-batch {samples} cannot be divided equally among {ranks} ranks: choose a multiple of \
                     {ranks}, such as {}",
                    samples.next_multiple_of(ranks)
                );
                samples / ranks
            }
        };
        let accumulate = self.micro_batch.map_or(self.accumulate, |samples| batch_size.div_ceil(samples));
        Ok(TrainConfig { batch_size, accumulate, ..self.clone() })
    }

    /// Returns a copy without the part of a rank in a global batch, which depends on the case, and without a derived
    /// number of parts.
    pub fn without_part(&self) -> TrainConfig {
        let default = TrainConfig::default();
        let batch_size = if self.global_batch.is_some() { default.batch_size } else { self.batch_size };
        let accumulate = if self.micro_batch.is_some() { default.accumulate } else { self.accumulate };
        TrainConfig { batch_size, accumulate, ..self.clone() }
    }

    /// Returns the samples of an iteration.
    pub fn batch(&self) -> BatchShape {
        let size = self.global_batch.map_or(BatchSize::PerRank(self.batch_size), BatchSize::Global);
        BatchShape { size, sequence_length: self.model.sequence_length(self.sequence_length) }
    }

    /// Returns the configuration with the samples of `batch`.
    pub fn with_batch(&self, batch: BatchShape) -> TrainConfig {
        let (batch_size, global_batch) = match batch.size {
            BatchSize::PerRank(samples) => (samples, None),
            BatchSize::Global(samples) => (self.batch_size, Some(samples)),
        };
        TrainConfig { batch_size, global_batch, sequence_length: batch.sequence_length, ..self.clone() }
    }

    /// Returns the size of a sample.
    pub fn sample_size(&self) -> SampleSize {
        self.model.sample_size(self.image_size, self.sequence_length)
    }

    /// Returns a copy that runs `iterations` iterations without epochs, checkpoints and trace, for trials before a run.
    pub fn with_iterations(&self, iterations: u32) -> TrainConfig {
        let learning =
            LearningConfig { epochs: None, validate: DataFiles::default(), ..self.learning.without_checkpoints() };
        TrainConfig { iterations, learning, trace: TraceConfig::default(), ..self.clone() }
    }

    /// Returns the steps of an epoch of `items` images on `ranks` ranks; its last batch is filled up.
    pub fn epoch_steps(&self, items: u64, ranks: u32) -> u64 {
        items.div_ceil(self.joined_batch(ranks))
    }

    /// Returns the samples of all ranks in one iteration.
    pub fn joined_batch(&self, ranks: u32) -> u64 {
        self.batch().size.joined(ranks)
    }

    /// Resolves the number of iterations from the epochs, each of `steps` steps.
    pub fn with_epochs(&self, steps: u64) -> TrainConfig {
        let epoch = u32::try_from(steps).unwrap_or(u32::MAX);
        TrainConfig {
            iterations: self.learning.epochs.map_or(self.iterations, |epochs| epochs.saturating_mul(epoch)),
            learning: LearningConfig { epoch_iterations: Some(epoch), ..self.learning.clone() },
            ..self.clone()
        }
    }

    /// Returns a copy without checkpoints and without the values set by [`with_epochs`](TrainConfig::with_epochs): the
    /// part that all cases of a sweep share.
    pub fn without_epoch_length(&self) -> TrainConfig {
        let learning = LearningConfig { epoch_iterations: None, ..self.learning.without_checkpoints() };
        TrainConfig {
            iterations: if learning.epochs.is_some() { TrainConfig::default().iterations } else { self.iterations },
            learning,
            ..self.clone()
        }
    }

    /// Returns the form in which gradients are exchanged: the wire type, or the compression.
    pub fn wire_text(&self) -> String {
        self.gradient_compression.form(self.exchange.wire)
    }

    /// Returns the configuration of the baseline without communication.
    pub fn without_exchange(&self) -> TrainConfig {
        TrainConfig {
            exchange: ExchangeConfig { backend: BackendChoice::None, hierarchical: None, ..self.exchange },
            gradient_compression: GradientCompression::None,
            strategy: StrategyConfig::default(),
            learning: LearningConfig { validate: DataFiles::default(), ..self.learning.without_checkpoints() },
            ..self.clone()
        }
    }

    /// Returns the learning rate of update `update` (from 1) on `ranks` ranks: linear from 0 to `lr x ranks` over the
    /// warm-up, then scaled by [`LearningConfig::rate_factor`]. It is `lr` with a global batch, which does not grow with
    /// the ranks, and for language models, as in nanoGPT and Megatron-LM.
    ///
    /// DLPerf's warm-up is one epoch, `ceil(floor(1281167 / ranks) / batch)` iterations (DLPerf, MxNet/Classification/RN50v1b).
    pub fn learning_rate_at(&self, update: u32, ranks: u32) -> f64 {
        let is_scaled = self.global_batch.is_none() && self.model.unit() == WorkUnit::Image;
        let full = self.learning_rate * if is_scaled { f64::from(ranks) } else { 1.0 };
        let schedule = |warmup: u64| self.learning.rate_factor(update, self.iterations, warmup);
        let of_imagenet = || (IMAGENET_IMAGES / u64::from(ranks)).div_ceil(u64::from(self.batch_size));
        let epoch = || match self.model.unit() {
            WorkUnit::Image => self.learning.epoch_iterations.map_or_else(of_imagenet, u64::from),
            WorkUnit::Token => 0,
        };
        let warmup = self.learning_rate_warmup.map_or_else(epoch, u64::from);
        if u64::from(update) >= warmup { full * schedule(warmup) } else { full * f64::from(update) / warmup as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_warms_up_over_one_epoch() {
        let config = TrainConfig::default();
        // 1 rank, batch 128: ceil(1281167 / 128) = 10010 iterations.
        assert_eq!(config.learning_rate_at(10_010, 1), 0.001);
        assert_eq!(config.learning_rate_at(1001, 1), 0.001 * 1001.0 / 10_010.0);
        // 8 ranks: ceil(floor(1281167 / 8) / 128) = ceil(160145 / 128) = 1252 iterations to 0.008.
        assert_eq!(config.learning_rate_at(1252, 8), 0.008);
        let flat = TrainConfig { learning_rate_warmup: Some(0), ..config };
        assert_eq!(flat.learning_rate_at(1, 4), 0.004);
        let decoder = TrainConfig { model: Model::Gpt2Small, ..TrainConfig::default() };
        assert_eq!(decoder.learning_rate_at(1, 4), 0.001, "neither warmed up nor scaled");
    }

    #[test]
    fn language_models_have_a_batch_of_their_own() {
        let typed = |text: &str| crate::benchmark::tests::parse::<TrainConfig>(text);
        let of = |text: &str| typed(text).batch_size;
        assert_eq!(
            (of("--model resnet18"), of("--model llama-1b"), of("--batch-size 128 --model gpt2")),
            (128, 4, 128)
        );
        assert_eq!(of("--model gpt2 --global-batch 64"), 128, "a placeholder");
        for (text, arguments) in [
            ("--model gpt2", "--model gpt2-124m --batch-size 4"),
            ("--model gpt2 --batch-size 128", "--model gpt2-124m --batch-size 128"),
            ("--model gpt2 --global-batch 64", "--model gpt2-124m --global-batch 64"),
            ("--model resnet18 --batch-size 128", "--model resnet18"),
        ] {
            assert_eq!(crate::options::option_table::arguments(&typed(text)).join(" "), arguments);
        }
    }

    #[test]
    fn epochs_are_converted_to_iterations() {
        let learning = LearningConfig { epochs: Some(3), ..LearningConfig::default() };
        let config = TrainConfig { batch_size: 16, learning, ..TrainConfig::default() };
        // 1000 images are 31.25 global batches of 32.
        assert_eq!(config.epoch_steps(1000, 2), 32);
        let resolved = config.with_epochs(32);
        assert_eq!((resolved.iterations, resolved.learning.epoch_iterations), (96, Some(32)));
        // The warm-up is one epoch.
        assert_eq!((resolved.learning_rate_at(16, 2), resolved.learning_rate_at(32, 2)), (0.001, 0.002));
        assert_eq!(resolved.without_epoch_length(), TrainConfig { iterations: 120, ..config.clone() });
        assert_eq!(TrainConfig::default().with_epochs(32).iterations, 120);
    }

    #[test]
    fn fault_round_trips() {
        for text in ["fail:3:1", "overflow:2", "slow:1:50"] {
            assert_eq!(text.parse::<Fault>().expect("a fault").to_string(), text);
        }
        assert!("fail:3".parse::<Fault>().is_err());
    }

    #[test]
    fn strategy_of_version_0_1_is_read() {
        let strategy = StrategyConfig { strategy: "fsdp".parse().expect("a strategy"), ..StrategyConfig::default() };
        let config = TrainConfig { strategy, ..TrainConfig::default() };
        let today = serde_json::to_string(&config).expect("JSON");
        let earlier = today.replace("\"strategy\":\"fsdp\"", "\"kv_store\":\"shard-weights\"");
        assert_ne!(today, earlier);
        assert_eq!(serde_json::from_str::<TrainConfig>(&earlier).expect("read"), config);
    }

    #[test]
    fn configuration_of_first_records_is_read() {
        let mut old = serde_json::to_value(TrainConfig::default()).expect("JSON");
        let fields = old.as_object_mut().expect("an object");
        fields.remove("model");
        fields.remove("bind");
        let (backend, chunk) = (fields.remove("backend").expect("there"), fields.remove("chunk_kb").expect("there"));
        fields.extend([("collective".to_owned(), backend), ("piece_kb".to_owned(), chunk)]);
        let read = serde_json::from_value::<TrainConfig>(old).expect("read");
        assert_eq!(read, TrainConfig { bind: BindChoice::None, ..TrainConfig::default() });
    }
}
