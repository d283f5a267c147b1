//! Which values of a training run do not go together.

use std::path::Path;

use anyhow::{bail, ensure};

use crate::benchmark::exchange::BackendChoice;
use crate::benchmark::kv_store::KvStore;
use crate::benchmark::train::config::{Fault, TrainConfig};
use crate::dimension::Dtype;
use crate::options::option_table::check_ranges;

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
        check_compression(self)
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

/// Refuses what does not go with a code; the message names both options.
fn check_compression(config: &TrainConfig) -> anyhow::Result<()> {
    let compression = config.gradient_compression;
    compression.check(&config.exchange, config.kv_store.kv_store, config.device)?;
    ensure!(
        compression.is_none() || config.dtype != Dtype::Fp16,
        "--gradient-compression {compression} needs finite gradients, and --dtype fp16 finds its loss scale by gradients that \
         are not: choose --dtype bf16 or fp32"
    );
    ensure!(
        compression.is_none() || !config.autotune,
        "--gradient-compression {compression} and --autotune do not go together: trial steps would leave their residual in \
         the training that follows. Choose --bucket-mb by hand"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::benchmark::SweepProfile;
    use crate::benchmark::compression::GradientCompression;
    use crate::benchmark::exchange::{ExchangeConfig, Wire};
    use crate::benchmark::kv_store::KvStoreConfig;
    use crate::dimension::device::{DeviceChoice, DeviceKind};
    use crate::options::keyword_enum::KeywordEnum;
    use crate::options::option_table::Worker;

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

    #[test]
    fn half_precision_is_the_wire_s_and_contradictions_are_refused() {
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
        assert_eq!((half.gradient_compression.shown(), half.wire_text()), (String::new(), "fp16".to_owned()));
        assert_eq!(with(Wire::Bf16, auto, "bf16").expect("said twice").exchange.wire, Wire::Bf16);
        assert_eq!(with(Wire::Fp32, auto, "2bit").expect("a code").wire_text(), "2bit:0.5");
        let refused = |wire, backend, text| with(wire, backend, text).expect_err(text).to_string();
        assert_eq!(refused(Wire::Bf16, auto, "fp16"), "contradicts --wire bf16: give one of them");
        assert_eq!(refused(Wire::Fp16, auto, "none"), "contradicts --wire fp16: give one of them");
        assert!(refused(Wire::Fp16, auto, "2bit").contains("2bit:0.5 and --wire fp16 contradict each other"));
        for text in ["2bit", "topk:0.1", "fp16"] {
            let error = refused(Wire::Fp32, BackendChoice::None, text);
            assert!(error.contains("--backend none exchanges nothing"), "{error}");
        }
        let coded = TrainConfig {
            gradient_compression: GradientCompression::TwoBit { threshold: 1.0 },
            ..TrainConfig::default()
        };
        let check = |config: TrainConfig| check_compression(&config).expect_err("refused").to_string();
        assert!(check(TrainConfig { dtype: Dtype::Fp16, ..coded.clone() }).contains("--dtype fp16"));
        assert!(check(TrainConfig { autotune: true, ..coded.clone() }).contains("--autotune"));
        let with = |kv_store: KvStore| {
            let kv_store = KvStoreConfig { kv_store, ..KvStoreConfig::default() };
            TrainConfig { kv_store, ..coded.clone() }
        };
        assert!(check(with(KvStore::Device)).contains("--kv-store is device: its owners get sums"));
        assert!(check(with(KvStore::Local)).contains("--kv-store is local: MXNet's ignores the code"));
        assert!(check(with(KvStore::Nccl)).contains("--kv-store is nccl: MXNet's refuses codes too"));
        for kv_store in [KvStore::DistSync, KvStore::DistDeviceSync, KvStore::DistAsync, KvStore::DistDeviceAsync] {
            check_compression(&with(kv_store)).expect("servers decode");
        }
        let on_gpu = |config: TrainConfig| TrainConfig { device: DeviceChoice::Cuda, ..config };
        check_compression(&on_gpu(with(KvStore::DistSync))).expect("gradients go to host memory");
        assert!(check(on_gpu(coded)).contains("with --device cuda choose --kv-store dist_sync"));
    }
}
