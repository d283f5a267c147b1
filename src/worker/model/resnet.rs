//! ResNet, leaf to whole: Deep Residual Learning for Image Recognition (He et al., 2015), with torchvision's names.
//!
//! ResNet50-v1b has the stride of a bottleneck on its 3x3 convolution: the same network as v1.5 and torchvision's
//! `resnet50`.

use anyhow::Result;
use tch::Tensor;

use crate::model::layers::{BatchNorm, Convolution, ConvolutionShape, Linear};
use crate::model::named_tensors::NamedTensors;
use crate::model::network::{Mode, Network};

/// A convolution and the normalization behind it.
struct ConvolutionNorm {
    convolution: Convolution,
    norm: BatchNorm,
}

impl ConvolutionNorm {
    /// Under the two names.
    fn new(tensors: &mut NamedTensors, names: [&str; 2], shape: ConvolutionShape) -> ConvolutionNorm {
        ConvolutionNorm {
            convolution: Convolution::new(tensors, names[0], shape),
            norm: BatchNorm::new(tensors, names[1], shape.output),
        }
    }

    /// Number `number` of a block.
    fn in_block(tensors: &mut NamedTensors, block: &str, number: usize, shape: ConvolutionShape) -> ConvolutionNorm {
        let names = [format!("{block}.conv{number}"), format!("{block}.bn{number}")];
        ConvolutionNorm::new(tensors, [&names[0], &names[1]], shape)
    }

    /// With ReLU.
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        self.norm.forward(&self.convolution.forward(images)?, None, true, mode)
    }
}

/// Where a block is in the network.
#[derive(Debug, Clone, Copy)]
struct BlockShape {
    input: i64,
    inner: i64,
    stride: i64,
}

/// What goes around a block: its input, or a convolution of it where the shape changes.
struct Shortcut(Option<ConvolutionNorm>);

impl Shortcut {
    fn new(tensors: &mut NamedTensors, block: &str, shape: BlockShape, output: i64) -> Shortcut {
        let BlockShape { input, stride, .. } = shape;
        let names = [format!("{block}.downsample.0"), format!("{block}.downsample.1")];
        let shape = ConvolutionShape { input, output, kernel: 1, stride };
        let changes = stride != 1 || input != output;
        Shortcut(changes.then(|| ConvolutionNorm::new(tensors, [&names[0], &names[1]], shape)))
    }

    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        match &self.0 {
            Some(ConvolutionNorm { convolution, norm }) => {
                norm.forward(&convolution.forward(images)?, None, false, mode)
            }
            None => Ok(images.shallow_clone()),
        }
    }
}

/// A residual block.
trait Block {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor>;
}

/// 1x1, 3x3 and 1x1 convolutions around a shortcut: `inner` channels inside, `4 x inner` outside.
struct Bottleneck {
    first: ConvolutionNorm,
    second: ConvolutionNorm,
    third: ConvolutionNorm,
    shortcut: Shortcut,
}

impl Bottleneck {
    const EXPANSION: i64 = 4;

    fn new(tensors: &mut NamedTensors, name: &str, shape: BlockShape) -> Bottleneck {
        let BlockShape { input, inner, stride } = shape;
        let output = Bottleneck::EXPANSION * inner;
        let pointwise = |input, output| ConvolutionShape { input, output, kernel: 1, stride: 1 };
        let square = ConvolutionShape { input: inner, output: inner, kernel: 3, stride };
        Bottleneck {
            first: ConvolutionNorm::in_block(tensors, name, 1, pointwise(input, inner)),
            second: ConvolutionNorm::in_block(tensors, name, 2, square),
            third: ConvolutionNorm::in_block(tensors, name, 3, pointwise(inner, output)),
            shortcut: Shortcut::new(tensors, name, shape, output),
        }
    }
}

impl Block for Bottleneck {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let inside = self.first.forward(images, mode)?;
        let inside = self.second.forward(&inside, mode)?;
        let inside = self.third.convolution.forward(&inside)?;
        let shortcut = self.shortcut.forward(images, mode)?;
        self.third.norm.forward(&inside, Some(&shortcut), true, mode)
    }
}

/// Two 3x3 convolutions around a shortcut.
struct BasicBlock {
    first: ConvolutionNorm,
    second: ConvolutionNorm,
    shortcut: Shortcut,
}

impl BasicBlock {
    const EXPANSION: i64 = 1;

    fn new(tensors: &mut NamedTensors, name: &str, shape: BlockShape) -> BasicBlock {
        let BlockShape { input, inner, stride } = shape;
        let first = ConvolutionShape { input, output: inner, kernel: 3, stride };
        let second = ConvolutionShape { input: inner, output: inner, kernel: 3, stride: 1 };
        BasicBlock {
            first: ConvolutionNorm::in_block(tensors, name, 1, first),
            second: ConvolutionNorm::in_block(tensors, name, 2, second),
            shortcut: Shortcut::new(tensors, name, shape, BasicBlock::EXPANSION * inner),
        }
    }
}

impl Block for BasicBlock {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let inside = self.first.forward(images, mode)?;
        let inside = self.second.convolution.forward(&inside)?;
        let shortcut = self.shortcut.forward(images, mode)?;
        self.second.norm.forward(&inside, Some(&shortcut), true, mode)
    }
}

/// The whole network.
pub struct ResNet {
    stem: ConvolutionNorm,
    blocks: Vec<Box<dyn Block>>,
    fc: Linear,
}

impl ResNet {
    /// 2, 2, 2 and 2 basic blocks, otherwise as [`resnet50`](ResNet::resnet50).
    pub fn resnet18(tensors: &mut NamedTensors, classes: i64) -> ResNet {
        let basic = |tensors: &mut NamedTensors, name: &str, shape| -> Box<dyn Block> {
            Box::new(BasicBlock::new(tensors, name, shape))
        };
        ResNet::new(tensors, [2, 2, 2, 2], BasicBlock::EXPANSION, basic, classes)
    }

    /// 3, 4, 6 and 3 bottlenecks. Makes the weights, drawn from the device's generator, and leaves each in `tensors` under
    /// its name.
    pub fn resnet50(tensors: &mut NamedTensors, classes: i64) -> ResNet {
        let bottleneck = |tensors: &mut NamedTensors, name: &str, shape| -> Box<dyn Block> {
            Box::new(Bottleneck::new(tensors, name, shape))
        };
        ResNet::new(tensors, [3, 4, 6, 3], Bottleneck::EXPANSION, bottleneck, classes)
    }

    /// `blocks` in each of the four layers, which leave `expansion` times their inner channels.
    fn new(
        tensors: &mut NamedTensors,
        blocks: [usize; 4],
        expansion: i64,
        block: impl Fn(&mut NamedTensors, &str, BlockShape) -> Box<dyn Block>,
        classes: i64,
    ) -> ResNet {
        let seven = ConvolutionShape { input: 3, output: 64, kernel: 7, stride: 2 };
        let stem = ConvolutionNorm::new(tensors, ["conv1", "bn1"], seven);
        let mut all = Vec::new();
        let mut input = 64;
        for (layer, (count, inner)) in blocks.into_iter().zip([64, 128, 256, 512]).enumerate() {
            for number in 0..count {
                // The first block of a layer halves the size; max pooling has done it for the first layer.
                let stride = if number == 0 && layer > 0 { 2 } else { 1 };
                let name = format!("layer{}.{number}", layer + 1);
                all.push(block(tensors, &name, BlockShape { input, inner, stride }));
                input = expansion * inner;
            }
        }
        ResNet { stem, blocks: all, fc: Linear::new(tensors, "fc", input, classes) }
    }
}

impl Network for ResNet {
    fn forward(&self, images: &Tensor, mode: Mode) -> Result<Tensor> {
        let stem = self.stem.forward(images, mode)?;
        let mut features = stem.f_max_pool2d([3, 3], [2, 2], [1, 1], [1, 1], false)?;
        for block in &self.blocks {
            features = block.forward(&features, mode)?;
        }
        let pooled = features.f_adaptive_avg_pool2d([1, 1])?.f_flatten(1, -1)?;
        self.fc.forward(&pooled)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tch::{Device, Kind, Reduction};

    use super::*;
    use crate::model::named_tensors::Named;
    use crate::testing::seeded;

    /// The numbers were made by `tests/golden/model_reference.py`, which says how and why from such weights.
    #[test]
    fn a_step_is_torchvision_s_in_both_layouts() {
        check_step(ResNet::resnet50, &golden()["step"], "bn3.weight");
        check_step(ResNet::resnet18, &golden()["resnet18"]["step"], "bn2.weight");
    }

    fn golden() -> Value {
        serde_json::from_str(include_str!("../../../tests/golden/model_reference.json")).expect("JSON")
    }

    /// `last_norm` ends the name of the weight that each block's last normalization has.
    fn check_step(network: fn(&mut NamedTensors, i64) -> ResNet, golden: &Value, last_norm: &str) {
        let _generator = seeded(8);
        for layout in ["nchw", "nhwc"] {
            let strided = |images: &Tensor| match layout {
                "nhwc" => images.permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]),
                _ => images.contiguous(),
            };
            let mut tensors = NamedTensors::new(Device::Cpu);
            let model = network(&mut tensors, 1000);
            tch::manual_seed(8);
            for named in tensors.parameters.iter_mut().chain(&mut tensors.buffers) {
                let value = drawn(named, last_norm);
                named.tensor.set_data(&if value.dim() == 4 { strided(&value) } else { value });
            }
            let images = strided(&Tensor::randn([2, 3, 64, 64], (Kind::Float, Device::Cpu)));
            let scores = model.forward(&images, Mode::BatchStatistics).expect("scores");
            let labels = Tensor::from_slice(&[3i64, 977]);
            let loss = scores.cross_entropy_loss(&labels, None::<&Tensor>, Reduction::Mean, -100, 0.0);
            loss.backward();

            let check = |what: &str, actual: f64, expected: &Value| {
                let expected = expected.as_f64().expect("a number");
                let difference = (actual - expected).abs() / expected.abs();
                assert!(difference < 1e-4, "{layout}, {what}: {actual}, torchvision {expected}");
            };
            check("loss", loss.double_value(&[]), &golden["loss"]);
            for image in 0..2 {
                for (place, class) in [0, 3, 500, 977, 999].into_iter().enumerate() {
                    let score = scores.double_value(&[image, class]);
                    check(&format!("score {class} of {image}"), score, &golden["scores"][image as usize][place]);
                }
            }
            let norms = |key: &str, list: &[Named], norm: fn(&Tensor) -> Tensor| {
                for (name, expected) in golden[key].as_object().expect("norms by name") {
                    let named = list.iter().find(|named| &named.name == name).expect("a known name");
                    check(name, norm(&named.tensor).to_kind(Kind::Double).norm().double_value(&[]), expected);
                }
            };
            norms("gradient_norms", &tensors.parameters, Tensor::grad);
            norms("running_norms", &tensors.buffers, Tensor::shallow_clone);

            let evaluated =
                tch::no_grad(|| model.forward(&images, Mode::RunningStatistics)).expect("scores of evaluation");
            for image in 0..2 {
                for (place, class) in [0, 3, 500, 977].into_iter().enumerate() {
                    let score = evaluated.double_value(&[image, class]);
                    let expected = &golden["evaluated"][image as usize][place];
                    check(&format!("evaluated score {class} of {image}"), score, expected);
                }
            }
        }
    }

    /// `drawn` of `tests/golden/model_reference.py`.
    fn drawn(named: &Named, last_norm: &str) -> Tensor {
        let (name, shape) = (&named.name, named.tensor.size());
        let (deviation, mean) = match shape[..] {
            [output, _, height, width] => ((2.0 / (output * height * width) as f64).sqrt(), 0.0),
            _ if name.starts_with("fc.") => (0.005, 0.0),
            _ if name.ends_with("bias") => (0.1, 2.0),
            _ if name.ends_with("running_mean") => (0.1, 0.0),
            _ if name.starts_with("layer") && name.ends_with(last_norm) => (0.1, 0.25),
            _ => (0.1, 1.0),
        };
        Tensor::randn(&shape[..], (Kind::Float, Device::Cpu)) * deviation + mean
    }
}
