//! A layer tells of its passes: when forward went through it, what it computed, and which nodes of backward are its own.

use anyhow::Result;
use ringmark_record::dimension::units::Bytes;
use ringmark_record::trace::span::LayerKind;
use tch::Tensor;

use crate::ffi::nodes;
use crate::measure::trace::recorder::{self, MarkedLayer};

/// What a layer is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerLabel {
    /// As its tensors are, or what it does where it has none.
    pub name: String,
    /// What it does.
    pub kind: LayerKind,
}

impl LayerLabel {
    /// Of both.
    pub fn new(kind: LayerKind, name: &str) -> LayerLabel {
        LayerLabel { name: name.to_owned(), kind }
    }
}

/// What a layer computes with, from which its work follows.
#[derive(Debug, Clone, Copy)]
pub struct LayerWork<'a> {
    /// What goes in.
    pub input: &'a Tensor,
    /// What it is multiplied by, where it is.
    pub weight: Option<&'a Tensor>,
    /// Multiplications, each with its addition, for a number of the output.
    pub multiply_adds_a_value: u64,
}

impl<'a> LayerWork<'a> {
    /// Of a layer that multiplies by no matrix.
    pub fn without_product(input: &'a Tensor) -> LayerWork<'a> {
        LayerWork { input, weight: None, multiply_adds_a_value: 0 }
    }

    /// Of one that does, by so many of its numbers for each number of the output.
    pub fn product(input: &'a Tensor, weight: &'a Tensor, multiply_adds_a_value: i64) -> LayerWork<'a> {
        LayerWork { input, weight: Some(weight), multiply_adds_a_value: multiply_adds_a_value as u64 }
    }
}

/// `body`, a layer's forward pass, which is kept where the iteration is traced.
pub fn pass(label: &LayerLabel, work: LayerWork, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    let Some(begin) = recorder::mark() else { return body() };
    let first = nodes::next_node();
    let output = body()?;
    let Some(end) = recorder::mark() else { return Ok(output) };
    let bytes = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
    let weight = work.weight.map_or(0, bytes);
    recorder::take_layer(MarkedLayer {
        number: 0,
        name: label.name.clone(),
        kind: label.kind,
        iteration: 0,
        nodes: first..nodes::next_node(),
        multiply_adds: output.numel() as u64 * work.multiply_adds_a_value,
        bytes: Bytes(bytes(work.input) + weight + bytes(&output)),
        has_input_gradient: work.input.requires_grad(),
        begin,
        end,
    });
    Ok(output)
}

/// The same of a layer without a weight.
pub fn pass_plain(
    kind: LayerKind,
    name: &'static str,
    input: &Tensor,
    body: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    if !recorder::is_on() {
        return body();
    }
    pass(&LayerLabel::new(kind, name), LayerWork::without_product(input), body)
}
