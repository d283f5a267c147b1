//! Spans: named intervals of time on a rank.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::dimension::Bytes;
use crate::keyword_enum;
use crate::trace::clock::RankClock;

/// Name of an exchange that its caller waits for, which contains other spans.
pub const EXCHANGE_OF_CALLER: &str = "exchange";

/// Name of a wait of the computation for the weights of a bucket.
pub const WAIT_FOR_WEIGHTS: &str = "wait for weights";

/// Row in which a span is drawn; spans of one lane follow or contain each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Phases of the step.
    Step,
    /// Compute stream: layers, forward and backward, copies of their gradients, and waits for their sums.
    Layers,
    /// Exchange stream, which sums gradients.
    Exchange,
    /// Messages between hosts that do not belong to a bucket.
    BetweenHosts,
    /// A bucket, from its last gradient to its sum.
    Bucket(u32),
    /// Thread that sends to a server of the kv-store, by the server's number.
    Push(u32),
    /// Thread that receives from a server of the kv-store, by the server's number.
    Pull(u32),
    /// Thread that reads and decodes images.
    Decode(u32),
    /// Operators of libtorch on a thread of the host.
    Operators(u32),
    /// Kernels and copies on a stream of the GPU.
    Kernels(u32),
}

impl Lane {
    /// Returns the name for users.
    pub fn title(self) -> String {
        match self {
            Lane::Step => "step".to_owned(),
            Lane::Layers => "layers".to_owned(),
            Lane::Exchange => "exchange".to_owned(),
            Lane::BetweenHosts => "between hosts".to_owned(),
            Lane::Bucket(number) => format!("bucket {number}"),
            Lane::Push(server) => format!("push to server {server}"),
            Lane::Pull(server) => format!("pull from server {server}"),
            Lane::Decode(thread) => format!("decode thread {thread}"),
            Lane::Operators(thread) => format!("operators of thread {thread}"),
            Lane::Kernels(stream) => format!("kernels of stream {stream}"),
        }
    }

    /// Returns the position among a rank's lanes, from the top: less than [`Lane::COUNT`].
    pub fn order(self) -> u32 {
        match self {
            Lane::Step => 0,
            Lane::Layers => 1,
            Lane::Exchange => 2,
            Lane::BetweenHosts => 3,
            Lane::Operators(thread) => 4 + thread % 3,
            Lane::Kernels(stream) => 7 + stream % 3,
            Lane::Bucket(number) => 10 + number % 7990,
            Lane::Push(server) => 8000 + 2 * (server % 500),
            Lane::Pull(server) => 8001 + 2 * (server % 500),
            Lane::Decode(thread) => 9000 + thread % 1000,
        }
    }

    /// Number of positions of a rank's lanes.
    pub const COUNT: u32 = 10_000;

    /// Parses a [`title`](Self::title).
    pub fn from_title(title: &str) -> Option<Lane> {
        match title {
            "step" => Some(Lane::Step),
            "layers" => Some(Lane::Layers),
            "exchange" => Some(Lane::Exchange),
            "between hosts" => Some(Lane::BetweenHosts),
            _ => {
                let (kind, number) = title.rsplit_once(' ')?;
                let number = number.parse().ok()?;
                match kind {
                    "bucket" => Some(Lane::Bucket(number)),
                    "push to server" => Some(Lane::Push(number)),
                    "pull from server" => Some(Lane::Pull(number)),
                    "decode thread" => Some(Lane::Decode(number)),
                    "operators of thread" => Some(Lane::Operators(number)),
                    "kernels of stream" => Some(Lane::Kernels(number)),
                    _ => None,
                }
            }
        }
    }
}

keyword_enum!(
    /// Function of a layer.
    LayerKind {
        /// Convolution, including the operations folded into it.
        Convolution = "convolution",
        /// Batch normalization, including the sum and the ReLU after it.
        BatchNorm = "batch-norm",
        /// Normalization of features, or over neighboring channels.
        Norm = "norm",
        /// Matrix product with a weight.
        Linear = "linear",
        /// Attention between tokens.
        Attention = "attention",
        /// Pooling of neighboring pixels.
        Pool = "pool",
        /// Activation function that is not part of another layer.
        Activation = "activation",
        /// Anything else: dropout, copies, sums.
        Other = "other",
    }
);

keyword_enum!(
    /// Direction in which a layer is computed.
    Direction {
        /// Forward pass, from the images to the loss.
        Forward = "forward",
        /// Backward pass, from the loss.
        Backward = "backward",
    }
);

/// A pass through a layer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct LayerPass {
    /// Index among the layers of a forward pass.
    pub layer: u32,
    pub kind: LayerKind,
    pub direction: Direction,
    pub multiply_adds: u64,
    /// Minimum of bytes read and written, each once. Forward: input, weight and output. Backward: gradient of the
    /// output, input and gradient of the weight; if the input has a gradient, also that gradient and the weight.
    pub bytes: Bytes,
}

/// A named interval of time on a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Lane in which it is drawn.
    pub lane: Lane,
    /// Name, such as `forward`, `layer1.0.conv1` or `all-reduce`.
    pub name: String,
    /// Iteration of the run, from 1.
    pub iteration: u32,
    /// Start in nanoseconds of the rank's clock.
    pub begin_ns: i64,
    /// Length in nanoseconds.
    pub length_ns: i64,
    /// Pass through a layer, if the span is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<LayerPass>,
    /// Bucket, if the span belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<u32>,
}

impl Span {
    /// Returns the end in nanoseconds of the rank's clock.
    pub fn end_ns(&self) -> i64 {
        self.begin_ns + self.length_ns
    }

    /// Returns true for a wait; its name says for what: `wait for weights`.
    pub fn is_wait(&self) -> bool {
        self.name.starts_with("wait for ")
    }
}

/// Returns the time of each iteration, from the start of its first phase to the end of its last.
pub fn iteration_ranges(spans: &[Span]) -> BTreeMap<u32, Range<i64>> {
    let mut ranges: BTreeMap<u32, Range<i64>> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.lane == Lane::Step) {
        let range = ranges.entry(span.iteration).or_insert(span.begin_ns..span.end_ns());
        *range = span.begin_ns.min(range.start)..span.end_ns().max(range.end);
    }
    ranges
}

/// Time at which the gradient of an array was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradientReady {
    /// Iteration of the run, from 1.
    pub iteration: u32,
    /// Number of the array, in backward order.
    pub array: u32,
    /// Time in nanoseconds of the rank's clock.
    pub at_ns: i64,
}

/// Trace of one rank; spans and gradients are in no particular order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "field names are self-explanatory")]
pub struct RankTrace {
    pub rank: u32,
    pub host: String,
    pub clock: RankClock,
    pub spans: Vec<Span>,
    pub gradients: Vec<GradientReady>,
}
