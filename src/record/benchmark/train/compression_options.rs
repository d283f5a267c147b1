//! What of training does not go with a code, and training without any exchange.

use anyhow::ensure;

use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig};
use crate::benchmark::image_input::DataFiles;
use crate::benchmark::kv_store::KvStoreConfig;
use crate::benchmark::train::config::TrainConfig;
use crate::benchmark::train::learning::LearningConfig;
use crate::dimension::dtype::Dtype;

/// Refuses what does not go with a code; the message names both options.
pub fn check(config: &TrainConfig) -> anyhow::Result<()> {
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

impl TrainConfig {
    /// In what form gradients go: the wire's type, or the code.
    pub fn wire_text(&self) -> String {
        self.gradient_compression.form(self.exchange.wire)
    }

    /// The same ranks without any exchange: the baseline of what it costs.
    pub fn without_exchange(&self) -> TrainConfig {
        TrainConfig {
            exchange: ExchangeConfig { backend: BackendChoice::None, hierarchical: None, ..self.exchange },
            gradient_compression: GradientCompression::None,
            kv_store: KvStoreConfig::default(),
            learning: LearningConfig { validate: DataFiles::default(), ..self.learning.without_checkpoints() },
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::exchange::Wire;
    use crate::benchmark::kv_store::KvStore;
    use crate::dimension::device::DeviceChoice;

    #[test]
    fn half_precision_is_the_wire_s_and_contradictions_are_refused() {
        let with = |wire: Wire, backend: BackendChoice, text: &str| {
            let exchange = ExchangeConfig { wire, backend, ..ExchangeConfig::default() };
            let mut config = TrainConfig { exchange, ..TrainConfig::default() };
            config.gradient_compression.set(&mut config.exchange, text).and_then(|()| check(&config)).map(|()| config)
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
        let check = |config: TrainConfig| check(&config).expect_err("refused").to_string();
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
            super::check(&with(kv_store)).expect("servers decode");
        }
        let on_gpu = |config: TrainConfig| TrainConfig { device: DeviceChoice::Cuda, ..config };
        super::check(&on_gpu(with(KvStore::DistSync))).expect("gradients go to host memory");
        assert!(check(on_gpu(coded)).contains("with --device cuda choose --kv-store dist_sync"));
    }
}
