//! Parsing, display and checks of the option `--gradient-compression`. Half precision is a property of the wire type
//! (`--wire`), for which this option is only an alias.

use anyhow::{bail, ensure};

use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::{BackendChoice, ExchangeConfig};
use crate::dimension::{DeviceChoice, Strategy, Wire};

impl GradientCompression {
    /// Rejects options that are incompatible with a code; the error names both options.
    pub fn check(self, exchange: &ExchangeConfig, strategy: Strategy, device: DeviceChoice) -> anyhow::Result<()> {
        if self.is_none() {
            return Ok(());
        }
        let ExchangeConfig { backend, wire, .. } = exchange;
        ensure!(
            *backend != BackendChoice::None,
            "--gradient-compression {self} conflicts with --backend none, which exchanges nothing: use only one of them"
        );
        if let Some(why) = no_codes(strategy) {
            bail!(
                "--gradient-compression {self} is not supported with --strategy {strategy} ({why}): use \
                 --gradient-compression fp16 or bf16, or --strategy all-reduce or dist_sync"
            );
        }
        ensure!(
            *wire == Wire::Fp32,
            "--gradient-compression {self} conflicts with --wire {wire}, because codes have their own format: omit \
             --wire"
        );
        ensure!(
            device != DeviceChoice::Cuda || strategy.has_servers(),
            "--gradient-compression {self} runs in host memory: with --device cuda use --strategy dist_sync or \
             dist_async, or --gradient-compression fp16 or bf16"
        );
        Ok(())
    }

    /// Returns the value to display: a code only, because half precision is displayed as the wire type.
    pub fn display_text(self) -> String {
        if self.is_none() { String::new() } else { self.to_string() }
    }

    /// Returns the form in which gradients are exchanged: the code, or the wire type.
    pub fn form(self, wire: Wire) -> String {
        if self.is_none() { wire.to_string() } else { self.to_string() }
    }

    /// Formats the code and the type of the sums, `2bit:0.5, added in fp32`; without a code as [`Wire::with_sum`].
    pub fn with_sum(self, wire: Wire, sum_dtype: Option<Wire>) -> String {
        match sum_dtype {
            Some(sum_dtype) if !self.is_none() => format!("{self}, added in {sum_dtype}"),
            _ => wire.with_sum(sum_dtype),
        }
    }

    /// Parses the option's value; `--wire` and `--backend` must be parsed before.
    pub fn set(&mut self, exchange: &mut ExchangeConfig, text: &str) -> anyhow::Result<()> {
        let wire = match text {
            "fp16" => Wire::Fp16,
            "bf16" => Wire::Bf16,
            _ => {
                *self = text.parse()?;
                let is_wire_s = text == "none" && exchange.wire != Wire::Fp32;
                ensure!(!is_wire_s, "conflicts with --wire {}: use only one of them", exchange.wire);
                return Ok(());
            }
        };
        let typed = exchange.wire;
        ensure!(typed == Wire::Fp32 || typed == wire, "conflicts with --wire {typed}: use only one of them");
        ensure!(
            exchange.backend != BackendChoice::None,
            "conflicts with --backend none, which exchanges nothing: use only one of them"
        );
        exchange.wire = wire;
        *self = GradientCompression::None;
        Ok(())
    }
}

/// Returns the reason a strategy does not support codes; `None` if it does.
fn no_codes(strategy: Strategy) -> Option<&'static str> {
    match strategy {
        Strategy::Local => Some("MXNet ignores the compression and sends values"),
        Strategy::Nccl => Some("NCCL cannot add codes, and MXNet rejects them"),
        Strategy::Device | Strategy::Zero1 | Strategy::Zero2 | Strategy::Fsdp | Strategy::Hsdp => {
            Some("owners receive sums, and codes cannot be added")
        }
        Strategy::AllReduce
        | Strategy::DistSync
        | Strategy::DistDeviceSync
        | Strategy::DistAsync
        | Strategy::DistDeviceAsync => None,
    }
}
