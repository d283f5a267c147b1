//! ResNet50-v1b, leaf to whole: Deep Residual Learning for Image Recognition (He et al., 2015) with the stride of a
//! bottleneck on its 3x3 convolution. The same network as v1.5 and torchvision's `resnet50`, names included.
//!
//! 25,557,032 parameters in 161 tensors, 102,228,128 bytes of fp32; 4.089 G multiply-adds forward at 224 pixels.

use anyhow::Result;
use tch::{Device, Tensor};

use crate::model::named_tensors::NamedTensors;

/// Classes of ImageNet-1k.
pub const CLASSES: i64 = 1000;

struct Convolution {
    weight: Tensor,
    stride: i64,
    padding: i64,
}

impl Convolution {
    /// A square kernel of `kernel` pixels, without bias.
    fn new(tensors: &mut NamedTensors, name: &str, [input, output]: [i64; 2], kernel: i64, stride: i64) -> Convolution {
        let weight = tensors.convolution(format!("{name}.weight"), [output, input, kernel, kernel]);
        Convolution { weight, stride, padding: kernel / 2 }
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let (stride, padding) = ([self.stride; 2], [self.padding; 2]);
        // A kernel of one pixel has nothing to dilate. On the CPU libtorch gives undilated ones of a small batch on one
        // thread to a plain matrix product that first copies channels_last images; dilated ones always go to oneDNN.
        let dilation = if self.padding == 0 && images.device() == Device::Cpu { 2 } else { 1 };
        Ok(images.f_conv2d(&self.weight, None::<&Tensor>, stride, padding, [dilation; 2], 1)?)
    }
}

struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_variance: Tensor,
}

impl BatchNorm {
    fn new(tensors: &mut NamedTensors, name: &str, channels: i64) -> BatchNorm {
        BatchNorm {
            weight: tensors.constant(format!("{name}.weight"), channels, 1.0),
            bias: tensors.constant(format!("{name}.bias"), channels, 0.0),
            running_mean: tensors.buffer(format!("{name}.running_mean"), channels, 0.0),
            running_variance: tensors.buffer(format!("{name}.running_var"), channels, 1.0),
        }
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        const MOMENTUM: f64 = 0.1;
        const EPSILON: f64 = 1e-5;
        Ok(images.f_batch_norm(
            Some(&self.weight),
            Some(&self.bias),
            Some(&self.running_mean),
            Some(&self.running_variance),
            mode == Mode::Train,
            MOMENTUM,
            EPSILON,
            true,
        )?)
    }
}

/// 1x1, 3x3 and 1x1 convolutions around a shortcut: `inner` channels inside, `4 x inner` outside.
struct Bottleneck {
    conv1: Convolution,
    bn1: BatchNorm,
    conv2: Convolution,
    bn2: BatchNorm,
    conv3: Convolution,
    bn3: BatchNorm,
    downsample: Option<(Convolution, BatchNorm)>,
}

impl Bottleneck {
    fn new(tensors: &mut NamedTensors, name: &str, input: i64, inner: i64, stride: i64) -> Bottleneck {
        let output = 4 * inner;
        Bottleneck {
            conv1: Convolution::new(tensors, &format!("{name}.conv1"), [input, inner], 1, 1),
            bn1: BatchNorm::new(tensors, &format!("{name}.bn1"), inner),
            conv2: Convolution::new(tensors, &format!("{name}.conv2"), [inner, inner], 3, stride),
            bn2: BatchNorm::new(tensors, &format!("{name}.bn2"), inner),
            conv3: Convolution::new(tensors, &format!("{name}.conv3"), [inner, output], 1, 1),
            bn3: BatchNorm::new(tensors, &format!("{name}.bn3"), output),
            downsample: (stride != 1 || input != output).then(|| {
                (
                    Convolution::new(tensors, &format!("{name}.downsample.0"), [input, output], 1, stride),
                    BatchNorm::new(tensors, &format!("{name}.downsample.1"), output),
                )
            }),
        }
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let inside = self.bn1.forward(&self.conv1.forward(images)?, mode)?.f_relu_()?;
        let inside = self.bn2.forward(&self.conv2.forward(&inside)?, mode)?.f_relu_()?;
        let mut inside = self.bn3.forward(&self.conv3.forward(&inside)?, mode)?;
        let sum = match &self.downsample {
            Some((convolution, norm)) => inside.f_add_(&norm.forward(&convolution.forward(images)?, mode)?),
            None => inside.f_add_(images),
        };
        Ok(sum?.f_relu_()?)
    }
}

/// What batch normalization goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The batch's statistics, which also move the running ones.
    Train,
    /// The running statistics, which stay as they are.
    FrozenBatchNorm,
}

/// The whole network.
pub struct ResNet50 {
    conv1: Convolution,
    bn1: BatchNorm,
    blocks: Vec<Bottleneck>,
    fc_weight: Tensor,
    fc_bias: Tensor,
}

impl ResNet50 {
    /// Makes the weights, drawn from the device's generator, and leaves each in `tensors` under its name.
    pub fn new(tensors: &mut NamedTensors) -> ResNet50 {
        let conv1 = Convolution::new(tensors, "conv1", [3, 64], 7, 2);
        let bn1 = BatchNorm::new(tensors, "bn1", 64);
        let mut blocks = Vec::new();
        let mut input = 64;
        for (layer, (count, inner, stride)) in [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)].into_iter().enumerate() {
            for block in 0..count {
                let name = format!("layer{}.{block}", layer + 1);
                blocks.push(Bottleneck::new(tensors, &name, input, inner, if block == 0 { stride } else { 1 }));
                input = 4 * inner;
            }
        }
        let fc_weight = tensors.linear("fc.weight".to_owned(), &[CLASSES, 2048], 2048);
        let fc_bias = tensors.linear("fc.bias".to_owned(), &[CLASSES], 2048);
        ResNet50 { conv1, bn1, blocks, fc_weight, fc_bias }
    }

    /// Scores of every class, `[batch, 1000]`, for images `[batch, 3, size, size]`.
    pub fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let stem = self.bn1.forward(&self.conv1.forward(images)?, mode)?.f_relu_()?;
        let mut features = stem.f_max_pool2d([3, 3], [2, 2], [1, 1], [1, 1], false)?;
        for block in &self.blocks {
            features = block.forward(&features, mode)?;
        }
        let pooled = features.f_adaptive_avg_pool2d([1, 1])?.f_flatten(1, -1)?;
        Ok(pooled.f_linear(&self.fc_weight, Some(&self.fc_bias))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_torchvision_s_size() {
        let mut tensors = NamedTensors::new(Device::Cpu);
        ResNet50::new(&mut tensors);
        let elements: usize = tensors.parameters.iter().map(|named| named.tensor.numel()).sum();
        assert_eq!((tensors.parameters.len(), elements), (161, 25_557_032));
        assert_eq!(tensors.buffers.len(), 2 * 53);
        assert_eq!(tensors.parameters[3].name, "layer1.0.conv1.weight");
    }
}
