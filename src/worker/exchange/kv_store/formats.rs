//! Formats of workers' pushes and servers' answers.

use anyhow::Result;
use ringmark_core::benchmark::compression::GradientCompression;
use tch::Kind;

use crate::exchange::compression::Codec;
use crate::exchange::compression::packed_sums::PackedSums;
use crate::exchange::request::ExchangeRequest;
use crate::ffi::memory::element::Element;
use crate::ffi::torch::host_array::HostArray;

#[derive(Debug, Clone, Copy)]
pub enum PushFormat {
    /// All values, in this type.
    Values(Kind),
    /// One code for each part.
    Codes(Codec),
}

impl PushFormat {
    /// Returns the format for `request`. Codes whose sums are the answer count thresholds, regardless of the
    /// threshold's value.
    pub fn new(request: &ExchangeRequest, answer: AnswerFormat) -> PushFormat {
        match (Codec::new(request.compression), answer) {
            (None, _) => PushFormat::Values(Element::from(request.exchange.wire).kind()),
            (Some(codec), AnswerFormat::Weights) => PushFormat::Codes(codec),
            (Some(codec), AnswerFormat::Sums(_)) => PushFormat::Codes(codec.counting()),
        }
    }

    pub fn allocate(&self, gradients: usize) -> Result<HostArray> {
        match self {
            PushFormat::Values(wire) => HostArray::zeros(gradients, *wire),
            PushFormat::Codes(codec) => HostArray::zeros(codec.code_bytes(gradients) / size_of::<f32>(), Kind::Float),
        }
    }

    pub fn bytes(&self, gradients: usize) -> usize {
        match self {
            PushFormat::Values(wire) => gradients * wire.elt_size_in_bytes(),
            PushFormat::Codes(codec) => codec.code_bytes(gradients),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum AnswerFormat {
    /// The weights after the update, fp32.
    Weights,
    /// The packed sum of the codes; every worker runs the update.
    Sums(PackedSums),
}

impl AnswerFormat {
    pub fn new(request: &ExchangeRequest, pushers: usize) -> AnswerFormat {
        match request.compression {
            GradientCompression::TwoBit { threshold } if request.strategy.sends_sums(request.compression) => {
                AnswerFormat::Sums(PackedSums::new(threshold, pushers as u32))
            }
            _ => AnswerFormat::Weights,
        }
    }

    pub fn holds_weights(&self) -> bool {
        matches!(self, AnswerFormat::Weights)
    }

    /// Returns the size of an answer of `values` values in bytes.
    pub fn bytes(&self, values: usize) -> usize {
        match self {
            AnswerFormat::Weights => values * size_of::<f32>(),
            AnswerFormat::Sums(sums) => sums.bytes(values),
        }
    }
}

/// Formats in both directions, and the state that servers need for them.
#[derive(Debug, Clone, Copy)]
pub struct Formats {
    pub push: PushFormat,
    pub answer: AnswerFormat,
    /// Names of the optimizer's states; empty if workers update.
    pub states: &'static [&'static str],
}

impl Formats {
    pub fn new(request: &ExchangeRequest, pushers: usize) -> Formats {
        let answer = AnswerFormat::new(request, pushers);
        let states = if answer.holds_weights() { request.rule.state_names() } else { &[] };
        Formats { push: PushFormat::new(request, answer), answer, states }
    }

    /// Returns the names of the arrays that a server holds in addition to the pushes.
    pub fn state_names(&self) -> String {
        match self.answer {
            AnswerFormat::Weights => [&["weights"], self.states, &["sums"]].concat().join(", ").replace('_', " "),
            AnswerFormat::Sums(_) => "sums, packed sums".to_owned(),
        }
    }
}
