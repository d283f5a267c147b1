//! The options of a training run, each in one line: see [`crate::options::option_table`].

use std::path::Path;

use anyhow::{bail, ensure};

use crate::benchmark::cores;
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig};
use crate::benchmark::image_input::ImageInputConfig;
use crate::benchmark::kv_store::{KvStore, KvStoreConfig};
use crate::benchmark::train::compression_options;
use crate::benchmark::train::config::{Fault, TrainConfig};
use crate::benchmark::train::learning::LearningConfig;
use crate::option;
use crate::options::option_table::{AUTO_BATCH_SIZE, OF_NETWORK, OptionSpec, OptionValue, Options, check_ranges};
use crate::trace::config::TraceConfig;

impl OptionValue for Fault {
    fn text(&self) -> String {
        self.to_string()
    }

    fn parse(text: &str) -> anyhow::Result<Fault> {
        text.parse()
    }
}

impl Options for TrainConfig {
    const HEADING: &'static str = "Training";

    fn options() -> Vec<OptionSpec<TrainConfig>> {
        let mut options = vec![
            option!(model, "model", "NAME", "Network to train"),
            option!(batch_size, "batch-size", "IMAGES", "Images of a rank and iteration")
                .range(1u32..=65_536)
                .keyword_of_launcher(AUTO_BATCH_SIZE, "the largest that fits, found by trials")
                .set_by_profile(),
            option!(
                work_load,
                "work-load",
                "WEIGHTS",
                "Divide the images of all ranks (batch size x ranks) by these weights: one for each rank (3,1), or one for each \
                 rank of a host (a=3,b=1); auto measures the speed of each rank first"
            )
            .default_is("the same for every rank"),
            option!(dtype, "dtype", "TYPE", "Precision of the step; fp32 is IEEE, tf32 only when asked for"),
            option!(
                device,
                "device",
                "KIND",
                "Where to train; auto takes CUDA where all of it is there and says what is missing"
            ),
            option!(
                layout,
                "layout",
                "NAME",
                "Memory layout: channels_last or contiguous; auto is nchw for fp32 on GPUs, nhwc elsewhere"
            ),
            option!(
                kernels,
                "kernels",
                "NAME",
                "Kernels that a GPU trains with in nhwc: fused normalization, pooling and 1x1 convolutions, norm (without the convolutions) or libtorch's; auto is fused if they can be compiled"
            ),
            option!(
                graphs,
                "graphs",
                "WHEN",
                "On GPUs, capture forward and backward as CUDA graphs during warm-up and replay them: faster for small batches, but the exchange has no times of its own; auto falls back to separate launches"
            ),
            option!(
                iterations,
                "iters",
                "N",
                "Iterations of a run, warm-up included, as DLPerf's 120; in bandwidth --iters excludes it"
            )
            .range(1u32..=10_000_000)
            .set_by_profile(),
            option!(warmup, "warmup", "N", "First iterations that the figures leave out")
                .set_by_profile(),
            option!(image_size, "image-size", "PIXELS", "Height and width of an image")
                .range(1u32..=4096)
                .default_is(OF_NETWORK),
            option!(overlap, "overlap", "ON|OFF", "Start a bucket's all-reduce while backward goes on"),
        ];
        let exchange = ExchangeConfig::options().into_iter();
        options.extend(
            exchange
                .map(|option| option.within(|config: &TrainConfig| &config.exchange, |config| &mut config.exchange)),
        );
        let kv_store = KvStoreConfig::options().into_iter();
        options.extend(
            kv_store
                .map(|option| option.within(|config: &TrainConfig| &config.kv_store, |config| &mut config.kv_store)),
        );
        options.push(
            OptionSpec::of(
                "gradient-compression",
                "CODE",
                "Form in which gradients are exchanged: none, fp16 or bf16 (as --wire), 2bit or 2bit:THRESHOLD (MXNet's), or \
                 topk:RATIO of each bucket's values (with servers of each array's); codes keep what they leave out for the next step",
                compression_options::text,
                compression_options::set,
            )
            .default_is("none"),
        );
        options.push(option!(
            autotune,
            "autotune",
            "",
            "Choose bucket and chunk size by a short search before the first iteration; its table goes into the record"
        ));
        options.push(
            option!(
                autotune_log,
                "autotune-log",
                "FILE",
                "Write what a search tried as CSV in the columns of Horovod's autotune log, the best again at its end: rank 0 that \
                 of --autotune; in a sweep this machine that of --autotune-over"
            )
            .aliases(&["autotune-log-file"]),
        );
        options.extend(cores::options(
            (|config: &TrainConfig| &config.threads, |config: &mut TrainConfig| &mut config.threads),
            (|config: &TrainConfig| &config.cores_divided_by, |config: &mut TrainConfig| &mut config.cores_divided_by),
        ));
        options.extend([
            option!(seed, "seed", "N", "Seed of the weights, the same on every device, and, plus the rank, of the data"),
            option!(learning_rate, "lr", "RATE", "Learning rate of one rank, multiplied by the number of ranks")
                .range(0.0..=1e6),
            option!(momentum, "momentum", "FACTOR", "Nesterov momentum").range(0.0..=1.0),
            option!(weight_decay, "weight-decay", "FACTOR", "L2 penalty on every parameter")
                .range(0.0..=1e6)
                .aliases(&["wd"]),
            option!(learning_rate_warmup, "lr-warmup-iters", "N", "Iterations of linear learning-rate warm-up")
                .default_is("one epoch: of the images of --data, else of ImageNet as DLPerf"),
            option!(loss_scale, "loss-scale", "SCALE", "First loss scale of fp16").range(1.0..=16_777_216.0),
            option!(
                freeze_batch_norm,
                "freeze-batch-norm",
                "",
                "Let batch normalization use its running statistics instead of the batch's"
            ),
            option!(dropout, "dropout", "P", "Probability with which dropout drops a value; 0 to compare losses")
                .range(0.0..=0.99)
                .default_is("the network's own: 0.5 for AlexNet, VGG and Inception-v3, 0 for the others"),
            option!(
                data,
                "data",
                "FILES",
                "Images to train on: .rec files with commas between them, a folder of them or of classes, or MNIST's arrays; \
                 .safetensors with `images` (n, channels, size, size) and `labels` (n) is one batch for every iteration"
            )
            .default_is("synthetic"),
            option!(init, "init", "FILE", "Weights to start from: safetensors with the names of the network's source"),
            option!(save, "save", "FILE", "Where rank 0 writes the last weights: safetensors with the names of the network's source"),
            option!(record, "record", "FILE", "Where rank 0 writes the run record (JSON Lines)").for_worker(),
            option!(
                inject,
                "inject",
                "FAULT",
                "Inject a fault, for tests: fail:ITERATION:RANK, overflow:ITERATION, or slow:RANK:PERCENT (of its forward \
                 time)"
            ),
        ]);
        let learning = LearningConfig::options().into_iter();
        options.extend(
            learning
                .map(|option| option.within(|config: &TrainConfig| &config.learning, |config| &mut config.learning)),
        );
        let images = ImageInputConfig::options().into_iter();
        options.extend(
            images.map(|option| option.within(|config: &TrainConfig| &config.input, |config| &mut config.input)),
        );
        let trace = TraceConfig::options().into_iter();
        options.extend(
            trace.map(|option| option.within(|config: &TrainConfig| &config.trace, |config| &mut config.trace)),
        );
        options
    }
}

impl TrainConfig {
    /// Refuses values outside their range and values that do not go together; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        // What epochs come to is known where the data are.
        match self.learning.epochs {
            None => self.check_warmup().and_then(|()| self.trace.check(self.iterations))?,
            Some(_) => self.trace.check_number()?,
        }
        self.model.check_image_size(self.image_size())?;
        if !self.freeze_batch_norm {
            self.model.check_statistics(self.batch_size, self.image_size())?;
        }
        if let (Some(Fault::Fail { iteration, .. } | Fault::Overflow { iteration }), None) =
            (self.inject, self.learning.epochs)
        {
            ensure!(
                (1..=self.iterations).contains(&iteration),
                "--inject iteration {iteration} is out of range: choose 1 to {}",
                self.iterations
            );
        }
        ensure!(
            self.autotune_log.is_none() || self.autotune,
            "--autotune-log {} is of a search: add --autotune",
            self.autotune_log.as_deref().unwrap_or(Path::new("")).display()
        );
        self.input.check(&self.data)?;
        self.learning.check(&self.data, &self.kv_store)?;
        if let Some(name) = self.learning.of_one_model().filter(|_| !self.ends_with_one_model()) {
            bail!(
                "--{name} is of ranks that have the same weights after every step, which --kv-store {} with --backend {} does not \
                 give: leave one out",
                self.kv_store.kv_store,
                self.exchange.backend
            );
        }
        if let Some(name) = self.learning.of_checkpoints() {
            ensure!(
                self.kv_store.kv_store == KvStore::Ring && self.gradient_compression.is_none(),
                "--{name} with --kv-store {} and --gradient-compression {}: values are kept on servers, owners or every rank \
                 there, and not in the checkpoint: leave one out",
                self.kv_store.kv_store,
                self.gradient_compression
            );
        }
        // Its default is an epoch of data that they never see.
        ensure!(
            !self.data.are_read() || self.kv_store.server_ranks() == 0 || self.learning_rate_warmup.is_some(),
            "--kv-store {} with --data: servers do not know how long an epoch is: give --lr-warmup-iters",
            self.kv_store.kv_store
        );
        self.exchange.check(self.device)?;
        self.kv_store.check(&self.exchange, self.dtype, self.autotune)?;
        compression_options::check(self)
    }
}

impl TrainConfig {
    fn ends_with_one_model(&self) -> bool {
        self.exchange.backend != BackendChoice::None && !self.kv_store.kv_store.is_asynchronous()
    }

    /// Refuses a warm-up that leaves nothing to measure.
    pub fn check_warmup(&self) -> anyhow::Result<()> {
        let length = match self.learning.epochs {
            None => format!("--iters {}", self.iterations),
            Some(epochs) => format!("the {} iterations of --epochs {epochs}", self.iterations),
        };
        ensure!(
            self.warmup < self.iterations,
            "--warmup {} leaves none of {length} to measure: choose a smaller --warmup",
            self.warmup
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::benchmark::SweepProfile;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::exchange::{NcclAlgorithm, Switch, Wire};
    use crate::benchmark::kv_store::KeyPlacement;
    use crate::benchmark::train::learning::LearningRateCourse;
    use crate::dimension::device::{DeviceChoice, DeviceKind};
    use crate::dimension::dtype::Dtype;
    use crate::dimension::graphs::GraphChoice;
    use crate::dimension::image_input::{Augmentation, BadImage, DecoderChoice, Interpolation, Scaling};
    use crate::dimension::kernels::KernelsChoice;
    use crate::dimension::layout::LayoutChoice;
    use crate::dimension::model::Model;
    use crate::options::keyword_enum::KeywordEnum;
    use crate::options::option_table::{Worker, arguments};
    use crate::trace::config::TraceFormat;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Worker<TrainConfig>,
    }

    fn parse(arguments: &[String]) -> TrainConfig {
        let program = std::iter::once("worker".to_owned());
        let typed = Typed::try_parse_from(program.chain(arguments.iter().cloned())).expect("valid arguments");
        typed.options.apply(TrainConfig::default()).expect("valid values")
    }

    #[test]
    fn the_default_needs_no_arguments() {
        assert_eq!(arguments(&TrainConfig::default()), Vec::<String>::new());
        assert_eq!(parse(&[]), TrainConfig::default());
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let config = TrainConfig {
            model: Model::Resnet18,
            batch_size: 2,
            work_load: Some("a=3,b=0.5".parse().expect("weights")),
            dtype: Dtype::Bf16,
            device: DeviceChoice::Cpu,
            layout: LayoutChoice::Nchw,
            kernels: KernelsChoice::Libtorch,
            graphs: GraphChoice::On,
            iterations: 7,
            warmup: 3,
            image_size: Some(64),
            overlap: Switch::Off,
            exchange: ExchangeConfig {
                backend: BackendChoice::Mpi,
                wire: Wire::Fp16,
                bucket_mb: 0.5,
                chunk_kb: 0,
                tail_mb: 0.0,
                nccl_algo: NcclAlgorithm::Tree,
                hierarchical: Some(Switch::Off),
            },
            kv_store: KvStoreConfig {
                kv_store: KvStore::DistAsync,
                servers: Some(3),
                key_placement: KeyPlacement::Hash,
            },
            gradient_compression: GradientCompression::None,
            autotune: true,
            autotune_log: Some("e f.csv".into()),
            threads: Some(3),
            cores_divided_by: Some(8),
            seed: -4,
            learning_rate: 0.25,
            momentum: 0.5,
            weight_decay: 1e-7,
            learning_rate_warmup: Some(0),
            learning: LearningConfig {
                epochs: Some(90),
                validate: Some("v.rec".to_owned()).into(),
                course: LearningRateCourse::Cosine,
                step_epochs: "30,60".parse().expect("epochs"),
                factor: 0.5,
                label_smoothing: 0.125,
                checkpoint: Some("k.safetensors".into()),
                checkpoint_every: Some(100),
                from_checkpoint: Some("l.safetensors".into()),
                epoch_iterations: None,
            },
            loss_scale: 128.0,
            freeze_batch_norm: true,
            dropout: Some(0.25),
            data: Some("a.rec,b.rec".to_owned()).into(),
            input: ImageInputConfig {
                augmentation: Some(Augmentation::Mxnet2),
                resize: Some(256),
                interpolation: Some(Interpolation::Antialias),
                decoder: DecoderChoice::Zune,
                decode_scaling: Scaling::Allowed,
                decode_threads: Some(3),
                prefetch: 2,
                shuffle: Switch::Off,
                on_bad_image: BadImage::Skip,
                image_limits: "pixels=7,aspect=3".parse().ok(),
            },
            init: None,
            save: Some("c.safetensors".into()),
            record: Some("d.jsonl".into()),
            trace: TraceConfig {
                file: Some("m.json".into()),
                iterations: "3-5".parse().ok(),
                format: TraceFormat::Horovod,
                profile_layers: true,
            },
            inject: Some(Fault::Fail { rank: 1, iteration: 2 }),
        };
        assert_eq!(parse(&arguments(&config)), config);
        // A code is not exchanged in half precision.
        let exchange = ExchangeConfig { wire: Wire::Fp32, ..config.exchange };
        let coded = TrainConfig { gradient_compression: "topk:0.125".parse().expect("a code"), exchange, ..config };
        assert_eq!(parse(&arguments(&coded)), coded);
    }

    #[test]
    fn two_options_that_contradict_each_other_are_refused_whichever_comes_first() {
        let refused = |text: &str| {
            let typed =
                Typed::try_parse_from(std::iter::once("worker").chain(text.split(' '))).expect("valid arguments");
            let applied = typed.options.apply(TrainConfig::default());
            format!("{:#}", applied.and_then(|config| config.validate()).expect_err(text))
        };
        for text in ["--gradient-compression fp16 --wire fp32", "--wire fp32 --gradient-compression fp16"] {
            let expected =
                "--wire fp32 and another option contradict each other, which makes it fp16: give one of them";
            assert_eq!(refused(text), expected);
        }
        let error = refused("--wire fp16 --gradient-compression bf16");
        assert_eq!(error, "--gradient-compression bf16: contradicts --wire fp16: give one of them");
        assert!(refused("--wire fp16 --gradient-compression 2bit").contains("2bit:0.5 and --wire fp16 contradict"));
        assert!(refused("--backend none --gradient-compression topk:0.1").contains("--backend none exchanges nothing"));
        assert_eq!(parse(&["--gradient-compression".to_owned(), "bf16".to_owned()]).exchange.wire, Wire::Bf16);
    }

    #[test]
    fn an_unknown_keyword_lists_the_known_ones() {
        let error = Typed::try_parse_from(["worker", "--dtype", "fp8"]).err().expect("refused").to_string();
        assert!(error.contains("fp32, tf32, fp16, bf16"), "{error}");
    }

    #[test]
    fn every_profile_is_valid_and_dlperf_s_is_the_worker_s_default() {
        for profile in SweepProfile::ALL {
            for device in [DeviceKind::Cpu, DeviceKind::Cuda] {
                TrainConfig::of_profile(*profile, device).validate().expect("the profile is in range");
            }
        }
        assert_eq!(TrainConfig::of_profile(SweepProfile::Dlperf, DeviceKind::Cpu), TrainConfig::default());
    }

    #[test]
    fn what_needs_one_model_is_refused_where_ranks_have_several() {
        let read = TrainConfig {
            data: Some("a.rec".to_owned()).into(),
            learning_rate_warmup: Some(0),
            ..TrainConfig::default()
        };
        let refused = |text: &str| {
            let typed =
                Typed::try_parse_from(std::iter::once("worker").chain(text.split(' '))).expect("valid arguments");
            let config = typed.options.apply(read.clone()).expect("valid values");
            config.validate().expect_err(text).to_string()
        };
        let error = refused("--validate b.rec --backend none");
        assert!(error.starts_with("--validate is of ranks that have the same weights after every step"), "{error}");
        assert!(refused("--validate b.rec --kv-store dist_async --servers 1").starts_with("--validate is of ranks"));
        assert!(
            refused("--from-checkpoint b --kv-store device").starts_with("--from-checkpoint with --kv-store device")
        );
        assert!(refused("--lr-factor 0.5").starts_with("--lr-factor 0.5 is of epochs: add --lr-step-epochs"));
    }

    #[test]
    fn each_range_names_its_option_and_the_value() {
        type Change = fn(&mut TrainConfig);
        let cases: [(&str, &str, Change); 9] = [
            ("--batch-size", "0", |config| config.batch_size = 0),
            ("--iters", "0", |config| config.iterations = 0),
            ("--warmup", "120", |config| config.warmup = 120),
            ("--image-size", "31", |config| config.image_size = Some(31)),
            ("--bucket-mb", "NaN", |config| config.exchange.bucket_mb = f64::NAN),
            ("--threads", "0", |config| config.threads = Some(0)),
            ("--lr", "inf", |config| config.learning_rate = f64::INFINITY),
            ("--momentum", "2", |config| config.momentum = 2.0),
            ("--inject", "121", |config| config.inject = Some(Fault::Overflow { iteration: 121 })),
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
        let exchange = ExchangeConfig { backend: BackendChoice::Nccl, ..ExchangeConfig::default() };
        assert!(exchange.check(DeviceChoice::Cpu).is_err());
        assert!(exchange.check(DeviceChoice::Auto).is_ok());
    }
}
