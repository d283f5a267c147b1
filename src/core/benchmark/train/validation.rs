//! Checks for conflicting options of a training run.

use std::path::Path;

use anyhow::{Context, bail, ensure};

use crate::benchmark::data_input::DataSource;
use crate::benchmark::exchange::{BackendChoice, Switch};
use crate::benchmark::is_default;
use crate::benchmark::train::config::{Fault, GRAPH_WARMUP, Recompute, TrainConfig};
use crate::dimension::{DeviceChoice, Dtype, GraphChoice, Strategy};
use crate::options::keyword_enum::KeywordEnum;
use crate::options::option_table::check_ranges;

impl TrainConfig {
    /// Rejects a rank's batch of `images` images that `--accumulate` divides into parts without images, or into parts
    /// too small for batch normalization.
    pub fn check_parts(&self, images: u32) -> anyhow::Result<()> {
        ensure!(
            images >= self.accumulate,
            "--accumulate {} divides a rank's batch of {images} {} into parts without any: use a larger --batch-size or \
             a smaller --accumulate",
            self.accumulate,
            self.sample_size().samples()
        );
        if self.freeze_batch_norm {
            return Ok(());
        }
        let part = images / self.accumulate;
        let checked = self.model.check_statistics(part, self.image_size);
        if self.accumulate == 1 {
            checked
        } else {
            checked.with_context(|| format!("--accumulate {} with parts of {part} images", self.accumulate))
        }
    }

    /// Refuses values outside their range and values that do not go together; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        if self.program.is_used() {
            return self.model.check_sample_size(self.image_size, self.sequence_length);
        }
        self.model.check_known()?;
        // The iterations of an epoch are known once the data files are read.
        match self.learning.epochs {
            None => self.check_warmup().and_then(|()| self.trace.check(self.iterations))?,
            Some(_) => self.trace.check_number()?,
        }
        self.model.check_sample_size(self.image_size, self.sequence_length)?;
        self.check_decoder()?;
        if self.global_batch.is_none() {
            self.on_ranks(1)?.check_parts(self.batch_size)?;
        }
        if let (
            Some(
                Fault::Fail { iteration, .. }
                | Fault::Overflow { iteration }
                | Fault::Flip { iteration, .. }
                | Fault::Lose { iteration, .. },
            ),
            None,
        ) = (self.inject, self.learning.epochs)
        {
            ensure!(
                (1..=self.iterations).contains(&iteration),
                "--inject iteration {iteration} is out of range: choose 1 to {}",
                self.iterations
            );
        }
        ensure!(
            self.autotune_log.is_none() || self.autotune,
            "--autotune-log {} needs a search: add --autotune",
            self.autotune_log.as_deref().unwrap_or(Path::new("")).display()
        );
        self.check_optimizer()?;
        self.check_fingerprint()?;
        self.input.check(&self.data)?;
        self.learning.check(&self.data, &self.strategy)?;
        if let Some(name) = self.learning.option_for_one_model().filter(|_| !self.ends_with_one_model()) {
            bail!(
                "--{name} needs the same weights on all ranks after every step, which --strategy {} with --backend {} \
                 does not provide: omit one of them",
                self.strategy.strategy,
                self.exchange.backend
            );
        }
        let strategy = self.strategy.strategy;
        ensure!(
            !strategy.shards_gradients() || self.overlap == Switch::On,
            "--overlap off exchanges gradients after backward, but --strategy {strategy} keeps only those of two \
             buckets: omit --overlap"
        );
        ensure!(
            !strategy.shards_weights() || self.learning.validate.paths().is_empty(),
            "--validate is not supported with --strategy {strategy}, whose ranks compute together: omit one of them"
        );
        if let Some(name) = self.learning.option_for_checkpoints() {
            ensure!(
                !strategy.has_servers() && self.gradient_compression.is_none(),
                "--{name} is not supported with --strategy {} and --gradient-compression {}, which keep state on \
                 servers or ranks outside the checkpoint: omit one of them",
                self.strategy.strategy,
                self.gradient_compression
            );
        }
        // Its default is an epoch of data that they never see.
        ensure!(
            !self.data.are_read() || self.strategy.server_ranks() == 0 || self.learning_rate_warmup.is_some(),
            "--strategy {} with --data needs --lr-warmup-iters, because servers do not know the epoch length",
            self.strategy.strategy
        );
        if let Some(reason) =
            self.graph_exclusion(self.device == DeviceChoice::Cpu).filter(|_| self.graphs == GraphChoice::On)
        {
            bail!("--graphs on: {reason}: use --graphs auto");
        }
        self.exchange.check(self.device)?;
        self.strategy.check(&self.exchange, self.dtype, self.autotune)?;
        check_compression(self)
    }
}

impl TrainConfig {
    /// Refuses options of images with a language model.
    fn check_decoder(&self) -> anyhow::Result<()> {
        let TrainConfig { model, learning, .. } = self;
        if model.facts().decoder_shape().is_none() {
            ensure!(
                self.recompute == Recompute::None,
                "--recompute {} needs a language model: omit it",
                self.recompute
            );
            return Ok(());
        }
        for (option, files) in [("--data", &self.data), ("--validate", &learning.validate)] {
            if let DataSource::Batch(file) = files.source() {
                bail!(
                    "{option} {} is a batch of images: use token files (.bin) with {model}, a language model",
                    file.display()
                );
            }
        }
        if let Some(option) = self.input.option_for_images().filter(|_| self.data.are_read()) {
            bail!("--{option} does not apply to {model}, a language model: omit it");
        }
        let refused = [
            ("--label-smoothing", learning.label_smoothing != 0.0),
            ("--dropout", self.dropout.is_some()),
            ("--freeze-batch-norm", self.freeze_batch_norm),
        ];
        let option = refused.iter().find(|(_, is_given)| *is_given).map(|(option, _)| option);
        option.map_or(Ok(()), |option| bail!("{option} does not apply to {model}, a language model: omit it"))
    }

    /// Refuses options with which ranks have different values, or no gradient that can be read.
    fn check_fingerprint(&self) -> anyhow::Result<()> {
        let option = match (self.fingerprint, self.inject) {
            (true, _) => "--fingerprint".to_owned(),
            (false, Some(fault @ Fault::Flip { .. })) => format!("--inject {fault}"),
            _ => return Ok(()),
        };
        ensure!(self.overlap == Switch::Off, "{option} reads gradients before their exchange: add --overlap off");
        let strategy = self.strategy.strategy;
        let refused = [
            (format!("--strategy {strategy}"), strategy != Strategy::AllReduce),
            (format!("--gradient-compression {}", self.gradient_compression), !self.gradient_compression.is_none()),
            ("--data".to_owned(), self.data.are_read()),
            ("--work-load".to_owned(), self.work_load.is_some()),
            ("a checkpoint".to_owned(), self.learning.option_for_checkpoints().is_some()),
        ];
        let other = refused.into_iter().find(|(_, is_given)| *is_given);
        other.map_or(Ok(()), |(other, _)| bail!("{option} is not supported with {other}: omit one of them"))
    }

    /// Refuses constants of another update rule.
    fn check_optimizer(&self) -> anyhow::Result<()> {
        let (default, optimizer) = (TrainConfig::default(), self.optimizer);
        ensure!(
            !optimizer.is_adam() || self.momentum == default.momentum,
            "--momentum {} does not apply to --optimizer {optimizer}: use --adam-beta1",
            self.momentum
        );
        ensure!(
            optimizer.is_adam() || is_default(&self.adam),
            "--adam-beta1, --adam-beta2 and --adam-eps do not apply to --optimizer {optimizer}: add --optimizer adamw"
        );
        let strategy = self.strategy.strategy;
        for (option, is_given) in
            [("--clip-norm", self.clip_norm.is_some()), ("--weight-decay-on", !self.decayed_weights.is_all())]
        {
            ensure!(
                !(is_given && strategy.has_servers()),
                "{option} is not supported with --strategy {strategy}, whose servers update each part of an array \
                 alone: omit it, or use --strategy {}",
                Strategy::alternatives(|strategy| !strategy.has_servers())
            );
        }
        Ok(())
    }

    /// Returns the reason why this run cannot use CUDA graphs; `is_on_cpu` is false if the device is not known yet.
    pub fn graph_exclusion(&self, is_on_cpu: bool) -> Option<String> {
        let TrainConfig { trace, inject, strategy, exchange, warmup, .. } = self;
        if is_on_cpu {
            return Some("CUDA graphs need a GPU".to_owned());
        }
        if trace.file.is_some() || trace.is_profiled() {
            return Some("layers are traced, which a replay cannot do".to_owned());
        }
        if self.accumulate > 1 {
            return Some(format!("--accumulate {} computes a step in several passes", self.accumulate));
        }
        if self.fingerprint {
            return Some("--fingerprint reads gradients before their exchange".to_owned());
        }
        if let Some(fault @ (Fault::Overflow { .. } | Fault::Flip { .. } | Fault::Slow { .. })) = inject {
            return Some(format!("--inject {fault} changes a step"));
        }
        if strategy.strategy != Strategy::AllReduce {
            return Some(format!("--strategy {} cannot be captured, only all-reduce", strategy.strategy));
        }
        if let BackendChoice::Mpi | BackendChoice::SharedMemory = exchange.backend {
            return Some(format!("--backend {} exchanges through the host", exchange.backend));
        }
        (*warmup < GRAPH_WARMUP)
            .then(|| format!("--warmup is {warmup}, but a capture needs {GRAPH_WARMUP} warm-up iterations"))
    }

    fn ends_with_one_model(&self) -> bool {
        self.exchange.backend != BackendChoice::None && !self.strategy.strategy.is_asynchronous()
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

/// Rejects options that conflict with a code; the message names both.
fn check_compression(config: &TrainConfig) -> anyhow::Result<()> {
    let compression = config.gradient_compression;
    compression.check(&config.exchange, config.strategy.strategy, config.device)?;
    ensure!(
        compression.is_none() || config.dtype != Dtype::Fp16,
        "--gradient-compression {compression} needs finite gradients, but --dtype fp16 finds its loss scale by \
         overflow: use --dtype bf16 or fp32"
    );
    ensure!(
        compression.is_none() || !config.autotune,
        "--gradient-compression {compression} conflicts with --autotune, because trial steps leave a residual in the \
         training that follows: set --bucket-mb instead"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::SweepProfile;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::exchange::ExchangeConfig;
    use crate::benchmark::optimizer::Optimizer;
    use crate::benchmark::strategy::StrategyConfig;
    use crate::benchmark::tests::{parse, typed};
    use crate::dimension::{DeviceChoice, DeviceKind, Wire};
    use crate::options::keyword_enum::KeywordEnum;

    #[test]
    fn every_field_survives_worker_arguments() {
        crate::benchmark::tests::check_options::<TrainConfig>(&["/learning/epoch_iterations"]);
    }

    #[test]
    fn conflicting_options_are_rejected_in_any_order() {
        let refused = |text: &str| {
            let applied =
                typed(text.split(' ').map(str::to_owned)).expect("valid arguments").apply(TrainConfig::default());
            format!("{:#}", applied.and_then(|config| config.validate()).expect_err(text))
        };
        let contradictions = [
            "--gradient-compression fp16 --wire fp32",
            "--wire fp32 --gradient-compression fp16",
            "--wire fp16 --gradient-compression bf16",
            "--wire fp16 --gradient-compression 2bit",
            "--backend none --gradient-compression topk:0.1",
            "--graphs on --strategy fsdp",
            "--graphs on --device cpu",
            "--graphs on --warmup 3",
        ];
        expect![[r#"
            --wire fp32 conflicts with another option, which sets it to fp16: use only one of them
            --wire fp32 conflicts with another option, which sets it to fp16: use only one of them
            --gradient-compression bf16: conflicts with --wire fp16: use only one of them
            --gradient-compression 2bit:0.5 conflicts with --wire fp16, because codes have their own format: omit --wire
            --gradient-compression topk:0.1 conflicts with --backend none, which exchanges nothing: use only one of them
            --graphs on: --strategy fsdp cannot be captured, only all-reduce: use --graphs auto
            --graphs on: CUDA graphs need a GPU: use --graphs auto
            --graphs on: --warmup is 3, but a capture needs 4 warm-up iterations: use --graphs auto"#]]
        .assert_eq(&contradictions.map(refused).join("\n"));
        assert_eq!(parse::<TrainConfig>("--gradient-compression bf16").exchange.wire, Wire::Bf16);
    }

    #[test]
    fn unknown_keyword_lists_known_keywords() {
        let error = typed::<TrainConfig>(["--dtype", "fp8"].map(str::to_owned)).expect_err("refused").to_string();
        assert!(error.contains("fp32, tf32, fp16, bf16"), "{error}");
    }

    #[test]
    fn profiles_are_valid_and_dlperf_is_the_default() {
        for profile in SweepProfile::ALL {
            for device in [DeviceKind::Cpu, DeviceKind::Cuda] {
                let config = TrainConfig::for_profile(*profile, device);
                // Networks of images have no length of sequences.
                config.with_batch(config.batch()).validate().expect("the profile is in range");
            }
        }
        assert_eq!(TrainConfig::for_profile(SweepProfile::Dlperf, DeviceKind::Cpu), TrainConfig::default());
    }

    #[test]
    fn options_for_one_model_reject_several_models() {
        let read = TrainConfig {
            data: Some("a.rec".to_owned()).into(),
            learning_rate_warmup: Some(0),
            ..TrainConfig::default()
        };
        let refused = |text: &str| {
            let typed = typed::<TrainConfig>(text.split(' ').map(str::to_owned)).expect("valid arguments");
            let config = typed.apply(read.clone()).expect("valid values");
            config.validate().expect_err(text).to_string()
        };
        let of_one_model = [
            "--validate b.rec --backend none",
            "--validate b.rec --strategy dist_async --servers 1",
            "--from-checkpoint b --strategy dist_sync --servers 1",
            "--lr-factor 0.5",
        ];
        expect![[r#"
            --validate needs the same weights on all ranks after every step, which --strategy all-reduce with --backend none does not provide: omit one of them
            --validate needs the same weights on all ranks after every step, which --strategy dist_async with --backend auto does not provide: omit one of them
            --from-checkpoint is not supported with --strategy dist_sync and --gradient-compression none, which keep state on servers or ranks outside the checkpoint: omit one of them
            --lr-factor 0.5 needs epochs: add --lr-step-epochs"#]].assert_eq(&of_one_model.map(refused).join("\n"));
    }

    #[test]
    fn range_errors_name_option_and_value() {
        type Change = fn(&mut TrainConfig);
        let changes: [Change; 13] = [
            |config| config.batch_size = 0,
            |config| config.accumulate = 129,
            |config| config.iterations = 0,
            |config| config.warmup = 120,
            |config| config.image_size = Some(31),
            |config| config.exchange.bucket_mb = f64::NAN,
            |config| config.threads = Some(0),
            |config| config.learning_rate = f64::INFINITY,
            |config| config.momentum = 2.0,
            |config| config.adam.beta2 = 1.0,
            |config| (config.optimizer, config.momentum) = (Optimizer::AdamW, 0.9),
            |config| config.adam.epsilon = 1e-6,
            |config| config.inject = Some(Fault::Overflow { iteration: 121 }),
        ];
        let error = |change: Change| {
            let mut config = TrainConfig::default();
            change(&mut config);
            config.validate().expect_err("out of range").to_string()
        };
        expect![[r#"
            --batch-size 0 is out of range: choose 1 to 65536
            --accumulate 129 divides a rank's batch of 128 images into parts without any: use a larger --batch-size or a smaller --accumulate
            --iters 0 is out of range: choose 1 to 10000000
            --warmup 120 leaves none of --iters 120 to measure: choose a smaller --warmup
            --image-size 31 does not fit resnet50_v1b, which needs images of at least 32 pixels: choose --image-size 32 or more
            --bucket-mb NaN is out of range: choose 0 to 100000
            --threads 0 is out of range: choose 1 to 4096
            --lr inf is out of range: choose 0 to 1000000
            --momentum 2 is out of range: choose 0 to 1
            --adam-beta2 1 is out of range: choose 0 to 0.999999
            --momentum 0.9 does not apply to --optimizer adamw: use --adam-beta1
            --adam-beta1, --adam-beta2 and --adam-eps do not apply to --optimizer nag: add --optimizer adamw
            --inject iteration 121 is out of range: choose 1 to 120"#]].assert_eq(&changes.map(error).join("\n"));
    }

    #[test]
    fn nccl_on_the_cpu_is_rejected() {
        let exchange = ExchangeConfig { backend: BackendChoice::Nccl, ..ExchangeConfig::default() };
        assert!(exchange.check(DeviceChoice::Cpu).is_err());
        assert!(exchange.check(DeviceChoice::Auto).is_ok());
    }

    #[test]
    fn half_precision_sets_wire_and_conflicts_are_rejected() {
        let with = |wire: Wire, backend: BackendChoice, text: &str| {
            let exchange = ExchangeConfig { wire, backend, ..ExchangeConfig::default() };
            let mut config = TrainConfig { exchange, ..TrainConfig::default() };
            config
                .gradient_compression
                .set(&mut config.exchange, text)
                .and_then(|()| check_compression(&config))
                .map(|()| config)
        };
        let auto = BackendChoice::Auto;
        let half = with(Wire::Fp32, auto, "fp16").expect("half precision");
        assert_eq!((half.exchange.wire, half.gradient_compression), (Wire::Fp16, GradientCompression::None));
        assert_eq!((half.gradient_compression.display_text(), half.wire_text()), (String::new(), "fp16".to_owned()));
        assert_eq!(with(Wire::Bf16, auto, "bf16").expect("said twice").exchange.wire, Wire::Bf16);
        assert_eq!(with(Wire::Fp32, auto, "2bit").expect("a code").wire_text(), "2bit:0.5");
        let none = BackendChoice::None;
        let contradictions = [
            (Wire::Bf16, auto, "fp16"),
            (Wire::Fp16, auto, "none"),
            (Wire::Fp16, auto, "2bit"),
            (Wire::Fp32, none, "2bit"),
            (Wire::Fp32, none, "topk:0.1"),
            (Wire::Fp32, none, "fp16"),
        ];
        let refused = |(wire, backend, text)| with(wire, backend, text).expect_err(text).to_string();
        expect![[r#"
            conflicts with --wire bf16: use only one of them
            conflicts with --wire fp16: use only one of them
            --gradient-compression 2bit:0.5 conflicts with --wire fp16, because codes have their own format: omit --wire
            --gradient-compression 2bit:0.5 conflicts with --backend none, which exchanges nothing: use only one of them
            --gradient-compression topk:0.1 conflicts with --backend none, which exchanges nothing: use only one of them
            conflicts with --backend none, which exchanges nothing: use only one of them"#]]
        .assert_eq(&contradictions.map(refused).join("\n"));
        let coded = TrainConfig {
            gradient_compression: GradientCompression::TwoBit { threshold: 1.0 },
            ..TrainConfig::default()
        };
        let with = |strategy: Strategy| {
            let strategy = StrategyConfig { strategy, ..StrategyConfig::default() };
            TrainConfig { strategy, ..coded.clone() }
        };
        let on_gpu = |config: TrainConfig| TrainConfig { device: DeviceChoice::Cuda, ..config };
        let not_coded = [
            TrainConfig { dtype: Dtype::Fp16, ..coded.clone() },
            TrainConfig { autotune: true, ..coded.clone() },
            with(Strategy::Device),
            with(Strategy::Local),
            with(Strategy::Nccl),
            on_gpu(coded.clone()),
        ];
        let check = |config: TrainConfig| check_compression(&config).expect_err("refused").to_string();
        expect![[r#"
            --gradient-compression 2bit:1 needs finite gradients, but --dtype fp16 finds its loss scale by overflow: use --dtype bf16 or fp32
            --gradient-compression 2bit:1 conflicts with --autotune, because trial steps leave a residual in the training that follows: set --bucket-mb instead
            --gradient-compression 2bit:1 is not supported with --strategy device (owners receive sums, and codes cannot be added): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --gradient-compression 2bit:1 is not supported with --strategy local (MXNet ignores the compression and sends values): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --gradient-compression 2bit:1 is not supported with --strategy nccl (NCCL cannot add codes, and MXNet rejects them): use --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync
            --gradient-compression 2bit:1 runs in host memory: with --device cuda use --strategy dist_sync or dist_async, or --gradient-compression fp16 or bf16"#]].assert_eq(&not_coded.map(check).join("\n"));
        for strategy in [Strategy::DistSync, Strategy::DistDeviceSync, Strategy::DistAsync, Strategy::DistDeviceAsync] {
            check_compression(&with(strategy)).expect("servers decode");
        }
        check_compression(&on_gpu(with(Strategy::DistSync))).expect("gradients go to host memory");
    }
}
