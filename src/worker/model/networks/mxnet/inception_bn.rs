//! Inception with batch normalization: Batch Normalization: Accelerating Deep Network Training by Reducing Internal
//! Covariate Shift (Ioffe and Szegedy, 2015). Every convolution also has a bias.

use crate::model::layers::{BatchNormKind, ConvolutionNorm, ConvolutionShape, Layer, Linear, Pool, Sequence};
use crate::model::network::{Initializers, NamedTensors};

const NORM: BatchNormKind = BatchNormKind { epsilon: 1e-5 + 1e-10, fixed_scale: false };

pub fn inception_bn(tensors: &mut NamedTensors, classes: i64) -> Sequence {
    let mut layers = vec![
        unit(tensors, "1", ConvolutionShape::square(3, 64, 7).stride(2)),
        Layer::MaxPool(Pool::new(3, 2)),
        unit(tensors, "2_red", ConvolutionShape::square(64, 64, 1)),
        unit(tensors, "2", ConvolutionShape::square(64, 192, 3)),
        Layer::MaxPool(Pool::new(3, 2)),
    ];
    let average = Layer::AveragePool;
    layers.extend([
        same(tensors, "3a", 192, [64, 64, 64, 64, 96, 32], average),
        same(tensors, "3b", 256, [64, 64, 96, 64, 96, 64], average),
        halving(tensors, "3c", 320, [128, 160, 64, 96]),
        same(tensors, "4a", 576, [224, 64, 96, 96, 128, 128], average),
        same(tensors, "4b", 576, [192, 96, 128, 96, 128, 128], average),
        same(tensors, "4c", 576, [160, 128, 160, 128, 160, 128], average),
        same(tensors, "4d", 608, [96, 128, 192, 160, 192, 128], average),
        halving(tensors, "4e", 608, [128, 192, 192, 256]),
        same(tensors, "5a", 1056, [352, 192, 320, 160, 224, 128], average),
        same(tensors, "5b", 1024, [352, 192, 320, 192, 224, 128], Layer::MaxPool),
    ]);
    layers.extend([Layer::AveragePool(Pool::new(7, 1)), Layer::Flatten]);
    layers.push(Layer::Linear(Linear::new(tensors, "fullyconnected0", [1024, classes], Initializers::MXNET)));
    Sequence(layers)
}

fn unit(tensors: &mut NamedTensors, name: &str, shape: ConvolutionShape) -> Layer {
    let names = [format!("conv_{name}"), format!("bn_{name}")];
    Layer::Unit(ConvolutionNorm::new(tensors, [&names[0], &names[1]], shape, Initializers::MXNET, NORM))
}

/// Builds a block that keeps the size. Numbers of outputs: the 1x1 convolution; the 1x1 and 3x3 of the second branch;
/// the 1x1 and both 3x3 of the third branch; the 1x1 after pooling.
fn same(
    tensors: &mut NamedTensors,
    name: &str,
    input: i64,
    [single, reduced, square, twice_reduced, twice, pooled]: [i64; 6],
    pool: fn(Pool) -> Layer,
) -> Layer {
    let mut unit = |suffix: &str, shape| unit(tensors, &format!("{name}_{suffix}"), shape);
    let pointwise = |output| ConvolutionShape::square(input, output, 1);
    let branches = [
        vec![unit("1x1", pointwise(single))],
        vec![unit("3x3_reduce", pointwise(reduced)), unit("3x3", ConvolutionShape::square(reduced, square, 3))],
        vec![
            unit("double_3x3_reduce", pointwise(twice_reduced)),
            unit("double_3x3_0", ConvolutionShape::square(twice_reduced, twice, 3)),
            unit("double_3x3_1", ConvolutionShape::square(twice, twice, 3)),
        ],
        vec![pool(Pool::new(3, 1).padding(1)), unit("proj", pointwise(pooled))],
    ];
    Layer::Branches(branches.into_iter().map(Sequence).collect())
}

/// Builds a block that halves the size. Numbers of outputs: the 1x1 and 3x3 of the first branch; the 1x1 and both 3x3
/// of the second branch.
fn halving(
    tensors: &mut NamedTensors,
    name: &str,
    input: i64,
    [reduced, square, twice_reduced, twice]: [i64; 4],
) -> Layer {
    let mut unit = |suffix: &str, shape| unit(tensors, &format!("{name}_{suffix}"), shape);
    let pointwise = |output| ConvolutionShape::square(input, output, 1);
    let branches = [
        vec![
            unit("3x3_reduce", pointwise(reduced)),
            unit("3x3", ConvolutionShape::square(reduced, square, 3).stride(2)),
        ],
        vec![
            unit("double_3x3_reduce", pointwise(twice_reduced)),
            unit("double_3x3_0", ConvolutionShape::square(twice_reduced, twice, 3)),
            unit("double_3x3_1", ConvolutionShape::square(twice, twice, 3).stride(2)),
        ],
        vec![Layer::MaxPool(Pool::new(3, 2).padding(1))],
    ];
    Layer::Branches(branches.into_iter().map(Sequence).collect())
}
