//! Vision Transformer: An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale (Dosovitskiy et al.,
//! 2020), with torchvision's names. Features are `[batch, tokens, width]`.

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::packed::Epilogue;
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::{Convolution, ConvolutionShape, LayerNorm, Linear};
use crate::model::named_tensors::{Initializer, Initializers, NamedTensors};
use crate::model::network::{Mode, Network};

const EPSILON: f64 = 1e-6;
const MLP: Initializers = Initializers { weight: Initializer::XavierUniform, bias: Some(Initializer::Normal(1e-6)) };
const ZERO: Initializers = Initializers { weight: Initializer::Constant(0.0), bias: Some(Initializer::Constant(0.0)) };

#[derive(Debug, Clone, Copy)]
pub struct TransformerShape {
    image: i64,
    patch: i64,
    layers: usize,
    heads: i64,
    width: i64,
    mlp: i64,
}

impl TransformerShape {
    pub const B_16: TransformerShape =
        TransformerShape { image: 224, patch: 16, layers: 12, heads: 12, width: 768, mlp: 3072 };
}

struct Attention {
    into: Linear,
    out: Linear,
    heads: i64,
    label: LayerLabel,
}

impl Attention {
    fn new(tensors: &mut NamedTensors, name: &str, shape: TransformerShape) -> Attention {
        const INTO: Initializers =
            Initializers { weight: Initializer::XavierUniform, bias: Some(Initializer::Constant(0.0)) };
        const OUT: Initializers =
            Initializers { weight: Initializer::FanInUniform, bias: Some(Initializer::Constant(0.0)) };
        let TransformerShape { width, heads, .. } = shape;
        Attention {
            into: Linear::under_names(
                tensors,
                [&format!("{name}.in_proj_weight"), &format!("{name}.in_proj_bias")],
                [width, 3 * width],
                INTO,
            ),
            out: Linear::new(tensors, &format!("{name}.out_proj"), [width, width], OUT),
            heads,
            label: LayerLabel::new(LayerKind::Attention, name),
        }
    }

    /// Applies attention and the fused operation `epilogue`.
    fn forward(&self, features: &Tensor, epilogue: Epilogue, mode: Mode) -> Result<Tensor> {
        let (batch, tokens, width) = features.size3()?;
        let into = self.into.forward(features, mode)?;
        // Queries, keys and values, each `[batch, heads, tokens, width of a head]`.
        let parts = into.f_view([batch, tokens, 3, self.heads, width / self.heads])?.f_permute([2, 0, 3, 1, 4])?;
        // An output value is a sum over all tokens, weighted by scores; each score is a product over the width of a
        // head.
        let work = LayerWork { multiply_adds_per_value: 2 * tokens as u64, ..LayerWork::without_product(&parts) };
        let attended = layers::pass(&self.label, work, || Attention::attend(&parts))?;
        self.out.followed(&attended.f_transpose(1, 2)?.f_reshape([batch, tokens, width])?, epilogue, mode)
    }

    /// Returns the attention-weighted values for the queries, keys and values in `parts`.
    fn attend(parts: &Tensor) -> Result<Tensor> {
        if parts.device() == Device::Cpu && parts.kind() == Kind::BFloat16 {
            return unfused_attention(parts);
        }
        let [queries, keys, values] = split(parts)?;
        let none = None::<&Tensor>;
        Ok(Tensor::f_scaled_dot_product_attention(&queries, &keys, &values, none, 0.0, false, None, false)?)
    }
}

/// Computes attention with all scores in memory, `[batch, heads, tokens, tokens]`. libtorch's fused attention needs
/// less memory, but in bf16 on processors without AMX it spends twice the time in MKL's products (AMD EPYC, 197
/// tokens).
fn unfused_attention(parts: &Tensor) -> Result<Tensor> {
    let &[_, batch, heads, tokens, width] = parts.size().as_slice() else { unreachable!("queries, keys and values") };
    let [queries, keys, values] = split(&parts.f_contiguous()?.f_view([3, batch * heads, tokens, width])?)?;
    let scale = 1.0 / (width as f64).sqrt();
    let nothing = queries.f_new_empty([1], (queries.kind(), queries.device()))?;
    let scores = nothing.f_baddbmm(&queries, &keys.f_transpose(1, 2)?, 0.0, scale)?;
    let attended = scores.f_softmax(-1, scores.kind())?.f_bmm(&values)?;
    Ok(attended.f_view([batch, heads, tokens, width])?)
}

fn split(parts: &Tensor) -> Result<[Tensor; 3]> {
    let parts = parts.f_unbind(0)?;
    Ok(parts.try_into().expect("unbind of three gives three"))
}

/// Attention and a perceptron with two layers, each with a preceding normalization and a residual connection.
struct Block {
    first_norm: LayerNorm,
    attention: Attention,
    second_norm: LayerNorm,
    wide: Linear,
    narrow: Linear,
    dropout: f64,
}

impl Block {
    fn new(tensors: &mut NamedTensors, name: &str, shape: TransformerShape, dropout: f64) -> Block {
        let TransformerShape { width, mlp, .. } = shape;
        Block {
            first_norm: LayerNorm::new(tensors, &format!("{name}.ln_1"), width, EPSILON),
            attention: Attention::new(tensors, &format!("{name}.self_attention"), shape),
            second_norm: LayerNorm::new(tensors, &format!("{name}.ln_2"), width, EPSILON),
            wide: Linear::new(tensors, &format!("{name}.mlp.0"), [width, mlp], MLP),
            narrow: Linear::new(tensors, &format!("{name}.mlp.3"), [mlp, width], MLP),
            dropout,
        }
    }

    fn forward(&self, features: &Tensor, mode: Mode) -> Result<Tensor> {
        let normalized = self.first_norm.forward(features)?;
        let features = &self.add(features, mode, |epilogue| self.attention.forward(&normalized, epilogue, mode))?;
        let wide = self.wide.followed(&self.second_norm.forward(features)?, Epilogue::Gelu, mode)?;
        let wide = wide.f_dropout(self.dropout, mode.has_dropout())?;
        self.add(features, mode, |epilogue| self.narrow.followed(&wide, epilogue, mode))
    }

    /// Adds the output of `layer`, with dropout, to `features`.
    fn add(&self, features: &Tensor, mode: Mode, layer: impl FnOnce(Epilogue) -> Result<Tensor>) -> Result<Tensor> {
        if self.dropout == 0.0 || !mode.has_dropout() {
            return layer(Epilogue::Add(features));
        }
        Ok(features.f_add(&layer(Epilogue::Nothing)?.f_dropout(self.dropout, true)?)?)
    }
}

pub struct VisionTransformer {
    class_token: Tensor,
    patches: Convolution,
    positions: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
    dropout: f64,
}

impl VisionTransformer {
    pub fn new(tensors: &mut NamedTensors, shape: TransformerShape, classes: i64, dropout: f64) -> VisionTransformer {
        const PATCHES: Initializers =
            Initializers { weight: Initializer::FanInNormal(1.0), bias: Some(Initializer::Constant(0.0)) };
        let TransformerShape { image, patch, layers, width, .. } = shape;
        let tokens = (image / patch).pow(2) + 1;
        let patches = ConvolutionShape::square(3, width, patch).stride(patch).padding(0);
        VisionTransformer {
            class_token: tensors.embedding("class_token", &[1, 1, width], Initializer::Constant(0.0)),
            patches: Convolution::new(tensors, "conv_proj", patches, PATCHES),
            positions: tensors.embedding("encoder.pos_embedding", &[1, tokens, width], Initializer::Normal(0.02)),
            blocks: (0..layers)
                .map(|number| Block::new(tensors, &format!("encoder.layers.encoder_layer_{number}"), shape, dropout))
                .collect(),
            norm: LayerNorm::new(tensors, "encoder.ln", width, EPSILON),
            head: Linear::new(tensors, "heads.head", [width, classes], ZERO),
            dropout,
        }
    }
}

impl Network for VisionTransformer {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let patches = self.patches.forward(images, mode)?.f_flatten(2, -1)?.f_transpose(1, 2)?;
        let class_token = self.class_token.f_expand([patches.size()[0], -1, -1], false)?;
        let tokens = Tensor::f_cat(&[class_token, patches], 1)?.f_add(&self.positions)?;
        let mut features = tokens.f_dropout(self.dropout, mode.has_dropout())?;
        for block in &self.blocks {
            features = block.forward(&features, mode)?;
        }
        // Only the class token is used, and normalization is separate for each token.
        let class_token = self.norm.forward(&features.f_select(1, 0)?)?;
        self.head.forward(&class_token, mode)
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
        let explicit = unfused_attention(&parts).expect("a result");
        assert!((&fused - &explicit).abs().max().double_value(&[]) < 1e-12);
        let difference = gradients_of(fused) - gradients_of(explicit);
        assert!(difference.abs().max().double_value(&[]) < 1e-12);
    }
}
