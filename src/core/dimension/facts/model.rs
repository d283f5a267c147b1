//! Facts about each network that are available without building it: source, images, size.

use crate::dimension::facts::decoder::DecoderShape;
use crate::dimension::facts::rank_memory::RankMemory;
use crate::dimension::{Bytes, Case, SampleSize, Strategy, WorkUnit};

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
const RESNET_V2: ImageRule = ImageRule::torchvision(224, 33, 1);
const ALEXNET: ImageRule = ImageRule::torchvision(224, 63, 1);
const INCEPTION: ImageRule = ImageRule::torchvision(299, 75, 1).one_pixel_up_to(106);
const VIT: ImageRule = ImageRule::torchvision(224, 224, 224);
const MXNET_224: ImageRule = ImageRule::exactly(3, 224, 1000);
const MXNET_299: ImageRule = ImageRule::exactly(3, 299, 1000);
const DIGITS: ImageRule = ImageRule::exactly(1, 28, 10);

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
    /// Any network of images of another program: nothing is known about it.
    const OTHER_IMAGES: ModelFacts = ModelFacts {
        title: "network of images",
        file_name: "images",
        source: Source::Torchvision,
        source_name: "images",
        input: ModelInput::Images(ImageRule::torchvision(224, 1, 1)),
        gmacs: 0.0,
        parameters: 0,
        arrays: 0,
        training_memory: RankMemory::megabytes(0, 0, 0),
        scoring_memory: RankMemory::megabytes(0, 0, 0),
    };

    /// Returns false for a network of another program whose arithmetic and size are unknown.
    pub const fn is_known(&self) -> bool {
        self.parameters > 0
    }

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

    /// Returns the sequences per rank and iteration by default; `None` for a network of images, whose default is that
    /// of the profile: a sequence takes the memory of many images.
    pub fn default_sequences(&self) -> Option<u32> {
        self.decoder_shape().map(|_| 4)
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

    /// Returns the part of [`training_memory`](ModelFacts::training_memory), with `more_states` states of the optimizer
    /// beside the first, that a rank of `case` does not need because others hold it: a lower bound.
    ///
    /// Measured with `gpt2-124m`, 8 tokens, on 2 and 4 CPU ranks: all-reduce took 2.25 and 2.38 GB a rank,
    /// `zero2` 1.88 and 1.75, `fsdp` 1.86 and 1.61. Momentum was not saved, and second moments were.
    pub fn memory_of_others(&self, strategy: Strategy, more_states: u64, case: Case) -> Bytes {
        // Embeddings are gathered longest, and networks of images are small.
        let blocks = self.decoder_shape().map_or(0, DecoderShape::block_parameters);
        // Places for the two largest buckets, and all weights unless they are sharded.
        let weights = if strategy.shards_weights() { 0 } else { 4 * self.parameters };
        let least = RankMemory::PROGRAM.0 + weights + 8 * (self.parameters - blocks);
        let most = self.training_memory.fixed.0.saturating_sub(least);
        let divided = match strategy {
            Strategy::Zero1 => 0,
            Strategy::Zero2 => 6 * self.parameters,
            Strategy::Fsdp | Strategy::Hsdp => 6 * self.parameters + 14 * blocks,
            _ => return Bytes(0),
        };
        let owners = if strategy == Strategy::Hsdp { case.gpus_per_node } else { case.ranks() };
        let others = f64::from(owners - 1) / f64::from(owners);
        let of_states = 4 * more_states * self.parameters;
        Bytes(((divided as f64 * others) as u64).min(most) + (of_states as f64 * others) as u64)
    }
}

/// Builds the table of networks: the images of each source, with its unit of memory per image, then the decoders.
macro_rules! facts {
    ($([$source:ident $memory:ident]
        $($title:literal $file_name:literal $source_name:literal $images:ident $gmacs:literal $parameters:literal
            $arrays:literal $training:literal $of_sample:literal $of_half_sample:literal
            $scoring:literal $of_scored:literal $of_half_scored:literal)+)+
        decoders: $($shape:ident)+
    ) => {
        [
            $($(ModelFacts {
                title: $title,
                file_name: $file_name,
                source: Source::$source,
                source_name: $source_name,
                input: ModelInput::Images($images),
                gmacs: $gmacs,
                parameters: $parameters,
                arrays: $arrays,
                training_memory: RankMemory::$memory($training, $of_sample, $of_half_sample),
                scoring_memory: RankMemory::$memory($scoring, $of_scored, $of_half_scored),
            },)+)+
            $(ModelFacts::decoder(&DecoderShape::$shape),)+
            ModelFacts::OTHER_IMAGES,
            ModelFacts::decoder(&DecoderShape::OTHER),
        ]
    };
}

/// Facts of all networks, in the order of [`Model`](crate::dimension::Model). The last six numbers of a row are the
/// arguments of [`RankMemory`]'s constructor for training and for scoring.
pub static FACTS: [ModelFacts; 31] = facts! {
    // title, file name, name in the source, images, GMACs, parameters, arrays, memory of training and of scoring
    [Torchvision megabytes]
    "ResNet50-v1b"      "rn50"             "resnet50"         IMAGENET   4.089  25_557_032 161   850 104  62   480 18 12
    "ResNet-18"         "resnet18"         "resnet18"         IMAGENET   1.814  11_689_512  62   540  33  20   340 11  8
    "ResNet-34"         "resnet34"         "resnet34"         IMAGENET   3.664  21_797_672 110   720  50  32   440 11  8
    "ResNet-101"        "resnet101"        "resnet101"        IMAGENET   7.801  44_549_160 314  1200 160  95   650 18 12
    "ResNet-152"        "resnet152"        "resnet152"        IMAGENET  11.514  60_192_808 467  1500 225 135   800 18 12
    "ResNeXt-50 32x4d"  "resnext50-32x4d"  "resnext50_32x4d"  IMAGENET    4.23  25_028_904 161   850 145  85   480 20 14
    "ResNeXt-101 32x8d" "resnext101-32x8d" "resnext101_32x8d" IMAGENET  16.414  88_791_336 314  2000 300 180  1100 40 30
    "VGG-11"            "vgg11"            "vgg11"            VGG        7.609 132_863_336  22  2900  80  60  1800 40 30
    "VGG-11 with BN"    "vgg11-bn"         "vgg11_bn"         VGG        7.609 132_868_840  38  2900 120  80  1800 40 30
    "VGG-16"            "vgg16"            "vgg16"            VGG        15.47 138_357_544  32  3000 130  90  1850 40 30
    "VGG-16 with BN"    "vgg16-bn"         "vgg16_bn"         VGG        15.47 138_365_992  58  3000 200 130  1850 40 30
    "AlexNet"           "alexnet"          "alexnet"          ALEXNET    0.714  61_100_840  16  1450  12  10   850  6  6
    "Inception-v3"      "inception-v3"     "inception_v3"     INCEPTION  5.713  23_834_568 284   850 140  90   480 24 18
    "ViT-B/16"          "vit-b-16"         "vit_b_16"         VIT       17.564  86_567_656 152  2000 175 120  1050 14 12
    [Mxnet megabytes]
    "MXNet ResNet-50 v2"  "mxnet-resnet-50"    "resnet-50"    RESNET_V2  4.089 25_549_486 157   900 112  70  480 25 18
    "MXNet ResNet-101 v2" "mxnet-resnet-101"   "resnet-101"   RESNET_V2  7.801 44_541_614 310  1200 170 100  650 25 18
    "MXNet ResNet-152 v2" "mxnet-resnet-152"   "resnet-152"   RESNET_V2 11.514 60_185_262 463  1500 235 140  800 25 18
    "MXNet ResNet-200 v2" "mxnet-resnet-200"   "resnet-200"   RESNET_V2 15.007 64_666_286 607  1600 320 190  850 25 18
    "MXNet AlexNet"       "mxnet-alexnet"      "alexnet"      MXNET_224   1.01 50_844_008  16  1350  20  15  880  8  8
    "MXNet Inception-BN"  "mxnet-inception-bn" "inception-bn" MXNET_224  1.987 11_295_240 278   580  55  40  380 14 10
    "MXNet Inception-v3"  "mxnet-inception-v3" "inception-v3" MXNET_299  5.713 23_834_568 284   850 140  90  480 24 18
    [Mxnet for_small_images]
    "MXNet LeNet"      "mxnet-lenet" "lenet" DIGITS 0.0023 431_080 8  240 270 150  220 110 90
    "MXNet perceptron" "mxnet-mlp"   "mlp"   DIGITS 0.0001 109_386 6  220  10  10  210  10 10
    decoders: GPT2_124M GPT2_355M LLAMA_1B LLAMA_8B GPT2_TINY LLAMA_TINY
};
