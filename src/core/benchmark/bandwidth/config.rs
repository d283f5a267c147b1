//! Options of a bandwidth run, each with its default. The short options are those of nccl-tests.

use std::path::PathBuf;

use anyhow::bail;

use crate::benchmark::bandwidth::messages::Growth;
pub use crate::benchmark::bandwidth::messages::Messages;
use crate::benchmark::compression::GradientCompression;
use crate::benchmark::exchange::ExchangeConfig;
use crate::benchmark::optimizer::OptimizerChoice;
use crate::benchmark::strategy::StrategyConfig;
use crate::benchmark::{is_default, is_one, one, shared_options};
use crate::dimension::{Bytes, DeviceChoice, DeviceKind, GigabytesPerSecond, Operands, Operation, Reduction};
use crate::host::BindChoice;
use crate::options::option_table::OptionSpec;
use crate::options::value::OptionValue;
use crate::trace::TraceConfig;
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// Form of the lines of a network's gradients.
    #[derive(Default)]
    LineFormat {
        /// measure.py's lines without the logger's prefix.
        #[default]
        Plain = "plain",
        /// The whole output of MXNet's measure.py: `INFO:root:`, and the line of its options.
        Measure = "measure",
    }
);

keyword_enum!(
    /// Arrays of a network whose gradients are exchanged.
    #[derive(Default)]
    Arrays {
        /// Arrays that MXNet's measure.py counts: weights and biases of convolutions and linear layers.
        Weights = "weights",
        /// All trained arrays, as in training.
        // In records that predate the choice.
        #[default]
        All = "all",
    }
);

config_options! {
    /// One bandwidth run.
    BandwidthConfig {
        /// Collective operation. Older records do not contain it and use an all-reduce.
        #[serde(default)]
        operation: Operation = Operation::AllReduce => option("op", "NAME",
            "Operation to measure, by the names of nccl-tests' programs").for_worker(),
        /// Reduction operator.
        #[serde(default)]
        reduction: Reduction = Reduction::Sum => option("redop", "NAME",
            "Reduction operator").short('o'),
        /// Root rank of a reduce or a broadcast.
        #[serde(default)]
        root: u32 = 0 => option("root", "RANK", "Root rank of reduce and broadcast")
            .short('r').range(0u32..=1_000_000),
        /// True if every pair of ranks is measured alone, in both directions.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        pairs: bool = false => option("pairs", "",
            "With --op sendrecv: measure each pair of ranks separately, one direction at a time, at the smallest and \
             the largest size, and print the matrix").order(1),
        /// Messages to exchange.
        messages: Messages = Messages::default() => group(Messages::options()),
        /// Arrays whose gradients are exchanged, if the messages are those of a network.
        #[serde(default)]
        arrays: Arrays = Arrays::Weights => option("arrays", "NAME",
            "Gradient arrays to exchange: weights (as counted by measure.py) or all (as in training)"),
        /// Device of the exchanged arrays.
        device: DeviceChoice = DeviceChoice::Auto => shared(shared_options::device).order(1),
        /// CPU threads of a rank, for the optimizer; `None` divides the host's cores among its ranks.
        threads: Option<u32> = None => option("threads", "N", "CPU threads per rank, for the optimizer")
            .range(1u32..=4096).default_is("the host's physical cores divided among its ranks").order(1),
        /// Binding of ranks to processors. A record contains the resolved value; absent means none.
        #[serde(default, skip_serializing_if = "is_default")]
        bind: BindChoice = BindChoice::Auto => shared(shared_options::bind).order(1),
        /// Options of the exchange.
        #[serde(flatten)]
        exchange: ExchangeConfig = ExchangeConfig::default() => group(ExchangeConfig::options())
            .in_bandwidth().order(4),
        /// Strategy that sums a network's gradients and updates its weights.
        #[serde(flatten)]
        strategy: StrategyConfig = StrategyConfig::default() => group(StrategyConfig::options())
            .in_bandwidth().order(4),
        /// Compression of a network's gradients.
        #[serde(default, skip_serializing_if = "GradientCompression::is_none")]
        gradient_compression: GradientCompression = GradientCompression::None => each([OptionSpec::new(
            "gradient-compression", "CODE",
            "Compression of the gradients of --model: none, fp16 or bf16 (as --wire), 2bit or 2bit:THRESHOLD \
             (measure.py's --gc-type), or topk:RATIO; the reported error is then the compression error",
            |config: &Self| config.gradient_compression.display_text(),
            |config: &mut Self, text| config.gradient_compression.set(&mut config.exchange, text),
        )]).default_is("none").order(4).aliases(&["gc-type"]),
        /// Measured iterations of each size.
        iterations: u32 = 20 => option("iters", "N",
            "Measured iterations per size, excluding warm-up, like nccl-tests' -n; in sweep, --iters includes warm-up")
            .range(1u32..=10_000_000).short('n').aliases(&["num-batches"]),
        /// Warm-up iterations of each size, not measured.
        warmup: u32 = 5 => option("warmup", "N", "Warm-up iterations per size, not measured")
            .range(0u32..=10_000_000).short('w').aliases(&["warmup_iters"]),
        /// True if every rank checks every result.
        check: bool = true => each([OptionSpec::new(
            "check", "0|1", "Check every result on every rank (1) or none (0)",
            |config: &Self| u8::from(config.check).to_string(),
            BandwidthConfig::set_check,
        )]).short('c').aliases(&["test-results"]),
        /// Processing of a network's summed gradients inside the measured time.
        optimizer: OptimizerChoice = OptimizerChoice::None => option("optimizer", "NAME",
            "Weight update after the exchange of --model: none, or a rule with measure.py's constants (sgd, nag, adam) \
             or PyTorch's (adamw)"),
        /// Momentum of sgd and nag; `None` is the default of the rule.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        momentum: Option<f64> = None => option("momentum", "FACTOR", "Momentum of --optimizer sgd and nag")
            .range(0.0..=0.999_999).default_is("0 for sgd, 0.9 for nag"),
        /// Form of the printed lines of a network's gradients.
        #[serde(default, skip_serializing_if = "is_default")]
        format: LineFormat = LineFormat::Plain => option("format", "NAME",
            "Lines of --model: plain, or measure, which is the output of measure.py with INFO:root:").order(3),
        /// Iterations of a network's gradients per printed line.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        disp_batches: u32 = 1 => option("disp-batches", "N",
            "Iterations of --model averaged per printed line, like measure.py's --disp-batches")
            .range(1u32..=10_000_000).order(3),
        /// File for every sample (JSON), written by rank 0.
        json: Option<PathBuf> = None => option("json", "FILE", "File for all samples (JSON), written by rank 0")
            .for_worker().order(3),
        /// Minimum average bus bandwidth; the run fails below it.
        min_busbw: Option<GigabytesPerSecond> = None => option("min-busbw", "GB/S",
            "Fail if the average bus bandwidth of a case is below this")
            .range(GigabytesPerSecond(0.0)..=GigabytesPerSecond(1e6)).order(2),
        /// Trace options.
        #[serde(default, skip_serializing_if = "is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options_of_spans()).order(4),
    }
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

    /// Returns the momentum of the update; 0 without one.
    pub fn momentum(&self) -> f64 {
        self.momentum.unwrap_or(if self.optimizer == OptimizerChoice::Nag { 0.9 } else { 0.0 })
    }

    /// Returns the names of the arrays that an update leaves for the next one, each as long as the weights.
    pub fn state_names(&self) -> &'static [&'static str] {
        self.optimizer.chosen().map_or(&[], |rule| rule.state_names(self.momentum()))
    }

    /// Resolves automatic choices for `device`.
    pub fn on(&self, device: DeviceKind) -> BandwidthConfig {
        BandwidthConfig { exchange: self.exchange.on(device, self.strategy.strategy), ..self.clone() }
    }

    /// Returns the message sizes in order; empty for gradients.
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

    /// Returns the arrays that `ranks` ranks exchange at each size, following nccl-tests: if the operation divides the
    /// array among the ranks, all parts have the same length, a multiple of 16 bytes, and the array is their total.
    /// Sizes that repeat the previous array or leave no part are skipped.
    ///
    /// An all-gather of 8, 32 and 100 bytes of fp32 among 3 ranks yields 96 bytes, 8 elements per rank.
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
        if self.pairs && sizes.len() > 2 {
            sizes.drain(1..sizes.len() - 1);
        }
        sizes
    }

    /// Returns one configuration for each of `operations`. If some of them reduce (or have a root), the others get the
    /// default reduction (or root).
    pub fn for_operations(&self, operations: &[Operation]) -> Vec<BandwidthConfig> {
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

    /// Returns the operands that the table shows.
    pub fn operands(&self) -> Operands {
        Operands { operation: self.operation, reduction: self.reduction, root: self.root }
    }
}

/// Array of one message size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArraySize {
    /// Size of the array, all ranks' parts together.
    pub bytes: Bytes,
    /// Elements of one rank's part; of the array if it is not divided.
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
    fn sizes_grow_to_the_last_size() {
        let config = sizes(8, 70, Growth::Factor(2));
        assert_eq!(config.sizes(), [8, 16, 32, 64].map(Bytes));
        let config = sizes(100, 300, Growth::Increment(Bytes(100)));
        assert_eq!(config.sizes(), [100, 200, 300].map(Bytes));
    }

    #[test]
    fn parts_are_divided_as_in_nccl_tests() {
        let arrays = |operation, begin, end, ranks| {
            let config = BandwidthConfig { operation, ..sizes(begin, end, Growth::Factor(2)) };
            let arrays = config.arrays_among(ranks).into_iter();
            arrays.map(|size| (size.bytes.0, size.count, size.elements)).collect::<Vec<_>>()
        };
        // Three parts of 16 bytes need 48, which fits in 64; 128 bytes hold three parts of 32.
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
    fn operations_ignore_unsupported_reduction_and_root() {
        let requested = BandwidthConfig { reduction: Reduction::Max, root: 1, ..BandwidthConfig::default() };
        let all = [Operation::AllReduce, Operation::Reduce, Operation::AllGather];
        let given: Vec<_> =
            requested.for_operations(&all).iter().map(|config| (config.reduction, config.root)).collect();
        assert_eq!(given, [(Reduction::Max, 0), (Reduction::Max, 1), (Reduction::Sum, 0)]);
        let alone = &requested.for_operations(&[Operation::AllGather])[0];
        assert_eq!((alone.reduction, alone.root), (Reduction::Max, 1), "to be refused in words");
    }
}
