//! ResNet v2: Identity Mappings in Deep Residual Networks (He et al., 2016). Normalization and ReLU precede each
//! convolution, and the images are normalized first.

use anyhow::Result;
use tch::Tensor;

use crate::model::layers::{
    BatchNorm, BatchNormKind, Convolution, ConvolutionNorm, ConvolutionShape, Epilogue, Linear, Pool, channel_means,
};
use crate::model::network::{Initializers, Mode, NamedTensors, Network};
use crate::model::unit;

const NORM: BatchNormKind = BatchNormKind { epsilon: 2e-5, fixed_scale: false };
const IMAGE_NORM: BatchNormKind = BatchNormKind { fixed_scale: true, ..NORM };
const CONVOLUTION: Initializers = Initializers::MXNET.unbiased();

/// Numbers of units in the four stages of each network.
pub const RESNET50: [usize; 4] = [3, 4, 6, 3];
pub const RESNET101: [usize; 4] = [3, 4, 23, 3];
pub const RESNET152: [usize; 4] = [3, 8, 36, 3];
pub const RESNET200: [usize; 4] = [3, 24, 36, 3];

/// 1x1, 3x3 and 1x1 convolutions of the normalized input, added to the input or, in the first unit of a stage, to a
/// convolution of the normalized input.
struct Unit {
    norm: BatchNorm,
    first: ConvolutionNorm,
    second: ConvolutionNorm,
    third: Convolution,
    shortcut: Option<Convolution>,
}

impl Unit {
    fn new(tensors: &mut NamedTensors, name: &str, input: i64, output: i64, stride: i64) -> Unit {
        let inner = output / 4;
        let named = |what: &str| format!("{name}_{what}");
        // Order of MXNet's arguments: each normalization belongs to the convolution before it.
        let norm = BatchNorm::new(tensors, &named("bn1"), input, NORM);
        let mut unit = |number: usize, shape| {
            let names = [named(&format!("conv{number}")), named(&format!("bn{}", number + 1))];
            ConvolutionNorm::new(tensors, [&names[0], &names[1]], shape, CONVOLUTION, NORM)
        };
        let first = unit(1, ConvolutionShape::square(input, inner, 1));
        let second = unit(2, ConvolutionShape::square(inner, inner, 3).stride(stride));
        let mut convolution = |what, shape| Convolution::new(tensors, &named(what), shape, CONVOLUTION);
        let third = convolution("conv3", ConvolutionShape::square(inner, output, 1));
        let shortcut = ConvolutionShape::square(input, output, 1).stride(stride);
        let shortcut = (input != output).then(|| convolution("sc", shortcut));
        Unit { norm, first, second, third, shortcut }
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let normalized = self.norm.forward(images, Epilogue::Relu, false, mode)?.first;
        let inside = self.first.rectified(&normalized, mode)?;
        let inside = self.second.rectified(&inside, mode)?;
        let shortcut = match &self.shortcut {
            Some(convolution) => convolution.forward(&normalized, mode)?,
            None => images.shallow_clone(),
        };
        Ok(self.third.forward(&inside, mode)?.f_add_(&shortcut)?)
    }
}

pub struct ResNetV2 {
    image_norm: BatchNorm,
    stem: ConvolutionNorm,
    first: unit::Unit,
    units: Vec<(unit::Unit, Unit)>,
    last: unit::Unit,
    norm: BatchNorm,
    classifier: Linear,
}

impl ResNetV2 {
    pub fn new(tensors: &mut NamedTensors, stages: [usize; 4], classes: i64) -> ResNetV2 {
        let first = tensors.begin_unit();
        let image_norm = BatchNorm::new(tensors, "bn_data", 3, IMAGE_NORM);
        let seven = ConvolutionShape::square(3, 64, 7).stride(2);
        let stem = ConvolutionNorm::new(tensors, ["conv0", "bn0"], seven, CONVOLUTION, NORM);
        let mut units = Vec::new();
        let mut input = 64;
        for (stage, (count, output)) in stages.into_iter().zip([256, 512, 1024, 2048]).enumerate() {
            for number in 0..count {
                let stride = if number == 0 && stage > 0 { 2 } else { 1 };
                let name = format!("stage{}_unit{}", stage + 1, number + 1);
                units.push((tensors.begin_unit(), Unit::new(tensors, &name, input, output, stride)));
                input = output;
            }
        }
        ResNetV2 {
            image_norm,
            stem,
            first,
            units,
            last: tensors.begin_unit(),
            norm: BatchNorm::new(tensors, "bn1", input, NORM),
            classifier: Linear::new(tensors, "fc1", [input, classes], Initializers::MXNET),
        }
    }
}

impl Network for ResNetV2 {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let mut features = self.first.run(|| {
            let normalized = self.image_norm.forward(images, Epilogue::Nothing, false, mode)?.first;
            Ok(self.stem.pooled(&normalized, Pool::new(3, 2).padding(1), mode)?.first)
        })?;
        for (unit, layers) in &self.units {
            features = unit.run(|| layers.forward(&features, mode))?;
        }
        self.last.run(|| {
            let normalized = self.norm.forward(&features, Epilogue::Relu, false, mode)?.first;
            self.classifier.forward(&channel_means(&normalized)?, mode)
        })
    }
}
