//! Inception-v3: Rethinking the Inception Architecture for Computer Vision (Szegedy et al., 2015), without the
//! auxiliary head: torchvision's, and MXNet's of the same shapes.

use crate::model::layers::{BatchNormKind, ConvolutionNorm, ConvolutionShape, Layer, Linear, Pool, Sequence};
use crate::model::network::{Initializer, Initializers, NamedTensors};

/// Differences between the two variants, mostly names.
struct Variant {
    /// Names of the five convolutions before the blocks.
    stem: [&'static str; 5],
    blocks: [&'static str; 11],
    /// Names of the convolutions in each kind of block.
    a: [&'static str; 7],
    b: [&'static str; 4],
    c: [&'static str; 10],
    d: [&'static str; 6],
    e: [&'static str; 9],
    /// Separator between the names of a block and its convolution.
    separator: char,
    suffixes: [&'static str; 2],
    classifier: &'static str,
    convolution: Initializers,
    linear: Initializers,
    norm: BatchNormKind,
    last_pool: fn(Pool) -> Layer,
    /// Probability of the dropout before the classifier, if there is one.
    dropout: Option<f64>,
}

/// Builds torchvision's network and adds its tensors to `tensors`.
pub fn inception_v3(tensors: &mut NamedTensors, classes: i64, dropout: f64) -> Sequence {
    let variant = Variant {
        stem: ["Conv2d_1a_3x3", "Conv2d_2a_3x3", "Conv2d_2b_3x3", "Conv2d_3b_1x1", "Conv2d_4a_3x3"],
        blocks: [
            "Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6a", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7a",
            "Mixed_7b", "Mixed_7c",
        ],
        a: [
            "branch1x1",
            "branch5x5_1",
            "branch5x5_2",
            "branch3x3dbl_1",
            "branch3x3dbl_2",
            "branch3x3dbl_3",
            "branch_pool",
        ],
        b: ["branch3x3", "branch3x3dbl_1", "branch3x3dbl_2", "branch3x3dbl_3"],
        c: [
            "branch1x1",
            "branch7x7_1",
            "branch7x7_2",
            "branch7x7_3",
            "branch7x7dbl_1",
            "branch7x7dbl_2",
            "branch7x7dbl_3",
            "branch7x7dbl_4",
            "branch7x7dbl_5",
            "branch_pool",
        ],
        d: ["branch3x3_1", "branch3x3_2", "branch7x7x3_1", "branch7x7x3_2", "branch7x7x3_3", "branch7x7x3_4"],
        e: [
            "branch1x1",
            "branch3x3_1",
            "branch3x3_2a",
            "branch3x3_2b",
            "branch3x3dbl_1",
            "branch3x3dbl_2",
            "branch3x3dbl_3a",
            "branch3x3dbl_3b",
            "branch_pool",
        ],
        separator: '.',
        suffixes: [".conv", ".bn"],
        classifier: "fc",
        convolution: Initializers { weight: Initializer::Normal(0.1), bias: None },
        linear: Initializers { weight: Initializer::Normal(0.1), bias: Some(Initializer::FanInUniform) },
        norm: BatchNormKind { epsilon: 1e-3, fixed_scale: false },
        last_pool: Layer::AveragePool,
        dropout: Some(dropout),
    };
    variant.network(tensors, classes)
}

pub fn mxnet_inception_v3(tensors: &mut NamedTensors, classes: i64) -> Sequence {
    let variant = Variant {
        stem: ["conv", "conv_1", "conv_2", "conv_3", "conv_4"],
        blocks: [
            "mixed", "mixed_1", "mixed_2", "mixed_3", "mixed_4", "mixed_5", "mixed_6", "mixed_7", "mixed_8", "mixed_9",
            "mixed_10",
        ],
        a: ["conv", "tower_conv", "tower_conv_1", "tower_1_conv", "tower_1_conv_1", "tower_1_conv_2", "tower_2_conv"],
        b: ["conv", "tower_conv", "tower_conv_1", "tower_conv_2"],
        c: [
            "conv",
            "tower_conv",
            "tower_conv_1",
            "tower_conv_2",
            "tower_1_conv",
            "tower_1_conv_1",
            "tower_1_conv_2",
            "tower_1_conv_3",
            "tower_1_conv_4",
            "tower_2_conv",
        ],
        d: ["tower_conv", "tower_conv_1", "tower_1_conv", "tower_1_conv_1", "tower_1_conv_2", "tower_1_conv_3"],
        e: [
            "conv",
            "tower_conv",
            "tower_mixed_conv",
            "tower_mixed_conv_1",
            "tower_1_conv",
            "tower_1_conv_1",
            "tower_1_mixed_conv",
            "tower_1_mixed_conv_1",
            "tower_2_conv",
        ],
        separator: '_',
        suffixes: ["_conv2d", "_batchnorm"],
        classifier: "fc1",
        convolution: Initializers::MXNET.unbiased(),
        linear: Initializers::MXNET,
        norm: BatchNormKind { epsilon: 1e-3, fixed_scale: true },
        last_pool: Layer::MaxPool,
        dropout: None,
    };
    variant.network(tensors, classes)
}

/// Builder of a block: its convolutions take the block's names in order.
struct Block<'a> {
    variant: &'a Variant,
    tensors: &'a mut NamedTensors,
    name: &'static str,
    convolutions: std::slice::Iter<'a, &'static str>,
}

impl Block<'_> {
    /// Builds the next convolution, with normalization and ReLU.
    fn unit(&mut self, shape: ConvolutionShape) -> Layer {
        let convolution = self.convolutions.next().expect("a name for every convolution of the block");
        let name = format!("{}{}{convolution}", self.name, self.variant.separator);
        self.variant.unit(self.tensors, &name, shape)
    }

    fn square(&mut self, input: i64, output: i64, kernel: i64) -> Layer {
        self.unit(ConvolutionShape::square(input, output, kernel))
    }

    /// Builds an unpadded 3x3 convolution that halves the size.
    fn halving(&mut self, input: i64, output: i64) -> Layer {
        self.unit(ConvolutionShape::square(input, output, 3).stride(2).padding(0))
    }

    fn row(&mut self, input: i64, output: i64, width: i64) -> Layer {
        self.unit(ConvolutionShape::new(input, output, [1, width]))
    }

    fn column(&mut self, input: i64, output: i64, height: i64) -> Layer {
        self.unit(ConvolutionShape::new(input, output, [height, 1]))
    }
}

fn branches<const COUNT: usize>(branches: [Vec<Layer>; COUNT]) -> Layer {
    Layer::Branches(branches.into_iter().map(Sequence).collect())
}

/// Pooling that keeps the size.
const SAME: Pool = Pool::new(3, 1).padding(1);
/// Pooling that halves the size.
const HALF: Pool = Pool::new(3, 2);

impl Variant {
    fn network(&self, tensors: &mut NamedTensors, classes: i64) -> Sequence {
        let mut layers = Vec::new();
        let stem = [
            (ConvolutionShape::square(3, 32, 3).stride(2).padding(0), false),
            (ConvolutionShape::square(32, 32, 3).padding(0), false),
            (ConvolutionShape::square(32, 64, 3), true),
            (ConvolutionShape::square(64, 80, 1), false),
            (ConvolutionShape::square(80, 192, 3).padding(0), true),
        ];
        for (name, (shape, is_pooled)) in self.stem.into_iter().zip(stem) {
            layers.push(self.unit(tensors, name, shape));
            if is_pooled {
                layers.push(Layer::MaxPool(HALF));
            }
        }
        let [a1, a2, a3, b, c1, c2, c3, c4, d, e1, e2] = self.blocks;
        for (name, input, pooled) in [(a1, 192, 32), (a2, 256, 64), (a3, 288, 64)] {
            layers.push(self.block(tensors, name, &self.a, |block| block_a(block, input, pooled)));
        }
        layers.push(self.block(tensors, b, &self.b, block_b));
        for (name, inner) in [(c1, 128), (c2, 160), (c3, 160), (c4, 192)] {
            layers.push(self.block(tensors, name, &self.c, |block| block_c(block, inner)));
        }
        layers.push(self.block(tensors, d, &self.d, block_d));
        layers.push(self.block(tensors, e1, &self.e, |block| block_e(block, 1280, Layer::AveragePool)));
        layers.push(self.block(tensors, e2, &self.e, |block| block_e(block, 2048, self.last_pool)));
        layers.push(Layer::AdaptiveAveragePool(1));
        layers.extend(self.dropout.map(Layer::Dropout));
        layers.push(Layer::Flatten);
        layers.push(Layer::Linear(Linear::new(tensors, self.classifier, [2048, classes], self.linear)));
        Sequence(layers)
    }

    fn block(
        &self,
        tensors: &mut NamedTensors,
        name: &'static str,
        convolutions: &[&'static str],
        make: impl FnOnce(&mut Block) -> Layer,
    ) -> Layer {
        make(&mut Block { variant: self, tensors, name, convolutions: convolutions.iter() })
    }

    fn unit(&self, tensors: &mut NamedTensors, name: &str, shape: ConvolutionShape) -> Layer {
        let names = self.suffixes.map(|suffix| format!("{name}{suffix}"));
        Layer::Unit(ConvolutionNorm::new(tensors, [&names[0], &names[1]], shape, self.convolution, self.norm))
    }
}

/// Builds a block at 35x35 pixels.
fn block_a(block: &mut Block, input: i64, pooled: i64) -> Layer {
    branches([
        vec![block.square(input, 64, 1)],
        vec![block.square(input, 48, 1), block.square(48, 64, 5)],
        vec![block.square(input, 64, 1), block.square(64, 96, 3), block.square(96, 96, 3)],
        vec![Layer::AveragePool(SAME), block.square(input, pooled, 1)],
    ])
}

/// Builds a block that reduces 35x35 to 17x17 pixels.
fn block_b(block: &mut Block) -> Layer {
    branches([
        vec![block.halving(288, 384)],
        vec![block.square(288, 64, 1), block.square(64, 96, 3), block.halving(96, 96)],
        vec![Layer::MaxPool(HALF)],
    ])
}

/// Builds a block at 17x17 pixels.
fn block_c(block: &mut Block, inner: i64) -> Layer {
    branches([
        vec![block.square(768, 192, 1)],
        vec![block.square(768, inner, 1), block.row(inner, inner, 7), block.column(inner, 192, 7)],
        vec![
            block.square(768, inner, 1),
            block.column(inner, inner, 7),
            block.row(inner, inner, 7),
            block.column(inner, inner, 7),
            block.row(inner, 192, 7),
        ],
        vec![Layer::AveragePool(SAME), block.square(768, 192, 1)],
    ])
}

/// Builds a block that reduces 17x17 to 8x8 pixels.
fn block_d(block: &mut Block) -> Layer {
    branches([
        vec![block.square(768, 192, 1), block.halving(192, 320)],
        vec![block.square(768, 192, 1), block.row(192, 192, 7), block.column(192, 192, 7), block.halving(192, 192)],
        vec![Layer::MaxPool(HALF)],
    ])
}

/// Builds a block at 8x8 pixels.
fn block_e(block: &mut Block, input: i64, pool: fn(Pool) -> Layer) -> Layer {
    let split = |block: &mut Block| branches([vec![block.row(384, 384, 3)], vec![block.column(384, 384, 3)]]);
    branches([
        vec![block.square(input, 320, 1)],
        vec![block.square(input, 384, 1), split(block)],
        vec![block.square(input, 448, 1), block.square(448, 384, 3), split(block)],
        vec![pool(SAME), block.square(input, 192, 1)],
    ])
}
