//! A span: something of a rank that began and ended.

use serde::{Deserialize, Serialize};

use crate::dimension::Bytes;
use crate::keyword_enum;
use crate::trace::clock::RankClock;

/// What a sum is called that its caller waits for, which has other spans inside it.
pub const EXCHANGE_OF_CALLER: &str = "exchange";

/// Where a span is drawn: spans of one lane lie behind or inside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The phases of the step.
    Step,
    /// Layers, forward and backward, what copies their gradients, and what waits for their sums: the compute stream.
    Layers,
    /// What sums gradients: the stream of the exchange.
    Exchange,
    /// Messages between hosts that are of no bucket.
    BetweenHosts,
    /// A bucket, from its last gradient to its sum.
    Bucket(u32),
    /// The thread that sends to a server of the kv-store, by the server's number.
    Push(u32),
    /// The thread that receives from it.
    Pull(u32),
    /// A thread that reads and decodes images.
    Decode(u32),
}

impl Lane {
    /// As people read it.
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
        }
    }

    /// Its number among a rank's lanes, from the top: below [`Lane::COUNT`].
    pub fn order(self) -> u32 {
        match self {
            Lane::Step => 0,
            Lane::Layers => 1,
            Lane::Exchange => 2,
            Lane::BetweenHosts => 3,
            Lane::Bucket(number) => 10 + number % 7990,
            Lane::Push(server) => 8000 + 2 * (server % 500),
            Lane::Pull(server) => 8001 + 2 * (server % 500),
            Lane::Decode(thread) => 9000 + thread % 1000,
        }
    }

    /// Numbers that a rank's lanes may have.
    pub const COUNT: u32 = 10_000;

    /// The lane of this title.
    pub fn of_title(title: &str) -> Option<Lane> {
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
                    _ => None,
                }
            }
        }
    }
}

keyword_enum!(
    /// What a layer does.
    LayerKind {
        /// A convolution, with what is folded into it.
        Convolution = "convolution",
        /// Batch normalization, with the sum and the ReLU behind it.
        BatchNorm = "batch-norm",
        /// Normalization of features, or over neighbouring channels.
        Norm = "norm",
        /// A product with a weight.
        Linear = "linear",
        /// Tokens look at each other.
        Attention = "attention",
        /// Pooling.
        Pool = "pool",
        /// An activation function alone.
        Activation = "activation",
        /// Dropout, copies, sums: what else the network does.
        Other = "other",
    }
);

keyword_enum!(
    /// Which way a layer is passed.
    Direction {
        /// From the images.
        Forward = "forward",
        /// From the loss.
        Backward = "backward",
    }
);

/// A layer's pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LayerPass {
    /// Its place among the layers of a forward pass.
    pub layer: u32,
    /// What it does.
    pub kind: LayerKind,
    /// Which way.
    pub direction: Direction,
    /// Multiplications with their additions.
    pub multiply_adds: u64,
    /// Read and written at least, each once: forward its input and weight, and its output; backward the output's gradient,
    /// the input and the weight's gradient, and where the input has a gradient that and the weight.
    pub bytes: Bytes,
}

/// Something that began and ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Where it is drawn.
    pub lane: Lane,
    /// `forward`, `layer1.0.conv1`, `all-reduce`.
    pub name: String,
    /// Of the run, from 1.
    pub iteration: u32,
    /// In nanoseconds of the rank's clock.
    pub begin_ns: i64,
    /// In nanoseconds.
    pub length_ns: i64,
    /// Of a layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<LayerPass>,
    /// Of a bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<u32>,
}

impl Span {
    /// In nanoseconds of the rank's clock.
    pub fn end_ns(&self) -> i64 {
        self.begin_ns + self.length_ns
    }
}

/// When the gradient of an array was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GradientReady {
    /// Of the run, from 1.
    pub iteration: u32,
    /// Number of the array in the order of backward.
    pub array: u32,
    /// In nanoseconds of the rank's clock.
    pub at_ns: i64,
}

/// What was traced of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankTrace {
    /// Which one.
    pub rank: u32,
    /// Where it is.
    pub host: String,
    /// Its clock.
    pub clock: RankClock,
    /// In no order.
    pub spans: Vec<Span>,
    /// In no order.
    pub gradients: Vec<GradientReady>,
}
