//! Constructors of the networks in ringmark_core's table. A new network needs a line in that table and a line here,
//! and, if it belongs to a new family, a file in this folder that uses the shared [`layers`](crate::model::layers).

mod alexnet;
pub mod decoder;
#[cfg(test)]
mod decoder_reference;
mod inception;
mod mxnet;
#[cfg(test)]
mod reference;
mod resnet;
mod vgg;
mod vision_transformer;

use ringmark_core::dimension::{Model, ModelInput};
use tch::Device;

use crate::model::network::{NamedTensors, Network};
use crate::model::networks::decoder::Decoder;
use crate::model::networks::resnet::{Blocks, ResNet};
use crate::model::networks::vgg::{VGG11, VGG16};
use crate::model::networks::vision_transformer::{TransformerShape, VisionTransformer};

/// Options of networks that have them.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkOptions {
    /// Probability of dropout; `None` is the network's own.
    pub dropout: Option<f64>,
    /// True if backward computes the activations of each block of a decoder again.
    pub recompute: bool,
}

/// Builds `model` with weights drawn from the device's generator, and adds its tensors to `tensors`.
pub fn build(model: Model, options: NetworkOptions, tensors: &mut NamedTensors) -> Box<dyn Network> {
    let NetworkOptions { dropout, recompute } = options;
    let classes = match model.facts().input {
        ModelInput::Images(rule) => i64::from(rule.classes),
        ModelInput::Tokens(shape) => return Box::new(Decoder::new(tensors, shape, recompute)),
    };
    let half = dropout.unwrap_or(0.5);
    let residual = |tensors, blocks| -> Box<dyn Network> { Box::new(ResNet::new(tensors, blocks, classes)) };
    let residual_v2 =
        |tensors, stages| -> Box<dyn Network> { Box::new(mxnet::resnet::ResNetV2::new(tensors, stages, classes)) };
    match model {
        Model::Resnet50V1b => residual(tensors, Blocks::RESNET50),
        Model::Resnet18 => residual(tensors, Blocks::RESNET18),
        Model::Resnet34 => residual(tensors, Blocks::RESNET34),
        Model::Resnet101 => residual(tensors, Blocks::RESNET101),
        Model::Resnet152 => residual(tensors, Blocks::RESNET152),
        Model::Resnext50 => residual(tensors, Blocks::RESNEXT50_32X4D),
        Model::Resnext101 => residual(tensors, Blocks::RESNEXT101_32X8D),
        Model::Vgg11 => Box::new(vgg::vgg(tensors, VGG11, false, classes, half)),
        Model::Vgg11Bn => Box::new(vgg::vgg(tensors, VGG11, true, classes, half)),
        Model::Vgg16 => Box::new(vgg::vgg(tensors, VGG16, false, classes, half)),
        Model::Vgg16Bn => Box::new(vgg::vgg(tensors, VGG16, true, classes, half)),
        Model::Alexnet => Box::new(alexnet::alexnet(tensors, classes, half)),
        Model::InceptionV3 => Box::new(inception::inception_v3(tensors, classes, half)),
        Model::VitB16 => {
            Box::new(VisionTransformer::new(tensors, TransformerShape::B_16, classes, dropout.unwrap_or(0.0)))
        }
        Model::MxnetResnet50 => residual_v2(tensors, mxnet::resnet::RESNET50),
        Model::MxnetResnet101 => residual_v2(tensors, mxnet::resnet::RESNET101),
        Model::MxnetResnet152 => residual_v2(tensors, mxnet::resnet::RESNET152),
        Model::MxnetResnet200 => residual_v2(tensors, mxnet::resnet::RESNET200),
        Model::MxnetAlexnet => Box::new(mxnet::alexnet::alexnet(tensors, classes, half)),
        Model::MxnetInceptionBn => Box::new(mxnet::inception_bn::inception_bn(tensors, classes)),
        Model::MxnetInceptionV3 => Box::new(inception::mxnet_inception_v3(tensors, classes)),
        Model::MxnetLenet => Box::new(mxnet::lenet::lenet(tensors, classes)),
        Model::MxnetMlp => Box::new(mxnet::mlp::mlp(tensors, classes)),
        // The shape of a decoder is enough; the test below builds every network.
        other => unreachable!("no network is defined for {other}"),
    }
}

/// Returns the tensors of `model` for their names and shapes only.
pub fn tensors(model: Model) -> NamedTensors {
    let mut tensors = NamedTensors::new(model.facts().source, Device::Cpu);
    build(model, NetworkOptions::default(), &mut tensors);
    tensors
}

#[cfg(test)]
mod tests {
    use ringmark_core::options::keyword_enum::KeywordEnum;

    use super::*;

    #[test]
    fn networks_have_the_documented_parameters() {
        for model in Model::ALL.iter().filter(|model| model.facts().is_known()) {
            let tensors = tensors(*model);
            let facts = model.facts();
            let built = (tensors.elements() as u64, tensors.parameters.len() as u32);
            assert_eq!(built, (facts.parameters, facts.arrays), "{model}");
        }
    }
}
