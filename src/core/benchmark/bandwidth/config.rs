//! Options of a bandwidth run, each with its default. The short ones are nccl-tests'.

use std::path::PathBuf;

use anyhow::bail;

use crate::benchmark::bandwidth::messages::Growth;
pub use crate::benchmark::bandwidth::messages::Messages;
use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::ExchangeConfig;
use crate::benchmark::kv_store::KvStoreConfig;
use crate::dimension::{Bytes, DeviceChoice, DeviceKind, GigabytesPerSecond, Operands, Operation, Reduction};
use crate::options::option_table::{OptionSpec, OptionValue, Options};
use crate::trace::TraceConfig;
use crate::{config_options, keyword_enum};

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

config_options! {
    /// One bandwidth run.
    BandwidthConfig {
        /// What the ranks do with it; older records have an all-reduce and do not say so.
        #[serde(default)]
        operation: Operation = Operation::AllReduce => option("op", "NAME",
            "What the ranks do, as nccl-tests' programs are called").for_worker(),
        /// How values come together where they are reduced.
        #[serde(default)]
        reduction: Reduction = Reduction::Sum => option("redop", "NAME",
            "How values come together in an operation that reduces").short('o'),
        /// Rank that is the root of a reduce or a broadcast.
        #[serde(default)]
        root: u32 = 0 => option("root", "RANK", "Rank that a reduce or a broadcast has for its root")
            .short('r').range(0u32..=1_000_000),
        /// What is exchanged.
        messages: Messages = Messages::default() => group(Messages::options()),
        /// Of which arrays, where they are gradients.
        #[serde(default = "Arrays::all")]
        arrays: Arrays = Arrays::Weights => option("arrays", "NAME",
            "Which gradients of the network: weights, those that measure.py counts, or all, as training exchanges"),
        /// Where.
        device: DeviceChoice = DeviceChoice::Auto => option("device", "KIND",
            "Where to exchange; auto takes CUDA where all of it is there and says what is missing").order(1),
        /// CPU threads of a rank, for the optimizer; `None` divides the host's cores among its ranks.
        threads: Option<u32> = None => option("threads", "N", "CPU threads of a rank, for the optimizer")
            .range(1u32..=4096).default_is("the host's cores divided among its ranks").order(1),
        /// How.
        #[serde(flatten)]
        exchange: ExchangeConfig = ExchangeConfig::default() => group(exchange_options()).order(4),
        /// Where a network's gradients are summed and weights updated.
        #[serde(flatten)]
        kv_store: KvStoreConfig = KvStoreConfig::default() => group(kv_store_options()).order(4),
        /// The code that a network's gradients are exchanged by.
        #[serde(default, skip_serializing_if = "GradientCompression::is_none")]
        gradient_compression: GradientCompression = GradientCompression::None => each([OptionSpec::of(
            "gradient-compression", "CODE",
            "Form in which the gradients of --model are exchanged: none, fp16 or bf16 (as --wire), 2bit or 2bit:THRESHOLD \
             (measure.py's --gc-type), or topk:RATIO; the error is then what the code leaves out",
            |config: &Self| config.gradient_compression.shown(),
            |config: &mut Self, text| config.gradient_compression.set(&mut config.exchange, text),
        )]).default_is("none").order(4),
        /// Measured iterations of each size.
        iterations: u32 = 20 => option("iters", "N",
            "Measured iterations of each size, warm-up excluded, as nccl-tests' -n; in sweep --iters includes it")
            .range(1u32..=10_000_000).short('n'),
        /// Iterations before them that no figure holds.
        warmup: u32 = 5 => option("warmup", "N", "Iterations before them that no figure holds")
            .range(0u32..=10_000_000).short('w').aliases(&["warmup_iters"]),
        /// Whether every rank checks every result.
        check: bool = true => each([OptionSpec::of(
            "check", "0|1", "Check every result on every rank, 1, or none, 0",
            |config: &Self| u8::from(config.check).to_string(),
            BandwidthConfig::set_check,
        )]).short('c').aliases(&["test-results"]),
        /// What becomes of the sums of a network's gradients inside the measured time.
        optimizer: OptimizerChoice = OptimizerChoice::None => option("optimizer", "NAME",
            "What becomes of the gradients of --model: none, every rank gets their sum; sgd, measure.py's update of \
             weights"),
        /// Where rank 0 writes every sample.
        json: Option<PathBuf> = None => option("json", "FILE", "Where rank 0 writes every sample (JSON)")
            .for_worker().order(3),
        /// Least average bus bandwidth; the run fails below it.
        min_busbw: Option<GigabytesPerSecond> = None => option("min-busbw", "GB/S",
            "Fail, by exit status 1, where the average bus bandwidth is below this")
            .range(GigabytesPerSecond(0.0)..=GigabytesPerSecond(1e6)).order(2),
        /// What is traced.
        #[serde(default, skip_serializing_if = "TraceConfig::is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options_of_spans()).order(4),
    }
}

fn exchange_options() -> impl Iterator<Item = OptionSpec<ExchangeConfig>> {
    // Here it is the only type.
    let change = |option: OptionSpec<_>| option.aliases(&["datatype", "dtype"]).short('d');
    ExchangeConfig::options()
        .into_iter()
        .map(move |option| if option.name() == "wire" { change(option) } else { option })
}

fn kv_store_options() -> impl Iterator<Item = OptionSpec<KvStoreConfig>> {
    let change = |option: OptionSpec<_>| option.aliases(&["kvstore"]);
    KvStoreConfig::options()
        .into_iter()
        .map(move |option| if option.name() == "kv-store" { change(option) } else { option })
}

impl OptionValue for GigabytesPerSecond {
    fn text(&self) -> String {
        self.0.to_string()
    }

    fn parse(text: &str) -> anyhow::Result<GigabytesPerSecond> {
        f64::parse(text).map(GigabytesPerSecond)
    }
}

impl BandwidthConfig {
    fn set_check(&mut self, text: &str) -> anyhow::Result<()> {
        self.check = match text {
            "0" => false,
            "1" => true,
            _ => bail!("choose 0 or 1"),
        };
        Ok(())
    }

    /// With what its choices come to on `device`.
    pub fn on(&self, device: DeviceKind) -> BandwidthConfig {
        BandwidthConfig { exchange: self.exchange.on(device, self.kv_store.kv_store), ..self.clone() }
    }

    /// Every message size in turn; none for gradients.
    ///
    /// 8 to 64 by a factor of 2 is 8, 16, 32, 64.
    pub fn sizes(&self) -> Vec<Bytes> {
        let Some((begin, end, growth)) = self.messages.sizes() else { return Vec::new() };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::Wire;

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
        assert_eq!(arrays(Operation::SendReceive, 6, 6, 3), [(4, 1, 1)]);
        let of_halves = BandwidthConfig {
            exchange: ExchangeConfig { wire: Wire::Bf16, ..ExchangeConfig::default() },
            operation: Operation::AllToAll,
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
}
