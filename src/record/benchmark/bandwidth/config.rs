//! What one bandwidth run is asked to do, with every default. [`options`](super::options) has names, ranges and help.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::ExchangeConfig;
use crate::benchmark::kv_store::KvStoreConfig;
use crate::dimension::device::{DeviceChoice, DeviceKind};
use crate::dimension::model::Model;
use crate::dimension::operation::{Operands, Operation, Reduction};
use crate::dimension::units::{Bytes, GigabytesPerSecond};
use crate::keyword_enum;
use crate::trace::config::TraceConfig;

keyword_enum!(
    /// What becomes of the sums of a network's gradients inside the measured time.
    OptimizerChoice {
        /// Nothing: every rank gets them.
        None = "none",
        /// Where the kv-store updates weights, `w -= 0.01 x sum`, as MXNet's measure.py creates it.
        Sgd = "sgd",
    }
);

keyword_enum!(
    /// Of which arrays of a network the gradients are exchanged.
    Arrays {
        /// Those that MXNet's measure.py counts: weights and biases of convolutions and linear layers.
        Weights = "weights",
        /// Every trained one, as training does.
        All = "all",
    }
);

impl Arrays {
    /// What records said before there was a choice.
    fn all() -> Arrays {
        Arrays::All
    }
}

/// More sizes than anybody reads.
pub(super) const MAXIMUM_SIZES: u64 = 10_000;

/// How one message size follows from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Growth {
    /// Times this.
    Factor(u64),
    /// Plus this.
    Increment(Bytes),
}

/// What is exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Messages {
    /// Arrays of growing size, each out of place and in place, as nccl-tests has them.
    Sizes {
        /// First size.
        begin: Bytes,
        /// Last size, where the steps meet it.
        end: Bytes,
        /// Step.
        growth: Growth,
    },
    /// The gradients of a network, in buckets.
    Gradients(Model),
}

/// One bandwidth run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BandwidthConfig {
    /// What the ranks do with it; older records have an all-reduce and do not say so.
    #[serde(default)]
    pub operation: Operation,
    /// How values come together where they are reduced.
    #[serde(default)]
    pub reduction: Reduction,
    /// Rank that is the root of a reduce or a broadcast.
    #[serde(default)]
    pub root: u32,
    /// What is exchanged.
    pub messages: Messages,
    /// Of which arrays, where they are gradients.
    #[serde(default = "Arrays::all")]
    pub arrays: Arrays,
    /// Where.
    pub device: DeviceChoice,
    /// CPU threads of a rank, for the optimizer; `None` divides the host's cores among its ranks.
    pub threads: Option<u32>,
    /// How.
    #[serde(flatten)]
    pub exchange: ExchangeConfig,
    /// Where a network's gradients are summed and weights updated.
    #[serde(flatten)]
    pub kv_store: KvStoreConfig,
    /// The code that a network's gradients are exchanged by.
    #[serde(default, skip_serializing_if = "GradientCompression::is_none")]
    pub gradient_compression: GradientCompression,
    /// Measured iterations of each size.
    pub iterations: u32,
    /// Iterations before them that no figure holds.
    pub warmup: u32,
    /// Whether every rank checks every result.
    pub check: bool,
    /// What becomes of the sums of a network's gradients inside the measured time.
    pub optimizer: OptimizerChoice,
    /// Where rank 0 writes every sample.
    pub json: Option<PathBuf>,
    /// Least average bus bandwidth; the run fails below it.
    pub min_busbw: Option<GigabytesPerSecond>,
    /// What is traced.
    #[serde(default, skip_serializing_if = "TraceConfig::is_default")]
    pub trace: TraceConfig,
}

impl Default for BandwidthConfig {
    fn default() -> BandwidthConfig {
        BandwidthConfig {
            operation: Operation::AllReduce,
            reduction: Reduction::Sum,
            root: 0,
            messages: Messages::Sizes { begin: Bytes(8), end: Bytes(128 << 20), growth: Growth::Factor(2) },
            arrays: Arrays::Weights,
            device: DeviceChoice::Auto,
            threads: None,
            exchange: ExchangeConfig::default(),
            kv_store: KvStoreConfig::default(),
            gradient_compression: GradientCompression::None,
            iterations: 20,
            warmup: 5,
            check: true,
            optimizer: OptimizerChoice::None,
            json: None,
            min_busbw: None,
            trace: TraceConfig::default(),
        }
    }
}

impl BandwidthConfig {
    /// With what its choices come to on `device`.
    pub fn on(&self, device: DeviceKind) -> BandwidthConfig {
        BandwidthConfig { exchange: self.exchange.on(device, self.kv_store.kv_store), ..self.clone() }
    }

    /// Every message size in turn; none for gradients.
    ///
    /// 8 to 64 by a factor of 2 is 8, 16, 32, 64.
    pub fn sizes(&self) -> Vec<Bytes> {
        let Messages::Sizes { begin, end, growth } = self.messages else {
            return Vec::new();
        };
        let next = |size: &Bytes| match growth {
            Growth::Factor(factor) => size.0.checked_mul(factor).map(Bytes),
            Growth::Increment(increment) => size.0.checked_add(increment.0).map(Bytes),
        };
        std::iter::successors(Some(begin), next).take_while(|size| size.0 <= end.0).collect()
    }

    /// What so many ranks exchange at each size, by nccl-tests' rule: where every rank has a part the parts are of one length
    /// and a multiple of 16 bytes, and the array is what they come to. A size that makes no other array than the one before
    /// is left out, and so is one that has no such part.
    ///
    /// All-gather of 8, 32 and 100 bytes of fp32 among 3 ranks: 96 bytes, 8 elements a rank.
    pub fn arrays_among(&self, ranks: u32) -> Vec<ArraySize> {
        const PART_BYTES: u64 = 16;
        let element = self.exchange.wire.bytes();
        let size = |size: Bytes| {
            let elements = size.0 / element;
            match self.operation.is_divided() {
                false => ArraySize { bytes: Bytes(elements * element), count: elements, elements },
                true => {
                    let grain = PART_BYTES / element;
                    let count = elements / u64::from(ranks) / grain * grain;
                    let elements = count * u64::from(ranks);
                    ArraySize { bytes: Bytes(elements * element), count, elements }
                }
            }
        };
        let mut sizes: Vec<ArraySize> = self.sizes().into_iter().map(size).filter(|size| size.count > 0).collect();
        sizes.dedup();
        sizes
    }

    /// One for each of `operations`. What only some of them have, a reduction or a root, the others are not given, where any
    /// of them has it.
    pub fn of_operations(&self, operations: &[Operation]) -> Vec<BandwidthConfig> {
        let any = |has: fn(Operation) -> bool| operations.iter().any(|operation| has(*operation));
        let (any_reduces, any_has_root) = (any(Operation::reduces), any(Operation::has_root));
        let of = |operation: &Operation| BandwidthConfig {
            operation: *operation,
            reduction: if any_reduces && !operation.reduces() { Reduction::default() } else { self.reduction },
            root: if any_has_root && !operation.has_root() { 0 } else { self.root },
            ..self.clone()
        };
        operations.iter().map(of).collect()
    }

    /// What the table says of the operation.
    pub fn operands(&self) -> Operands {
        Operands { operation: self.operation, reduction: self.reduction, root: self.root }
    }
}

/// One size of an operation's array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArraySize {
    /// All ranks' parts together.
    pub bytes: Bytes,
    /// Elements of one rank's part; of the array where there are no parts.
    pub count: u64,
    /// Elements of the array.
    pub elements: u64,
}

/// A size as nccl-tests takes it: bytes, or with K, M or G in steps of 1024.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TypedSize(pub Bytes);

impl FromStr for TypedSize {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<TypedSize> {
        let explain =
            || format!("{text:?} is no size: write bytes, or K, M, G (steps of 1024) behind a number, as 64K");
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" | "B" => 0,
            "K" | "k" | "KB" | "KiB" => 10,
            "M" | "m" | "MB" | "MiB" => 20,
            "G" | "g" | "GB" | "GiB" => 30,
            _ => bail!(explain()),
        };
        let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite()).with_context(explain)?;
        ensure!(number >= 0.0 && number < (1u64 << 40) as f64, explain());
        Ok(TypedSize(Bytes((number * f64::from(1u32 << shift)) as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::exchange::Wire;

    fn sizes(begin: u64, end: u64, growth: Growth) -> BandwidthConfig {
        let messages = Messages::Sizes { begin: Bytes(begin), end: Bytes(end), growth };
        BandwidthConfig { messages, ..BandwidthConfig::default() }
    }

    #[test]
    fn sizes_grow_to_the_end() {
        let config = sizes(8, 70, Growth::Factor(2));
        assert_eq!(config.sizes(), [8, 16, 32, 64].map(Bytes));
        let config = sizes(100, 300, Growth::Increment(Bytes(100)));
        assert_eq!(config.sizes(), [100, 200, 300].map(Bytes));
    }

    #[test]
    fn parts_are_nccl_tests_own() {
        let arrays = |operation, begin, end, ranks| {
            let config = BandwidthConfig { operation, ..sizes(begin, end, Growth::Factor(2)) };
            let arrays = config.arrays_among(ranks).into_iter();
            arrays.map(|size| (size.bytes.0, size.count, size.elements)).collect::<Vec<_>>()
        };
        // Three parts of 16 bytes need 48: of 64 bytes, and 128 has three of 32.
        assert_eq!(arrays(Operation::AllGather, 8, 128, 3), [(48, 4, 12), (96, 8, 24)]);
        assert_eq!(arrays(Operation::AllReduce, 8, 16, 3), [(8, 2, 2), (16, 4, 4)]);
        assert_eq!(arrays(Operation::Sendrecv, 6, 6, 3), [(4, 1, 1)]);
        let of_halves = BandwidthConfig {
            exchange: ExchangeConfig { wire: Wire::Bf16, ..ExchangeConfig::default() },
            operation: Operation::Alltoall,
            ..sizes(100, 116, Growth::Increment(Bytes(8)))
        };
        let one = ArraySize { bytes: Bytes(96), count: 16, elements: 48 };
        assert_eq!(of_halves.arrays_among(3), [one], "the same array once");
    }

    #[test]
    fn operations_get_what_they_have() {
        let asked = BandwidthConfig { reduction: Reduction::Max, root: 1, ..BandwidthConfig::default() };
        let all = [Operation::AllReduce, Operation::Reduce, Operation::AllGather];
        let given: Vec<_> = asked.of_operations(&all).iter().map(|config| (config.reduction, config.root)).collect();
        assert_eq!(given, [(Reduction::Max, 0), (Reduction::Max, 1), (Reduction::Sum, 0)]);
        let alone = &asked.of_operations(&[Operation::AllGather])[0];
        assert_eq!((alone.reduction, alone.root), (Reduction::Max, 1), "to be refused in words");
    }

    #[test]
    fn typed_sizes_are_nccl_tests_own() {
        for (text, bytes) in [("8", 8), ("64K", 65_536), ("1M", 1 << 20), ("1G", 1 << 30), ("0.5k", 512)] {
            assert_eq!(text.parse::<TypedSize>().expect(text).0, Bytes(bytes));
        }
        for text in ["", "x", "8T", "-1", "1e400", "inf", "NaN"] {
            let error = text.parse::<TypedSize>().expect_err(text).to_string();
            assert!(error.contains("is no size"), "{error}");
        }
    }
}
