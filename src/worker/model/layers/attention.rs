//! Attention over the tokens of a sequence, and rotary positions.

use std::cell::RefCell;
use std::sync::OnceLock;

use anyhow::Result;
use ringmark_core::dimension::{AttentionKernel, Rotary};
use ringmark_core::trace::LayerKind;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::packed::Epilogue;
use crate::ffi::torch::transformer;
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::linear::Linear;
use crate::model::network::Mode;

pub struct Attention {
    pub projections: Projections,
    pub out: Linear,
    /// Number of query heads.
    pub heads: i64,
    /// True if a token attends only to itself and those before it.
    pub is_causal: bool,
    pub label: LayerLabel,
}

/// Linear layers that compute queries, keys and values.
pub enum Projections {
    /// One layer for all three, with equal widths.
    Joint(Linear),
    /// Queries, keys and values. Several query heads may share a key and value head (grouped-query attention).
    Separate([Linear; 3]),
}

impl Attention {
    /// Creates an attention with `heads` heads, named `name` in traces.
    pub fn new(name: &str, projections: Projections, out: Linear, heads: i64, is_causal: bool) -> Attention {
        Attention { projections, out, heads, is_causal, label: LayerLabel::new(LayerKind::Attention, name) }
    }

    /// Applies attention to features `[batch, tokens, width]`, rotating queries and keys by `rotation` if given, and
    /// the fused operation `epilogue`.
    pub fn forward(
        &self,
        features: &Tensor,
        rotation: Option<&Rotation>,
        epilogue: Epilogue,
        mode: Mode,
    ) -> Result<Tensor> {
        let (batch, tokens, _) = features.size3()?;
        // An output value is a sum over all tokens, weighted by scores; each score is a product over the width of a
        // head.
        let multiply_adds_per_value = 2 * tokens as u64;
        let attended = match &self.projections {
            Projections::Joint(into) => {
                let into = into.forward(features, mode)?;
                // Queries, keys and values, each `[batch, heads, tokens, width of a head]`.
                let parts = into.f_view([batch, tokens, 3, self.heads, -1])?.f_permute([2, 0, 3, 1, 4])?;
                let work = LayerWork { multiply_adds_per_value, ..LayerWork::without_product(&parts) };
                layers::pass(&self.label, work, || self.attend(&split(&parts)?))?
            }
            Projections::Separate([queries, keys, values]) => {
                let queries = queries.forward(features, mode)?.f_view([batch, tokens, self.heads, -1])?;
                let head_size = queries.size()[3];
                let heads_of = |layer: &Linear| {
                    Ok::<Tensor, anyhow::Error>(layer.forward(features, mode)?.f_view([batch, tokens, -1, head_size])?)
                };
                let (keys, values) = (heads_of(keys)?, heads_of(values)?);
                let work = LayerWork {
                    multiply_adds_per_value,
                    weight: Some(&keys),
                    ..LayerWork::without_product(&queries).adding(Some(&values))
                };
                layers::pass(&self.label, work, || {
                    let rotated = |heads: &Tensor| match rotation {
                        Some(rotation) => rotation.apply(heads),
                        None => Ok(heads.shallow_clone()),
                    };
                    let parts = [rotated(&queries)?, rotated(&keys)?, values.shallow_clone()];
                    let [queries, keys, values] = parts.map(|part| part.f_transpose(1, 2));
                    self.attend(&[queries?, keys?, values?])
                })?
            }
        };
        self.out.followed(&attended.f_transpose(1, 2)?.f_reshape([batch, tokens, -1])?, epilogue, mode)
    }

    /// Returns the attention-weighted values for queries, keys and values, each `[batch, heads, tokens, width]`.
    fn attend(&self, parts: &[Tensor; 3]) -> Result<Tensor> {
        let [queries, keys, values] = parts;
        if !self.is_causal && queries.device() == Device::Cpu && queries.kind() == Kind::BFloat16 {
            let _ = KERNEL.set(AttentionKernel::Unfused);
            return unfused_attention(parts);
        }
        let (is_grouped, none) = (keys.size()[1] != queries.size()[1], None::<&Tensor>);
        if KERNEL.get().is_none() {
            let choice = Tensor::f_internal_fused_sdp_choice(
                queries,
                keys,
                values,
                none,
                0.0,
                self.is_causal,
                None,
                is_grouped,
            )?;
            let _ = KERNEL.set(of_backend(choice));
        }
        Ok(Tensor::f_scaled_dot_product_attention(queries, keys, values, none, 0.0, self.is_causal, None, is_grouped)?)
    }
}

/// Kernel of the first attention of this process; its other attentions have the same shape.
static KERNEL: OnceLock<AttentionKernel> = OnceLock::new();

/// Returns the kernel of attention in this process; `None` if there was none.
pub fn attention_kernel() -> Option<AttentionKernel> {
    KERNEL.get().copied()
}

/// Returns the kernel with this number in libtorch's `SDPBackend`.
fn of_backend(number: i64) -> AttentionKernel {
    match number {
        1 => AttentionKernel::Flash,
        2 => AttentionKernel::Efficient,
        3 => AttentionKernel::Cudnn,
        _ => AttentionKernel::Math,
    }
}

/// Computes attention with all scores in memory, `[batch, heads, tokens, tokens]`. libtorch's fused attention needs
/// less memory, but in bf16 on processors without AMX it spends twice the time in MKL's products (AMD EPYC, 197
/// tokens).
fn unfused_attention(parts: &[Tensor; 3]) -> Result<Tensor> {
    let &[batch, heads, tokens, width] = parts[0].size().as_slice() else { unreachable!("heads of a batch") };
    let joined = |part: &Tensor| part.f_reshape([batch * heads, tokens, width]);
    let [queries, keys, values] = parts.each_ref().map(joined);
    let (queries, scale) = (queries?, 1.0 / (width as f64).sqrt());
    let nothing = queries.f_new_empty([1], (queries.kind(), queries.device()))?;
    let scores = nothing.f_baddbmm(&queries, &keys?.f_transpose(1, 2)?, 0.0, scale)?;
    let attended = scores.f_softmax(-1, scores.kind())?.f_bmm(&values?)?;
    Ok(attended.f_view([batch, heads, tokens, width])?)
}

fn split(parts: &Tensor) -> Result<[Tensor; 3]> {
    let parts = parts.f_unbind(0)?;
    Ok(parts.try_into().expect("unbind of three gives three"))
}

/// Rotary position embedding (RoPE; Su et al., 2021): feature i of a head and feature i + half its width are
/// a pair, as in Hugging Face's weights.
pub struct RotaryPositions {
    frequencies: Vec<f64>,
    /// Rotation of the last forward pass.
    last: RefCell<Option<Rotation>>,
}

impl RotaryPositions {
    pub fn new(rotary: &Rotary, head_size: u32) -> RotaryPositions {
        RotaryPositions { frequencies: rotary.frequencies(head_size), last: RefCell::default() }
    }

    /// Returns the rotation of sequences of `tokens` tokens, computed in `kind`.
    pub fn rotation(&self, tokens: i64, kind: Kind, device: Device) -> Result<Rotation> {
        if let Some(last) = &*self.last.borrow() {
            let is_same = last.cosines.size()[0] == tokens && last.cosines.kind() == kind;
            if is_same && last.cosines.device() == device {
                return Ok(last.shared());
            }
        }
        let _no_gradient = tch::no_grad_guard();
        // In fp64: at a position of 100,000 an fp32 angle would have an error of 0.01.
        let frequencies = Tensor::from_slice(&self.frequencies);
        let angles = Tensor::f_arange(tokens, (Kind::Double, Device::Cpu))?.f_outer(&frequencies)?.f_unsqueeze(1)?;
        let table = |values: Tensor| values.f_to_kind(kind)?.f_to_device(device);
        let rotation = Rotation { cosines: table(angles.f_cos()?)?, sines: table(angles.f_sin()?)? };
        Ok(self.last.borrow_mut().insert(rotation).shared())
    }
}

/// Cosines and sines of the angles of every token, `[tokens, 1, pairs]`.
pub struct Rotation {
    cosines: Tensor,
    sines: Tensor,
}

impl Rotation {
    /// Returns the same rotation over the same tables.
    pub fn shared(&self) -> Rotation {
        Rotation { cosines: self.cosines.shallow_clone(), sines: self.sines.shallow_clone() }
    }

    /// Rotates heads, `[batch, tokens, heads, width]`.
    fn apply(&self, heads: &Tensor) -> Result<Tensor> {
        transformer::rotated(heads, [&self.cosines, &self.sines])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    #[test]
    fn unfused_attention_matches_fused() {
        let _generator = seeded(5);
        let parts = Tensor::randn([3, 2, 4, 17, 8], (Kind::Double, Device::Cpu)).set_requires_grad(true);
        let gradients_of = |attended: Tensor| {
            let direction =
                Tensor::arange(attended.numel() as i64, (Kind::Double, Device::Cpu)).cos().view_as(&attended);
            Tensor::run_backward(&[(&attended * direction).sum(Kind::Double)], &[&parts], false, false).remove(0)
        };
        let [queries, keys, values] = split(&parts).expect("three");
        let fused =
            Tensor::scaled_dot_product_attention(&queries, &keys, &values, None::<&Tensor>, 0.0, false, None, false);
        let explicit = unfused_attention(&[queries, keys, values]).expect("a result");
        assert!((&fused - &explicit).abs().max().double_value(&[]) < 1e-12);
        let difference = gradients_of(fused) - gradients_of(explicit);
        assert!(difference.abs().max().double_value(&[]) < 1e-12);
    }
}
