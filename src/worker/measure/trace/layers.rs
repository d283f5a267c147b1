//! Recording of layers: the time of forward, the work, and the autograd nodes of each layer.

use anyhow::Result;
use ringmark_core::dimension::Bytes;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::ffi::torch::nodes;
use crate::ffi::torch::norm::Fork;
use crate::measure::trace::recorder::{self, MarkedLayer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerLabel {
    /// Prefix of its tensors' names, or its operation if it has none.
    pub name: String,
    pub kind: LayerKind,
}

impl LayerLabel {
    pub fn new(kind: LayerKind, name: &str) -> LayerLabel {
        LayerLabel { name: name.to_owned(), kind }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct LayerWork<'a> {
    pub input: &'a Tensor,
    pub weight: Option<&'a Tensor>,
    /// Tensor added to the output in the same pass.
    pub added: Option<&'a Tensor>,
    /// Multiply-add operations for each value of the output.
    pub multiply_adds_per_value: u64,
}

impl<'a> LayerWork<'a> {
    pub fn without_product(input: &'a Tensor) -> LayerWork<'a> {
        LayerWork { input, weight: None, added: None, multiply_adds_per_value: 0 }
    }

    pub fn product(input: &'a Tensor, weight: &'a Tensor, multiply_adds_per_value: i64) -> LayerWork<'a> {
        let multiply_adds_per_value = multiply_adds_per_value as u64;
        LayerWork { input, weight: Some(weight), added: None, multiply_adds_per_value }
    }

    /// Adds the tensor that is added to the output.
    pub fn adding(self, added: Option<&'a Tensor>) -> LayerWork<'a> {
        LayerWork { added, ..self }
    }

    /// Returns the minimum number of bytes read and written in forward and in backward. A gradient is as large as its
    /// tensor; the gradient of `added` may share the output's.
    fn bytes(&self, output: &Tensor) -> (Bytes, Bytes) {
        let bytes = |tensor: &Tensor| (tensor.numel() * tensor.kind().elt_size_in_bytes()) as u64;
        let (input, weight, output) = (bytes(self.input), self.weight.map_or(0, bytes), bytes(output));
        let input_gradient = if self.input.requires_grad() { input + weight } else { 0 };
        (Bytes(input + weight + self.added.map_or(0, bytes) + output), Bytes(output + input + weight + input_gradient))
    }
}

/// Runs `body`, a layer's forward pass, and records it if the iteration is traced.
pub fn pass(label: &LayerLabel, work: LayerWork, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    let Some(begin) = recorder::mark() else { return body() };
    let first = nodes::next_node();
    let output = body()?;
    let Some(end) = recorder::mark() else { return Ok(output) };
    let (forward_bytes, backward_bytes) = work.bytes(&output);
    recorder::record_layer(MarkedLayer {
        number: 0,
        name: label.name.clone(),
        kind: label.kind,
        iteration: 0,
        nodes: first..nodes::next_node(),
        multiply_adds: output.numel() as u64 * work.multiply_adds_per_value,
        forward_bytes,
        backward_bytes,
        has_input_gradient: work.input.requires_grad(),
        begin,
        end,
    });
    Ok(output)
}

/// Runs and records a layer whose output has two consumers.
pub fn pass_fork(label: &LayerLabel, work: LayerWork, body: impl FnOnce() -> Result<Fork>) -> Result<Fork> {
    let mut second = None;
    let first = pass(label, work, || {
        let fork = body()?;
        second = Some(fork.second);
        Ok(fork.first)
    })?;
    Ok(Fork { second: second.unwrap_or_else(|| first.shallow_clone()), first })
}

/// Runs and records a layer without a weight.
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

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    #[test]
    fn layer_bytes_cover_existing_gradients() {
        let zeros = |length: i64| Tensor::zeros([length], (Kind::Float, Device::Cpu));
        let (input, weight, added, output) = (zeros(10), zeros(3), zeros(20), zeros(20));
        let product = LayerWork::product(&input, &weight, 1);
        assert_eq!(product.bytes(&output), (Bytes(4 * 33), Bytes(4 * 33)));
        assert_eq!(product.adding(Some(&added)).bytes(&output), (Bytes(4 * 53), Bytes(4 * 33)));
        let input = input.set_requires_grad(true);
        assert_eq!(LayerWork::product(&input, &weight, 1).bytes(&output), (Bytes(4 * 33), Bytes(4 * 46)));
        assert_eq!(LayerWork::without_product(&input).bytes(&output), (Bytes(4 * 30), Bytes(4 * 40)));
    }
}
