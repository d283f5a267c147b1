//! The option `--gradient-compression`: how it is typed and shown, and what does not go with it. Half precision is the
//! wire's own (`--wire`), and this option only another name for it.

use anyhow::{bail, ensure};

use crate::benchmark::exchange::{BackendChoice, ExchangeConfig, Wire};
use crate::benchmark::kv_store::{KvStore, KvStoreConfig};
use crate::benchmark::train::compression::GradientCompression;
use crate::benchmark::train::config::TrainConfig;
use crate::dimension::device::DeviceChoice;
use crate::dimension::dtype::Dtype;

/// Refuses what does not go with a code; the message names both options.
pub fn check(config: &TrainConfig) -> anyhow::Result<()> {
    let compression = config.gradient_compression;
    if compression.is_none() {
        return Ok(());
    }
    let ExchangeConfig { backend, wire, .. } = config.exchange;
    ensure!(
        backend != BackendChoice::None,
        "--gradient-compression {compression} codes what is exchanged, and --backend none exchanges nothing: leave one of them out"
    );
    let kv_store = config.kv_store.kv_store;
    if let Some(why) = no_codes(kv_store) {
        bail!(
            "--gradient-compression {compression} goes with --kv-store ring and dist_*, and --kv-store is {kv_store}: {why}. \
             Choose --gradient-compression fp16 or bf16, or --kv-store ring or dist_sync"
        );
    }
    ensure!(
        wire == Wire::Fp32,
        "--gradient-compression {compression} and --wire {wire} contradict each other: a code has a form of its own, leave \
         --wire out"
    );
    ensure!(
        config.dtype != Dtype::Fp16,
        "--gradient-compression {compression} needs finite gradients, and --dtype fp16 finds its loss scale by gradients that \
         are not: choose --dtype bf16 or fp32"
    );
    ensure!(
        !config.autotune,
        "--gradient-compression {compression} and --autotune do not go together: trial steps would leave their residual in \
         the training that follows. Choose --bucket-mb by hand"
    );
    ensure!(
        config.device != DeviceChoice::Cuda,
        "--gradient-compression {compression} codes in host memory, --device is cuda: there are no kernels for it yet, choose \
         --gradient-compression fp16 or bf16"
    );
    Ok(())
}

/// Why a kv-store takes no codes; `None` where it does.
fn no_codes(kv_store: KvStore) -> Option<&'static str> {
    match kv_store {
        KvStore::Local => Some("MXNet's ignores the code and sends values"),
        KvStore::Nccl => Some("MXNet's refuses codes too, which NCCL cannot add"),
        KvStore::Device => Some("its owners get sums, and codes cannot be added on the way"),
        KvStore::Ring | KvStore::DistSync | KvStore::DistDeviceSync | KvStore::DistAsync | KvStore::DistDeviceAsync => {
            None
        }
    }
}

/// What the option shows: a code alone; half precision shows as the wire's type.
pub fn text(config: &TrainConfig) -> String {
    let compression = config.gradient_compression;
    if compression.is_none() { String::new() } else { compression.to_string() }
}

/// Takes what was typed, after `--wire` and `--backend`.
pub fn set(config: &mut TrainConfig, text: &str) -> anyhow::Result<()> {
    let wire = match text {
        "fp16" => Wire::Fp16,
        "bf16" => Wire::Bf16,
        _ => {
            config.gradient_compression = text.parse()?;
            let is_wire_s = text == "none" && config.exchange.wire != Wire::Fp32;
            ensure!(!is_wire_s, "contradicts --wire {}: give one of them", config.exchange.wire);
            return Ok(());
        }
    };
    let typed = config.exchange.wire;
    ensure!(typed == Wire::Fp32 || typed == wire, "contradicts --wire {typed}: give one of them");
    ensure!(
        config.exchange.backend != BackendChoice::None,
        "compresses what is exchanged, and --backend none exchanges nothing: leave one of them out"
    );
    config.exchange.wire = wire;
    config.gradient_compression = GradientCompression::None;
    Ok(())
}

impl TrainConfig {
    /// In what form gradients go: the wire's type, or the code.
    pub fn wire_text(&self) -> String {
        if self.gradient_compression.is_none() {
            self.exchange.wire.to_string()
        } else {
            self.gradient_compression.to_string()
        }
    }

    /// The same ranks without any exchange: the baseline of what it costs.
    pub fn without_exchange(&self) -> TrainConfig {
        TrainConfig {
            exchange: ExchangeConfig { backend: BackendChoice::None, hierarchical: None, ..self.exchange },
            gradient_compression: GradientCompression::None,
            kv_store: KvStoreConfig::default(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_the_wire_s_and_contradictions_are_refused() {
        let with = |wire: Wire, backend: BackendChoice, text: &str| {
            let exchange = ExchangeConfig { wire, backend, ..ExchangeConfig::default() };
            let mut config = TrainConfig { exchange, ..TrainConfig::default() };
            set(&mut config, text).and_then(|()| check(&config)).map(|()| config)
        };
        let auto = BackendChoice::Auto;
        let half = with(Wire::Fp32, auto, "fp16").expect("half precision");
        assert_eq!((half.exchange.wire, half.gradient_compression), (Wire::Fp16, GradientCompression::None));
        assert_eq!((text(&half), half.wire_text()), (String::new(), "fp16".to_owned()));
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
        assert!(check(TrainConfig { device: DeviceChoice::Cuda, ..coded }).contains("--device is cuda"));
    }
}
