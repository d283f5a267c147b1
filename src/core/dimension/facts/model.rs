//! Facts about each network that are available without building it: source, images, size.

use crate::dimension::facts::decoder::DecoderShape;
use crate::dimension::facts::rank_memory::RankMemory;
use crate::dimension::{Bytes, SampleSize, WorkUnit};

/// Origin of a network, and of the names of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// torchvision 0.26.
    Torchvision,
    /// MXNet's example/image-classification/symbols.
    Mxnet,
    /// Hugging Face's transformers.
    HuggingFace,
}

impl Source {
    /// Returns the name for messages.
    pub const fn name(self) -> &'static str {
        match self {
            Source::Torchvision => "torchvision",
            Source::Mxnet => "MXNet",
            Source::HuggingFace => "Hugging Face",
        }
    }
}

/// Images that a network accepts, and its number of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRule {
    /// Channels of an image.
    pub channels: u32,
    /// Default height and width in pixels.
    pub size: u32,
    /// Minimum height and width.
    pub smallest: u32,
    /// Required divisor of height and width.
    pub multiple: u32,
    /// True if only one size is accepted.
    pub is_fixed: bool,
    /// Largest size for which the last batch normalization has one pixel; 0 if there is none.
    pub one_pixel: u32,
    /// Number of classes.
    pub classes: u32,
}

impl ImageRule {
    /// Returns the rule for color images of ImageNet's classes: `size` pixels, at least `smallest`, and a multiple of
    /// `multiple`.
    const fn torchvision(size: u32, smallest: u32, multiple: u32) -> ImageRule {
        ImageRule { channels: 3, size, smallest, multiple, is_fixed: smallest == size, one_pixel: 0, classes: 1000 }
    }

    /// Returns the rule for images of one size.
    const fn exactly(channels: u32, size: u32, classes: u32) -> ImageRule {
        ImageRule { channels, size, smallest: size, multiple: 1, is_fixed: true, one_pixel: 0, classes }
    }

    /// Sets the largest size for which the last batch normalization has one pixel.
    const fn one_pixel_up_to(self, one_pixel: u32) -> ImageRule {
        ImageRule { one_pixel, ..self }
    }
}

/// The last stage of a residual network reduces 32 pixels to one.
const IMAGENET: ImageRule = ImageRule::torchvision(224, 32, 1).one_pixel_up_to(32);
/// Five pooling layers halve the size.
const VGG: ImageRule = ImageRule::torchvision(224, 32, 32);
/// MXNet builds a different network of the same name for up to 32 pixels.
const MXNET_RESNET: ImageRule = ImageRule::torchvision(224, 33, 1);

/// Cost of a training step in forward passes: backward takes about twice as many operations as forward, for the
/// gradients of the weights and of the activations.
pub const PASSES_OF_TRAINING: f64 = 3.0;

/// Samples that a network accepts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelInput {
    /// Images of the sizes in this rule.
    Images(ImageRule),
    /// Sequences of tokens.
    Tokens(&'static DecoderShape),
}

/// Facts about a network that are available without building it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFacts {
    /// Name for titles.
    pub title: &'static str,
    /// First part of every file name and top-level key of DLPerf's JSON: DLPerf's short name if it has one.
    pub file_name: &'static str,
    /// Origin of the network.
    pub source: Source,
    /// Name of the network in its source and in that source's benchmarks.
    pub source_name: &'static str,
    /// Samples that it accepts.
    pub input: ModelInput,
    /// Multiply-accumulates of a sample's forward pass at the default size, in 1e9: torchvision's figure, or counted in
    /// the same way.
    pub gmacs: f64,
    /// Number of trained parameters.
    pub parameters: u64,
    /// Number of parameter arrays.
    pub arrays: u32,
    /// Memory of a rank that trains on a CPU.
    pub training_memory: RankMemory,
    /// Memory of a rank that scores on a CPU.
    pub scoring_memory: RankMemory,
}

impl ModelFacts {
    /// Returns the facts of a decoder.
    const fn decoder(shape: &'static DecoderShape) -> ModelFacts {
        ModelFacts {
            title: shape.title,
            file_name: shape.keyword,
            source: Source::HuggingFace,
            source_name: shape.source_name,
            input: ModelInput::Tokens(shape),
            gmacs: shape.gmacs(shape.sequence_length),
            parameters: shape.parameters(),
            arrays: shape.arrays(),
            training_memory: shape.training_memory(),
            scoring_memory: shape.scoring_memory(),
        }
    }

    /// Returns the unit of the network's speed.
    pub const fn unit(&self) -> WorkUnit {
        match self.input {
            ModelInput::Images(_) => WorkUnit::Image,
            ModelInput::Tokens(_) => WorkUnit::Token,
        }
    }

    /// Returns the rule for images; `None` for a network of tokens.
    pub const fn images(&self) -> Option<&ImageRule> {
        match &self.input {
            ModelInput::Images(rule) => Some(rule),
            ModelInput::Tokens(_) => None,
        }
    }

    /// Returns the shape of a decoder; `None` for a network of images.
    pub const fn decoder_shape(&self) -> Option<&'static DecoderShape> {
        match self.input {
            ModelInput::Images(_) => None,
            ModelInput::Tokens(shape) => Some(shape),
        }
    }

    /// Returns the size of a sample by default.
    pub const fn default_size(&self) -> SampleSize {
        match self.input {
            ModelInput::Images(rule) => SampleSize::Pixels(rule.size),
            ModelInput::Tokens(shape) => SampleSize::Tokens(shape.sequence_length),
        }
    }

    /// Returns the multiply-accumulates of the forward pass of a sample of this size, in 1e9: for images they grow with
    /// the number of pixels, as activations do.
    pub fn gmacs_at(&self, size: SampleSize) -> f64 {
        match (self.input, size) {
            (ModelInput::Tokens(shape), SampleSize::Tokens(length)) => shape.gmacs(length),
            _ => self.gmacs * self.size_ratio(size),
        }
    }

    /// Returns the floating-point operations of one image or token in 1e12, `passes` times its forward pass, in samples
    /// of this size: a multiply-accumulate counts as two.
    pub fn teraflops_of_unit(&self, size: SampleSize, passes: f64) -> f64 {
        let units = match size {
            SampleSize::Pixels(_) => 1.0,
            SampleSize::Tokens(length) => f64::from(length),
        };
        passes * 2.0 * self.gmacs_at(size) / 1e3 / units
    }

    /// Returns the pixels or tokens of a sample of this size divided by those at the default size.
    pub fn size_ratio(&self, size: SampleSize) -> f64 {
        match (size, self.default_size()) {
            (SampleSize::Pixels(size), SampleSize::Pixels(own)) => (f64::from(size) / f64::from(own)).powi(2),
            (SampleSize::Tokens(length), SampleSize::Tokens(own)) => f64::from(length) / f64::from(own),
            _ => 1.0,
        }
    }

    /// Returns the size of the gradients in fp32.
    pub const fn gradient_bytes(&self) -> Bytes {
        Bytes(4 * self.parameters)
    }
}

/// Facts of all networks, in the order of [`Model`](crate::dimension::Model).
pub static FACTS: [ModelFacts; 29] = [
    ModelFacts {
        title: "ResNet50-v1b",
        file_name: "rn50",
        source: Source::Torchvision,
        source_name: "resnet50",
        input: ModelInput::Images(IMAGENET),
        gmacs: 4.089,
        parameters: 25_557_032,
        arrays: 161,
        training_memory: RankMemory::megabytes(850, 104, 62),
        scoring_memory: RankMemory::megabytes(480, 18, 12),
    },
    ModelFacts {
        title: "ResNet-18",
        file_name: "resnet18",
        source: Source::Torchvision,
        source_name: "resnet18",
        input: ModelInput::Images(IMAGENET),
        gmacs: 1.814,
        parameters: 11_689_512,
        arrays: 62,
        training_memory: RankMemory::megabytes(540, 33, 20),
        scoring_memory: RankMemory::megabytes(340, 11, 8),
    },
    ModelFacts {
        title: "ResNet-34",
        file_name: "resnet34",
        source: Source::Torchvision,
        source_name: "resnet34",
        input: ModelInput::Images(IMAGENET),
        gmacs: 3.664,
        parameters: 21_797_672,
        arrays: 110,
        training_memory: RankMemory::megabytes(720, 50, 32),
        scoring_memory: RankMemory::megabytes(440, 11, 8),
    },
    ModelFacts {
        title: "ResNet-101",
        file_name: "resnet101",
        source: Source::Torchvision,
        source_name: "resnet101",
        input: ModelInput::Images(IMAGENET),
        gmacs: 7.801,
        parameters: 44_549_160,
        arrays: 314,
        training_memory: RankMemory::megabytes(1_200, 160, 95),
        scoring_memory: RankMemory::megabytes(650, 18, 12),
    },
    ModelFacts {
        title: "ResNet-152",
        file_name: "resnet152",
        source: Source::Torchvision,
        source_name: "resnet152",
        input: ModelInput::Images(IMAGENET),
        gmacs: 11.514,
        parameters: 60_192_808,
        arrays: 467,
        training_memory: RankMemory::megabytes(1_500, 225, 135),
        scoring_memory: RankMemory::megabytes(800, 18, 12),
    },
    ModelFacts {
        title: "ResNeXt-50 32x4d",
        file_name: "resnext50-32x4d",
        source: Source::Torchvision,
        source_name: "resnext50_32x4d",
        input: ModelInput::Images(IMAGENET),
        gmacs: 4.23,
        parameters: 25_028_904,
        arrays: 161,
        training_memory: RankMemory::megabytes(850, 145, 85),
        scoring_memory: RankMemory::megabytes(480, 20, 14),
    },
    ModelFacts {
        title: "ResNeXt-101 32x8d",
        file_name: "resnext101-32x8d",
        source: Source::Torchvision,
        source_name: "resnext101_32x8d",
        input: ModelInput::Images(IMAGENET),
        gmacs: 16.414,
        parameters: 88_791_336,
        arrays: 314,
        training_memory: RankMemory::megabytes(2_000, 300, 180),
        scoring_memory: RankMemory::megabytes(1_100, 40, 30),
    },
    ModelFacts {
        title: "VGG-11",
        file_name: "vgg11",
        source: Source::Torchvision,
        source_name: "vgg11",
        input: ModelInput::Images(VGG),
        gmacs: 7.609,
        parameters: 132_863_336,
        arrays: 22,
        training_memory: RankMemory::megabytes(2_900, 80, 60),
        scoring_memory: RankMemory::megabytes(1_800, 40, 30),
    },
    ModelFacts {
        title: "VGG-11 with BN",
        file_name: "vgg11-bn",
        source: Source::Torchvision,
        source_name: "vgg11_bn",
        input: ModelInput::Images(VGG),
        gmacs: 7.609,
        parameters: 132_868_840,
        arrays: 38,
        training_memory: RankMemory::megabytes(2_900, 120, 80),
        scoring_memory: RankMemory::megabytes(1_800, 40, 30),
    },
    ModelFacts {
        title: "VGG-16",
        file_name: "vgg16",
        source: Source::Torchvision,
        source_name: "vgg16",
        input: ModelInput::Images(VGG),
        gmacs: 15.47,
        parameters: 138_357_544,
        arrays: 32,
        training_memory: RankMemory::megabytes(3_000, 130, 90),
        scoring_memory: RankMemory::megabytes(1_850, 40, 30),
    },
    ModelFacts {
        title: "VGG-16 with BN",
        file_name: "vgg16-bn",
        source: Source::Torchvision,
        source_name: "vgg16_bn",
        input: ModelInput::Images(VGG),
        gmacs: 15.47,
        parameters: 138_365_992,
        arrays: 58,
        training_memory: RankMemory::megabytes(3_000, 200, 130),
        scoring_memory: RankMemory::megabytes(1_850, 40, 30),
    },
    ModelFacts {
        title: "AlexNet",
        file_name: "alexnet",
        source: Source::Torchvision,
        source_name: "alexnet",
        input: ModelInput::Images(ImageRule::torchvision(224, 63, 1)),
        gmacs: 0.714,
        parameters: 61_100_840,
        arrays: 16,
        training_memory: RankMemory::megabytes(1_450, 12, 10),
        scoring_memory: RankMemory::megabytes(850, 6, 6),
    },
    ModelFacts {
        title: "Inception-v3",
        file_name: "inception-v3",
        source: Source::Torchvision,
        source_name: "inception_v3",
        input: ModelInput::Images(ImageRule::torchvision(299, 75, 1).one_pixel_up_to(106)),
        gmacs: 5.713,
        parameters: 23_834_568,
        arrays: 284,
        training_memory: RankMemory::megabytes(850, 140, 90),
        scoring_memory: RankMemory::megabytes(480, 24, 18),
    },
    ModelFacts {
        title: "ViT-B/16",
        file_name: "vit-b-16",
        source: Source::Torchvision,
        source_name: "vit_b_16",
        input: ModelInput::Images(ImageRule::torchvision(224, 224, 224)),
        gmacs: 17.564,
        parameters: 86_567_656,
        arrays: 152,
        training_memory: RankMemory::megabytes(2_000, 175, 120),
        scoring_memory: RankMemory::megabytes(1_050, 14, 12),
    },
    ModelFacts {
        title: "MXNet ResNet-50 v2",
        file_name: "mxnet-resnet-50",
        source: Source::Mxnet,
        source_name: "resnet-50",
        input: ModelInput::Images(MXNET_RESNET),
        gmacs: 4.089,
        parameters: 25_549_486,
        arrays: 157,
        training_memory: RankMemory::megabytes(900, 112, 70),
        scoring_memory: RankMemory::megabytes(480, 25, 18),
    },
    ModelFacts {
        title: "MXNet ResNet-101 v2",
        file_name: "mxnet-resnet-101",
        source: Source::Mxnet,
        source_name: "resnet-101",
        input: ModelInput::Images(MXNET_RESNET),
        gmacs: 7.801,
        parameters: 44_541_614,
        arrays: 310,
        training_memory: RankMemory::megabytes(1_200, 170, 100),
        scoring_memory: RankMemory::megabytes(650, 25, 18),
    },
    ModelFacts {
        title: "MXNet ResNet-152 v2",
        file_name: "mxnet-resnet-152",
        source: Source::Mxnet,
        source_name: "resnet-152",
        input: ModelInput::Images(MXNET_RESNET),
        gmacs: 11.514,
        parameters: 60_185_262,
        arrays: 463,
        training_memory: RankMemory::megabytes(1_500, 235, 140),
        scoring_memory: RankMemory::megabytes(800, 25, 18),
    },
    ModelFacts {
        title: "MXNet ResNet-200 v2",
        file_name: "mxnet-resnet-200",
        source: Source::Mxnet,
        source_name: "resnet-200",
        input: ModelInput::Images(MXNET_RESNET),
        gmacs: 15.007,
        parameters: 64_666_286,
        arrays: 607,
        training_memory: RankMemory::megabytes(1_600, 320, 190),
        scoring_memory: RankMemory::megabytes(850, 25, 18),
    },
    ModelFacts {
        title: "MXNet AlexNet",
        file_name: "mxnet-alexnet",
        source: Source::Mxnet,
        source_name: "alexnet",
        input: ModelInput::Images(ImageRule::exactly(3, 224, 1000)),
        gmacs: 1.01,
        parameters: 50_844_008,
        arrays: 16,
        training_memory: RankMemory::megabytes(1_350, 20, 15),
        scoring_memory: RankMemory::megabytes(880, 8, 8),
    },
    ModelFacts {
        title: "MXNet Inception-BN",
        file_name: "mxnet-inception-bn",
        source: Source::Mxnet,
        source_name: "inception-bn",
        input: ModelInput::Images(ImageRule::exactly(3, 224, 1000)),
        gmacs: 1.987,
        parameters: 11_295_240,
        arrays: 278,
        training_memory: RankMemory::megabytes(580, 55, 40),
        scoring_memory: RankMemory::megabytes(380, 14, 10),
    },
    ModelFacts {
        title: "MXNet Inception-v3",
        file_name: "mxnet-inception-v3",
        source: Source::Mxnet,
        source_name: "inception-v3",
        input: ModelInput::Images(ImageRule::exactly(3, 299, 1000)),
        gmacs: 5.713,
        parameters: 23_834_568,
        arrays: 284,
        training_memory: RankMemory::megabytes(850, 140, 90),
        scoring_memory: RankMemory::megabytes(480, 24, 18),
    },
    ModelFacts {
        title: "MXNet LeNet",
        file_name: "mxnet-lenet",
        source: Source::Mxnet,
        source_name: "lenet",
        input: ModelInput::Images(ImageRule::exactly(1, 28, 10)),
        gmacs: 0.0023,
        parameters: 431_080,
        arrays: 8,
        training_memory: RankMemory::for_small_images(240, 270, 150),
        scoring_memory: RankMemory::for_small_images(220, 110, 90),
    },
    ModelFacts {
        title: "MXNet perceptron",
        file_name: "mxnet-mlp",
        source: Source::Mxnet,
        source_name: "mlp",
        input: ModelInput::Images(ImageRule::exactly(1, 28, 10)),
        gmacs: 0.0001,
        parameters: 109_386,
        arrays: 6,
        training_memory: RankMemory::for_small_images(220, 10, 10),
        scoring_memory: RankMemory::for_small_images(210, 10, 10),
    },
    ModelFacts::decoder(&DecoderShape::GPT2_124M),
    ModelFacts::decoder(&DecoderShape::GPT2_355M),
    ModelFacts::decoder(&DecoderShape::LLAMA_1B),
    ModelFacts::decoder(&DecoderShape::LLAMA_8B),
    ModelFacts::decoder(&DecoderShape::GPT2_TINY),
    ModelFacts::decoder(&DecoderShape::LLAMA_TINY),
];
