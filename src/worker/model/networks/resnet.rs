//! ResNet and ResNeXt: Deep Residual Learning for Image Recognition (He et al., 2015) and Aggregated Residual
//! Transformations for Deep Neural Networks (Xie et al., 2016), with torchvision's names.
//!
//! The stride of a bottleneck is in its 3x3 convolution: ResNet50-v1b, also called v1.5, is torchvision's `resnet50`.

use anyhow::Result;
use tch::Tensor;

use crate::model::layers::{BatchNormKind, ConvolutionNorm, ConvolutionShape, Fork, Linear, Pool, channel_means};
use crate::model::network::{Initializer, Initializers, Mode, NamedTensors, Network};
use crate::model::unit::Unit;

const CONVOLUTION: Initializers = Initializers { weight: Initializer::FanOutNormal, bias: None };

/// Adds a convolution and the normalization after it, under the two names.
fn unit(tensors: &mut NamedTensors, names: [&str; 2], shape: ConvolutionShape) -> ConvolutionNorm {
    ConvolutionNorm::new(tensors, names, shape, CONVOLUTION, BatchNormKind::PYTORCH)
}

fn unit_in_block(tensors: &mut NamedTensors, block: &str, number: usize, shape: ConvolutionShape) -> ConvolutionNorm {
    unit(tensors, [&format!("{block}.conv{number}"), &format!("{block}.bn{number}")], shape)
}

/// Shape of a block: `inner` channels inside, in `groups` of the 3x3 convolution.
#[derive(Debug, Clone, Copy)]
struct BlockShape {
    input: i64,
    inner: i64,
    output: i64,
    stride: i64,
    groups: i64,
}

/// Shortcut around a block: the input, or a convolution of it if the shape changes.
struct Shortcut(Option<ConvolutionNorm>);

impl Shortcut {
    fn new(tensors: &mut NamedTensors, block: &str, shape: BlockShape) -> Shortcut {
        let BlockShape { input, output, stride, .. } = shape;
        let names = [format!("{block}.downsample.0"), format!("{block}.downsample.1")];
        let shape = ConvolutionShape::square(input, output, 1).stride(stride);
        let changes = stride != 1 || input != output;
        Shortcut(changes.then(|| unit(tensors, [&names[0], &names[1]], shape)))
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        match &self.0 {
            Some(unit) => unit.linear(images, mode),
            None => Ok(images.shallow_clone()),
        }
    }
}

/// A residual block; the last convolution is added to the shortcut.
struct Block {
    first: Vec<ConvolutionNorm>,
    last: ConvolutionNorm,
    shortcut: Shortcut,
}

impl Block {
    /// Builds a block of two 3x3 convolutions.
    fn basic(tensors: &mut NamedTensors, name: &str, shape: BlockShape) -> Block {
        let BlockShape { input, inner, output, stride, .. } = shape;
        let mut unit = |number, shape| unit_in_block(tensors, name, number, shape);
        Block {
            first: vec![unit(1, ConvolutionShape::square(input, inner, 3).stride(stride))],
            last: unit(2, ConvolutionShape::square(inner, output, 3)),
            shortcut: Shortcut::new(tensors, name, shape),
        }
    }

    /// Builds a block of 1x1, 3x3 and 1x1 convolutions.
    fn bottleneck(tensors: &mut NamedTensors, name: &str, shape: BlockShape) -> Block {
        let BlockShape { input, inner, output, stride, groups } = shape;
        let mut unit = |number, shape| unit_in_block(tensors, name, number, shape);
        Block {
            first: vec![
                unit(1, ConvolutionShape::square(input, inner, 1)),
                unit(2, ConvolutionShape::square(inner, inner, 3).stride(stride).groups(groups)),
            ],
            last: unit(3, ConvolutionShape::square(inner, output, 1)),
            shortcut: Shortcut::new(tensors, name, shape),
        }
    }

    fn forward(&self, images: &Fork, mode: Mode) -> Result<Fork> {
        let mut inside = images.first.shallow_clone();
        for unit in &self.first {
            inside = unit.rectified(&inside, mode)?;
        }
        let shortcut = self.shortcut.forward(&images.second, mode)?;
        self.last.added(&inside, &shortcut, mode)
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Blocks {
    /// Numbers of blocks in the four layers.
    counts: [usize; 4],
    kind: BlockKind,
}

#[derive(Debug, Clone, Copy)]
enum BlockKind {
    Basic,
    /// Bottleneck with four times the layer's channels as output.
    Bottleneck {
        groups: i64,
        /// Channels of a group in the first layer.
        width: i64,
    },
}

impl Blocks {
    pub const RESNET18: Blocks = Blocks { counts: [2, 2, 2, 2], kind: BlockKind::Basic };
    pub const RESNET34: Blocks = Blocks { counts: [3, 4, 6, 3], kind: BlockKind::Basic };
    pub const RESNET50: Blocks = Blocks::bottlenecks([3, 4, 6, 3], 1, 64);
    pub const RESNET101: Blocks = Blocks::bottlenecks([3, 4, 23, 3], 1, 64);
    pub const RESNET152: Blocks = Blocks::bottlenecks([3, 8, 36, 3], 1, 64);
    pub const RESNEXT50_32X4D: Blocks = Blocks::bottlenecks([3, 4, 6, 3], 32, 4);
    pub const RESNEXT101_32X8D: Blocks = Blocks::bottlenecks([3, 4, 23, 3], 32, 8);

    const fn bottlenecks(counts: [usize; 4], groups: i64, width: i64) -> Blocks {
        Blocks { counts, kind: BlockKind::Bottleneck { groups, width } }
    }

    fn block(self, tensors: &mut NamedTensors, name: &str, input: i64, channels: i64, stride: i64) -> Block {
        let output = self.output(channels);
        match self.kind {
            BlockKind::Basic => {
                Block::basic(tensors, name, BlockShape { input, inner: channels, output, stride, groups: 1 })
            }
            BlockKind::Bottleneck { groups, width } => {
                let inner = channels / 64 * width * groups;
                Block::bottleneck(tensors, name, BlockShape { input, inner, output, stride, groups })
            }
        }
    }

    fn output(self, channels: i64) -> i64 {
        match self.kind {
            BlockKind::Basic => channels,
            BlockKind::Bottleneck { .. } => 4 * channels,
        }
    }
}

pub struct ResNet {
    stem: (Unit, ConvolutionNorm),
    blocks: Vec<(Unit, Block)>,
    fc: (Unit, Linear),
}

impl ResNet {
    pub fn new(tensors: &mut NamedTensors, blocks: Blocks, classes: i64) -> ResNet {
        let stem_unit = tensors.begin_unit();
        let stem = unit(tensors, ["conv1", "bn1"], ConvolutionShape::square(3, 64, 7).stride(2));
        let mut all = Vec::new();
        let mut input = 64;
        for (layer, (count, channels)) in blocks.counts.into_iter().zip([64, 128, 256, 512]).enumerate() {
            for number in 0..count {
                // The first block of a layer halves the size, except in the first layer, after max pooling.
                let stride = if number == 0 && layer > 0 { 2 } else { 1 };
                let unit = tensors.begin_unit();
                let block = blocks.block(tensors, &format!("layer{}.{number}", layer + 1), input, channels, stride);
                all.push((unit, block));
                input = blocks.output(channels);
            }
        }
        let fc = (tensors.begin_unit(), Linear::new(tensors, "fc", [input, classes], Initializers::PYTORCH));
        ResNet { stem: (stem_unit, stem), blocks: all, fc }
    }
}

impl Network for ResNet {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let (unit, stem) = &self.stem;
        let mut features = unit.run(|| stem.pooled(images, Pool::new(3, 2).padding(1), mode))?;
        for (unit, block) in &self.blocks {
            features = unit.run(|| block.forward(&features, mode))?;
        }
        let (unit, fc) = &self.fc;
        unit.run(|| fc.forward(&channel_means(&features.first)?, mode))
    }
}
