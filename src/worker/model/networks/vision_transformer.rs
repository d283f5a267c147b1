//! Vision Transformer: An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale (Dosovitskiy et al.,
//! 2020), with torchvision's names. Features are `[batch, tokens, width]`.

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::packed::Gelu;
use crate::model::layers::{
    Attention, Convolution, ConvolutionShape, LayerNorm, Linear, Perceptron, Projections, TransformerBlock,
};
use crate::model::network::{Initializer, Initializers, Mode, NamedTensors, Network};
use crate::model::unit::Unit;

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

fn block(tensors: &mut NamedTensors, name: &str, shape: TransformerShape, dropout: f64) -> TransformerBlock {
    const INTO: Initializers =
        Initializers { weight: Initializer::XavierUniform, bias: Some(Initializer::Constant(0.0)) };
    const OUT: Initializers =
        Initializers { weight: Initializer::FanInUniform, bias: Some(Initializer::Constant(0.0)) };
    let TransformerShape { width, heads, mlp, .. } = shape;
    let attention = format!("{name}.self_attention");
    let into = [&*format!("{attention}.in_proj_weight"), &format!("{attention}.in_proj_bias")];
    TransformerBlock {
        first_norm: LayerNorm::new(tensors, &format!("{name}.ln_1"), width, EPSILON),
        attention: Attention::new(
            &attention,
            Projections::Joint(Linear::under_names(tensors, into, [width, 3 * width], INTO)),
            Linear::new(tensors, &format!("{attention}.out_proj"), [width, width], OUT),
            heads,
            false,
        ),
        second_norm: LayerNorm::new(tensors, &format!("{name}.ln_2"), width, EPSILON),
        perceptron: Perceptron::Gelu {
            wide: Linear::new(tensors, &format!("{name}.mlp.0"), [width, mlp], MLP),
            narrow: Linear::new(tensors, &format!("{name}.mlp.3"), [mlp, width], MLP),
            gelu: Gelu::Exact,
        },
        dropout,
    }
}

pub struct VisionTransformer {
    first: Unit,
    class_token: Tensor,
    patches: Convolution,
    positions: Tensor,
    blocks: Vec<(Unit, TransformerBlock)>,
    last: Unit,
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
        let block = |tensors: &mut NamedTensors, number| {
            let unit = tensors.begin_unit();
            (unit, block(tensors, &format!("encoder.layers.encoder_layer_{number}"), shape, dropout))
        };
        VisionTransformer {
            first: tensors.begin_unit(),
            class_token: tensors.embedding("class_token", &[1, 1, width], Initializer::Constant(0.0)),
            patches: Convolution::new(tensors, "conv_proj", patches, PATCHES),
            positions: tensors.embedding("encoder.pos_embedding", &[1, tokens, width], Initializer::Normal(0.02)),
            blocks: (0..layers).map(|number| block(tensors, number)).collect(),
            last: tensors.begin_unit(),
            norm: LayerNorm::new(tensors, "encoder.ln", width, EPSILON),
            head: Linear::new(tensors, "heads.head", [width, classes], ZERO),
            dropout,
        }
    }
}

impl Network for VisionTransformer {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut features = self.first.run(|| {
            let patches = self.patches.forward(images, mode)?.f_flatten(2, -1)?.f_transpose(1, 2)?;
            let class_token = self.class_token.f_expand([patches.size()[0], -1, -1], false)?;
            let tokens = Tensor::f_cat(&[class_token, patches], 1)?.f_add(&self.positions)?;
            Ok(tokens.f_dropout(self.dropout, mode.has_dropout())?)
        })?;
        for (unit, block) in &self.blocks {
            features = unit.run(|| block.forward(&features, None, mode))?;
        }
        // Only the class token is used, and normalization is separate for each token.
        self.last.run(|| {
            let class_token = self.norm.forward(&features.f_select(1, 0)?)?;
            self.head.forward(&class_token, mode)
        })
    }
}
