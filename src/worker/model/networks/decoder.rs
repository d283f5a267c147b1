//! Decoder language models with Hugging Face's names: GPT-2 (Radford et al., 2019; initial values of nanoGPT) and Llama
//! 3 (Grattafiori et al., 2024).

use std::cell::Cell;
use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_core::dimension::{DecoderFamily, DecoderShape};
use ringmark_core::trace::LayerKind;
use tch::{Device, Kind, Reduction, Tensor};

use crate::ffi::torch::packed::Gelu;
use crate::ffi::torch::transformer;
use crate::measure::repeated;
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::{
    Attention, LayerNorm, Linear, Perceptron, Projections, RotaryPositions, Rotation, TransformerBlock,
};
use crate::model::network::{Initializer, Initializers, Mode, NamedTensors, Network};
use crate::model::unit::Unit;

const EPSILON: f64 = 1e-5;
const DEVIATION: f64 = 0.02;
const EMBEDDING: Initializer = Initializer::Normal(DEVIATION);
const UNBIASED: Initializers = Initializers { weight: EMBEDDING, bias: None };
const BIASED: Initializers = Initializers { weight: EMBEDDING, bias: Some(Initializer::Constant(0.0)) };

/// Maximum bytes of logits per chunk of the loss. The output layer's gradient is read and written once per chunk, so
/// chunks are large: 1,335 tokens of GPT-2 and 523 of Llama in fp32.
const CHUNK_BYTES: i64 = 256 << 20;

pub struct Decoder {
    first: Unit,
    embedding: Tensor,
    /// GPT-2's learned positions.
    positions: Option<Tensor>,
    rotary: Option<RotaryPositions>,
    /// Shared with backward if activations are recomputed.
    blocks: Vec<(Unit, Arc<TransformerBlock>)>,
    last: Unit,
    norm: LayerNorm,
    /// Weight of the output layer, `[vocabulary, width]`; the embedding if it is tied.
    head: Tensor,
    head_label: LayerLabel,
    shape: &'static DecoderShape,
    recompute: bool,
}

impl Decoder {
    /// Creates the network; with `recompute`, backward recomputes the activations of each block; forward does not store
    /// them.
    pub fn new(tensors: &mut NamedTensors, shape: &'static DecoderShape, recompute: bool) -> Decoder {
        let DecoderShape { vocabulary, context, width, .. } = *shape;
        let [vocabulary, context, width] = [vocabulary, context, width].map(i64::from);
        let first = tensors.begin_unit();
        let (embedding, positions, rotary, (blocks, last), norm) = match &shape.family {
            DecoderFamily::Gpt2 => (
                tensors.embedding("transformer.wte.weight", &[vocabulary, width], EMBEDDING),
                Some(tensors.embedding("transformer.wpe.weight", &[context, width], EMBEDDING)),
                None,
                blocks(tensors, shape, gpt2_block),
                LayerNorm::new(tensors, "transformer.ln_f", width, EPSILON),
            ),
            DecoderFamily::Llama(rotary) => (
                tensors.embedding("model.embed_tokens.weight", &[vocabulary, width], EMBEDDING),
                None,
                Some(RotaryPositions::new(rotary, shape.head_size())),
                blocks(tensors, shape, llama_block),
                LayerNorm::root_mean_square(tensors, "model.norm", width, EPSILON),
            ),
        };
        const HEAD: &str = "lm_head";
        let head = match shape.has_tied_head {
            true => {
                tensors.kept_unit = Some(first.number);
                embedding.shallow_clone()
            }
            false => tensors.weight_and_bias(HEAD, &[vocabulary, width], UNBIASED).0,
        };
        let head_label = LayerLabel::new(LayerKind::Linear, HEAD);
        Decoder { first, embedding, positions, rotary, blocks, last, norm, head, head_label, shape, recompute }
    }

    /// Applies the network to tokens `[batch, tokens]`: `head` gets the features before the output layer,
    /// `[batch, tokens, width]`.
    fn run(&self, tokens: &Tensor, mode: Mode, head: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let (_, length) = tokens.size2()?;
        let DecoderShape { keyword, context, .. } = *self.shape;
        ensure!(length <= i64::from(context), "{length} tokens exceed the context of {keyword}: at most {context}");
        let mut features = self.first.run(|| {
            let features = self.embedded(tokens)?;
            Ok(match &self.positions {
                Some(positions) => features.f_add(&positions.f_narrow(0, 0, length)?)?,
                None => features,
            })
        })?;
        let kind = if features.kind() == Kind::Double { Kind::Double } else { Kind::Float };
        let rotation =
            self.rotary.as_ref().map(|rotary| rotary.rotation(length, kind, features.device())).transpose()?;
        for (unit, block) in &self.blocks {
            features = unit.run(|| self.through(block, &features, rotation.as_ref(), mode))?;
        }
        self.last.run(|| head(&self.norm.forward(&features)?))
    }

    /// Returns the scores of the next token, `[.., vocabulary]`, for features `[.., width]`.
    fn scores(&self, features: &Tensor) -> Result<Tensor> {
        let work = LayerWork::product(features, &self.head, i64::from(self.shape.width));
        layers::pass(&self.head_label, work, || Ok(features.f_linear(&self.head, None::<&Tensor>)?))
    }

    fn embedded(&self, tokens: &Tensor) -> Result<Tensor> {
        // A tied weight also gets the output layer's gradient, to which libtorch adds a sparse one in place. On CUDA it
        // would wait for the device.
        let is_sparse = self.shape.has_tied_head && tokens.device() == Device::Cpu;
        layers::pass_plain(LayerKind::Other, "embedding", tokens, || {
            Ok(Tensor::f_embedding(&self.embedding, tokens, -1, false, is_sparse)?)
        })
    }

    fn through(
        &self,
        block: &Arc<TransformerBlock>,
        features: &Tensor,
        rotation: Option<&Rotation>,
        mode: Mode,
    ) -> Result<Tensor> {
        if !(self.recompute && features.requires_grad()) {
            return block.forward(features, rotation, mode);
        }
        let (block, rotation) = (Arc::clone(block), rotation.map(Rotation::shared));
        let is_repeated = Cell::new(false);
        transformer::recomputed(features, move |features| {
            let compute = || block.forward(features, rotation.as_ref(), mode);
            if is_repeated.replace(true) { repeated::timed(features.device(), compute) } else { compute() }
        })
    }
}

impl Network for Decoder {
    /// Returns the scores of the next token, `[batch, tokens, vocabulary]`, for tokens `[batch, tokens]`.
    fn forward(&self, tokens: &Tensor, mode: Mode) -> Result<Tensor> {
        self.run(tokens, mode, |features| self.scores(features))
    }

    /// Returns the probabilities without all scores in memory.
    fn probabilities(&self, tokens: &Tensor, targets: &Tensor, mode: Mode) -> Result<Tensor> {
        let rows = (CHUNK_BYTES / (4 * i64::from(self.shape.vocabulary))).max(1);
        let chunk = |(features, targets): (Tensor, Tensor)| -> Result<Tensor> {
            let scores = self.scores(&features)?.f_to_kind(Kind::Float)?;
            Ok(scores.f_cross_entropy_loss(&targets, None::<&Tensor>, Reduction::None, -100, 0.0)?.f_neg()?.f_exp()?)
        };
        self.run(tokens, mode, |features| {
            let rows_of_targets = targets.f_flatten(0, -1)?.f_split(rows, 0)?;
            let chunks = features.f_flatten(0, 1)?.f_split(rows, 0)?.into_iter().zip(rows_of_targets);
            let chunks = chunks.map(chunk).collect::<Result<Vec<Tensor>>>()?;
            Ok(Tensor::f_cat(&chunks, 0)?.f_view_as(targets)?)
        })
    }

    /// Returns the sum of the sequences' losses; the others are zero.
    fn validation_sums(&self, tokens: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let (sequences, _) = targets.size2()?;
        let sums = Tensor::f_zeros([3], (Kind::Double, tokens.device()))?;
        if sequences > 0 {
            let loss = self.loss(&tokens.f_narrow(0, 0, sequences)?, targets, 0.0, Mode::Inference)?;
            let _ = sums.f_narrow(0, 0, 1)?.f_add_(&loss.f_to_kind(Kind::Double)?.f_mul_scalar(sequences as f64)?)?;
        }
        Ok(sums)
    }

    /// Returns the loss without all scores in memory.
    fn loss(&self, tokens: &Tensor, targets: &Tensor, label_smoothing: f64, mode: Mode) -> Result<Tensor> {
        ensure!(label_smoothing == 0.0, "{} has no label smoothing: omit --label-smoothing", self.shape.keyword);
        let targets = targets.f_flatten(0, -1)?;
        self.run(tokens, mode, |features| {
            let features = features.f_flatten(0, 1)?;
            // The output is a single value.
            let multiply_adds = features.numel() as i64 * i64::from(self.shape.vocabulary);
            let work = LayerWork::product(&features, &self.head, multiply_adds);
            layers::pass(&self.head_label, work, || {
                transformer::head_loss(&features, &self.head, &targets, CHUNK_BYTES)
            })
        })
    }
}

/// Returns the blocks, and the unit after them.
#[expect(clippy::arc_with_non_send_sync, reason = "libtorch may drop a block's closure on its autograd thread")]
fn blocks(
    tensors: &mut NamedTensors,
    shape: &DecoderShape,
    block: impl Fn(&mut NamedTensors, &DecoderShape, u32) -> TransformerBlock,
) -> (Vec<(Unit, Arc<TransformerBlock>)>, Unit) {
    let block = |number| {
        let unit = tensors.begin_unit();
        (unit, Arc::new(block(tensors, shape, number)))
    };
    let blocks = (0..shape.layers).map(block).collect();
    (blocks, tensors.begin_unit())
}

fn gpt2_block(tensors: &mut NamedTensors, shape: &DecoderShape, number: u32) -> TransformerBlock {
    let [width, mlp, heads] = [shape.width, shape.mlp_width, shape.heads].map(i64::from);
    // Each block adds twice to the residual stream; this keeps the variance of the sum.
    let residual = Initializer::Normal(DEVIATION / f64::from(2 * shape.layers).sqrt());
    let residual = Initializers { weight: residual, ..BIASED };
    let name = |layer: &str| format!("transformer.h.{number}.{layer}");
    TransformerBlock {
        first_norm: LayerNorm::new(tensors, &name("ln_1"), width, EPSILON),
        attention: Attention::new(
            &name("attn"),
            Projections::Joint(Linear::input_first(tensors, &name("attn.c_attn"), [width, 3 * width], BIASED)),
            Linear::input_first(tensors, &name("attn.c_proj"), [width, width], residual),
            heads,
            true,
        ),
        second_norm: LayerNorm::new(tensors, &name("ln_2"), width, EPSILON),
        perceptron: Perceptron::Gelu {
            wide: Linear::input_first(tensors, &name("mlp.c_fc"), [width, mlp], BIASED),
            narrow: Linear::input_first(tensors, &name("mlp.c_proj"), [mlp, width], residual),
            gelu: Gelu::Tanh,
        },
        dropout: 0.0,
    }
}

fn llama_block(tensors: &mut NamedTensors, shape: &DecoderShape, number: u32) -> TransformerBlock {
    let [width, mlp, heads] = [shape.width, shape.mlp_width, shape.heads].map(i64::from);
    let keys = i64::from(shape.key_value_heads * shape.head_size());
    let name = |layer: &str| format!("model.layers.{number}.{layer}");
    let linear = |tensors: &mut NamedTensors, layer: &str, widths: [i64; 2]| {
        Linear::new(tensors, &name(layer), widths, UNBIASED)
    };
    let first_norm = LayerNorm::root_mean_square(tensors, &name("input_layernorm"), width, EPSILON);
    let projections = Projections::Separate([
        linear(tensors, "self_attn.q_proj", [width, width]),
        linear(tensors, "self_attn.k_proj", [width, keys]),
        linear(tensors, "self_attn.v_proj", [width, keys]),
    ]);
    let out = linear(tensors, "self_attn.o_proj", [width, width]);
    TransformerBlock {
        first_norm,
        attention: Attention::new(&name("self_attn"), projections, out, heads, true),
        second_norm: LayerNorm::root_mean_square(tensors, &name("post_attention_layernorm"), width, EPSILON),
        perceptron: Perceptron::Gated {
            gate: linear(tensors, "mlp.gate_proj", [width, mlp]),
            up: linear(tensors, "mlp.up_proj", [width, mlp]),
            down: linear(tensors, "mlp.down_proj", [mlp, width]),
        },
        dropout: 0.0,
    }
}
