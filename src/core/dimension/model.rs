//! Names of the networks. Their properties are in [`ModelFacts`], their implementations in the worker's folder `model`.

use anyhow::{Context, bail, ensure};

use crate::dimension::facts::{DecoderShape, FACTS, ImageRule, ModelFacts, ModelInput, Source};
use crate::dimension::{SampleSize, WorkUnit};
use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// A network. Its keyword is the name on the command line and in records. torchvision's networks have torchvision's
    /// names, MXNet's networks of 2016 start with `mxnet-`: two networks that share a name in both are different
    /// networks.
    Model {
        /// ResNet50-v1b of DLPerf and torchvision: the stride of a bottleneck is on its 3x3 convolution.
        Resnet50V1b = "resnet50_v1b" | "resnet50" | "rn50",
        /// torchvision's ResNet-18, with basic blocks.
        Resnet18 = "resnet18",
        /// torchvision's ResNet-34, with basic blocks.
        Resnet34 = "resnet34",
        /// torchvision's ResNet-101.
        Resnet101 = "resnet101",
        /// torchvision's ResNet-152.
        Resnet152 = "resnet152",
        /// torchvision's ResNeXt-50, with 32 groups of 4 channels.
        Resnext50 = "resnext50_32x4d",
        /// torchvision's ResNeXt-101, with 32 groups of 8 channels.
        Resnext101 = "resnext101_32x8d",
        /// VGG-11 of torchvision and MXNet.
        Vgg11 = "vgg11" | "mxnet-vgg-11",
        /// torchvision's VGG-11 with batch normalization.
        Vgg11Bn = "vgg11_bn",
        /// VGG-16 of torchvision and MXNet.
        Vgg16 = "vgg16" | "mxnet-vgg-16",
        /// torchvision's VGG-16 with batch normalization.
        Vgg16Bn = "vgg16_bn",
        /// torchvision's AlexNet of 2014.
        Alexnet = "alexnet",
        /// torchvision's Inception-v3, without its auxiliary head.
        InceptionV3 = "inception_v3",
        /// torchvision's vision transformer ViT-B/16.
        VitB16 = "vit_b_16",
        /// MXNet's ResNet-50 v2.
        MxnetResnet50 = "mxnet-resnet-50",
        /// MXNet's ResNet-101 v2.
        MxnetResnet101 = "mxnet-resnet-101",
        /// MXNet's ResNet-152 v2.
        MxnetResnet152 = "mxnet-resnet-152",
        /// MXNet's ResNet-200 v2.
        MxnetResnet200 = "mxnet-resnet-200",
        /// MXNet's AlexNet of 2012, with a single group.
        MxnetAlexnet = "mxnet-alexnet",
        /// MXNet's Inception with batch normalization.
        MxnetInceptionBn = "mxnet-inception-bn",
        /// MXNet's Inception-v3.
        MxnetInceptionV3 = "mxnet-inception-v3",
        /// MXNet's LeNet, for digits.
        MxnetLenet = "mxnet-lenet" | "lenet",
        /// MXNet's multilayer perceptron, for digits.
        MxnetMlp = "mxnet-mlp" | "mlp",
        /// OpenAI's smallest GPT-2, with 124 million parameters.
        Gpt2Small = "gpt2-124m" | "gpt2" | "gpt2-small" | "openai-community/gpt2",
        /// OpenAI's GPT-2 medium.
        Gpt2Medium = "gpt2-355m" | "gpt2-medium" | "openai-community/gpt2-medium",
        /// Meta's Llama 3.2 with 1.2 billion parameters.
        Llama1b = "llama-1b" | "Llama-3.2-1B" | "meta-llama/Llama-3.2-1B",
        /// Meta's Llama 3.1 with 8 billion parameters.
        Llama8b = "llama-8b" | "Llama-3.1-8B" | "meta-llama/Llama-3.1-8B",
        /// A small GPT-2 over bytes, for tests.
        Gpt2Tiny = "gpt2-tiny",
        /// A small Llama over bytes, for tests.
        LlamaTiny = "llama-tiny",
        /// Any network of images of another program (`ringmark run`).
        OtherImages = "images",
        /// Any language model of another program (`ringmark run`).
        OtherTokens = "tokens",
    }
);

impl Model {
    /// Returns true for a network of ringmark, false for one that stands for those of other programs.
    pub fn is_built_in(self) -> bool {
        !matches!(self, Model::OtherImages | Model::OtherTokens)
    }

    /// Returns the properties of this network.
    pub fn facts(self) -> &'static ModelFacts {
        &FACTS[self as usize]
    }

    /// Splits the name of a run's file into the network and the rest, without the `_` between them.
    pub fn split_from_file_name(name: &str) -> Option<(Model, &str)> {
        let rest = |model: &Model| name.strip_prefix(model.facts().file_name)?.strip_prefix('_');
        // `vgg11` is also the start of `vgg11_bn`.
        let found = Model::ALL.iter().filter_map(|model| Some((*model, rest(model)?)));
        found.min_by_key(|(_, rest)| rest.len())
    }

    /// Parses a network name of MXNet's scripts; `resnet` is the ResNet-152 of measure.py.
    pub fn from_mxnet_name(name: &str) -> anyhow::Result<Model> {
        let known = |model: &&Model| model.facts().source == Source::Mxnet;
        match name {
            "resnet" => Ok(Model::MxnetResnet152),
            "vgg" => Ok(Model::Vgg11),
            _ => match Model::ALL.iter().filter(known).find(|model| model.facts().source_name == name) {
                Some(model) => Ok(*model),
                None => {
                    let names: Vec<&str> =
                        Model::ALL.iter().filter(known).map(|model| model.facts().source_name).collect();
                    bail!("{name:?} is not one of MXNet's resnet, vgg, {}", names.join(", "))
                }
            },
        }
    }

    /// Returns the network of the same family with `layers` layers.
    pub fn with_layers(self, layers: u32) -> anyhow::Result<Model> {
        fn split(model: Model) -> Option<(&'static str, u32)> {
            let family = model.keyword().trim_end_matches(|letter: char| letter.is_ascii_digit());
            Some((family, model.keyword()[family.len()..].parse().ok()?))
        }
        let (family, _) = split(self).with_context(|| format!("{self} is available with one number of layers only"))?;
        let of_family = Model::ALL.iter().filter_map(|model| Some((*model, split(*model)?)));
        let of_family: Vec<(Model, u32)> =
            of_family.filter(|(_, (other, _))| *other == family).map(|(model, (_, count))| (model, count)).collect();
        let found = of_family.iter().find(|(_, count)| *count == layers);
        found.map(|(model, _)| *model).with_context(|| {
            let counts: Vec<String> = of_family.iter().map(|(_, count)| count.to_string()).collect();
            format!("{family}{layers} does not exist: choose {}", counts.join(", "))
        })
    }

    /// Returns the image size: `requested`, or the network's default. `None` for a network of tokens.
    pub fn image_size(self, requested: Option<u32>) -> Option<u32> {
        Some(requested.unwrap_or(self.facts().images()?.size))
    }

    /// Returns the tokens of a sequence: `requested`, or the network's default. `None` for a network of images.
    pub fn sequence_length(self, requested: Option<u32>) -> Option<u32> {
        Some(requested.unwrap_or(self.facts().decoder_shape()?.sequence_length))
    }

    /// Returns the network that stands for all networks of a unit, where conditions are compared without the network.
    pub const fn of_unit(unit: WorkUnit) -> Model {
        match unit {
            WorkUnit::Image => Model::Resnet50V1b,
            WorkUnit::Token => Model::Gpt2Small,
        }
    }

    /// Rejects a network of another program, which ringmark cannot build.
    pub fn check_known(self) -> anyhow::Result<()> {
        ensure!(
            self.facts().is_known(),
            "--model {self} is any network of another program, for `ringmark run`: choose a network such as {}",
            Model::default()
        );
        Ok(())
    }

    /// Returns the unit of the network's speed.
    pub fn unit(self) -> WorkUnit {
        self.facts().unit()
    }

    /// Returns the size of a sample, of which at most one part is requested.
    pub fn sample_size(self, image_size: Option<u32>, sequence_length: Option<u32>) -> SampleSize {
        let pixels = self.image_size(image_size).map(SampleSize::Pixels);
        let tokens = self.sequence_length(sequence_length).map(SampleSize::Tokens);
        pixels.or(tokens).unwrap_or(self.facts().default_size())
    }

    /// Rejects sizes of samples that the network does not support; the error names the supported sizes.
    pub fn check_sample_size(self, image_size: Option<u32>, sequence_length: Option<u32>) -> anyhow::Result<()> {
        match self.facts().input {
            ModelInput::Images(_) => {
                ensure!(
                    sequence_length.is_none(),
                    "--sequence-length does not apply to {self}, a network of images: omit it, or use a language model \
                     such as --model {}",
                    Model::Gpt2Small
                );
                self.image_size(image_size).map_or(Ok(()), |size| self.check_image_size(size))
            }
            ModelInput::Tokens(DecoderShape { context, .. }) => {
                ensure!(image_size.is_none(), "--image-size does not apply to {self}, a language model: omit it");
                let length = self.sequence_length(sequence_length).unwrap_or_default();
                ensure!(
                    (1..=*context).contains(&length),
                    "--sequence-length {length} does not fit {self}: choose 1 to {context}"
                );
                Ok(())
            }
        }
    }

    /// Rejects image sizes that the network does not support; the error names the supported sizes.
    pub fn check_image_size(self, size: u32) -> anyhow::Result<()> {
        let Some(&ImageRule { size: own, smallest, multiple, is_fixed, .. }) = self.facts().images() else {
            bail!("{self} is a language model: choose a network of images")
        };
        let fits = if is_fixed { size == own } else { size >= smallest && size.is_multiple_of(multiple) };
        let rule = match (is_fixed, multiple) {
            (true, _) => format!("images of exactly {own} pixels: omit --image-size"),
            (false, 1) => format!("images of at least {smallest} pixels: choose --image-size {smallest} or more"),
            (false, _) => {
                let nearest = (size / multiple * multiple).max(smallest);
                format!("an image size that is a multiple of {multiple}: choose --image-size {nearest}")
            }
        };
        ensure!(fits, "--image-size {size} does not fit {self}, which needs {rule}");
        Ok(())
    }

    /// Rejects a batch that leaves batch normalization a single value per channel, which has no variance.
    pub fn check_statistics(self, batch_size: u32, image_size: Option<u32>) -> anyhow::Result<()> {
        let (Some(ImageRule { one_pixel, .. }), Some(size)) = (self.facts().images(), self.image_size(image_size))
        else {
            return Ok(());
        };
        ensure!(
            batch_size > 1 || size > *one_pixel,
            "--batch-size 1 with --image-size {size} leaves batch normalization one value per channel of {self}: use \
             --batch-size 2, --image-size {}, or --freeze-batch-norm",
            one_pixel + 1
        );
        Ok(())
    }
}

impl Default for Model {
    /// Returns the network that DLPerf measures.
    fn default() -> Model {
        Model::of_unit(WorkUnit::Image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dimension::Bytes;

    #[test]
    fn network_is_found_by_its_file_name() {
        for model in Model::ALL {
            let name = format!("{}_b8", model.facts().file_name);
            assert_eq!(Model::split_from_file_name(&name), Some((*model, "b8")));
        }
        assert_eq!(Model::split_from_file_name("vgg_b8"), None);
        assert_eq!(Model::default().facts().gradient_bytes(), Bytes(102_228_128));
    }

    #[test]
    fn unsupported_image_size_names_a_supported_one() {
        for model in Model::ALL {
            model.check_sample_size(None, None).expect("its own size");
        }
        for (model, size, advice) in [
            (Model::InceptionV3, 74, "choose --image-size 75 or more"),
            (Model::Vgg16, 100, "choose --image-size 96"),
            (Model::VitB16, 256, "images of exactly 224 pixels"),
            (Model::MxnetLenet, 224, "images of exactly 28 pixels"),
            (Model::Resnet18, 31, "choose --image-size 32 or more"),
        ] {
            let refused = model.check_image_size(size).expect_err("refused").to_string();
            assert!(refused.contains(advice) && refused.contains(&size.to_string()), "{refused}");
        }
        let refused = |model: Model, image_size, sequence_length| {
            model.check_sample_size(image_size, sequence_length).expect_err("refused").to_string()
        };
        assert!(refused(Model::Gpt2Small, None, Some(1025)).ends_with("choose 1 to 1024"));
        assert!(refused(Model::Gpt2Small, Some(224), None).contains("language model"));
        assert!(refused(Model::Resnet18, None, Some(64)).contains("--model gpt2-124m"));
    }
}
