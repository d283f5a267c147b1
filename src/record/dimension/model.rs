//! The networks, each in one line of one table: what it is called, and by whom; how large it is. Not for how it computes,
//! which the worker's folder `model` knows.

use crate::dimension::device::DeviceKind;
use crate::dimension::dtype::Dtype;
use crate::dimension::units::Bytes;
use crate::keyword_enum;
use crate::options::keyword_enum::KeywordEnum;

keyword_enum!(
    /// A network. Its keyword is the name on the command line, in records, and of files where DLPerf has none of its own.
    Model {
        /// ResNet50-v1b, DLPerf's and torchvision's: the stride of a bottleneck is on its 3x3 convolution.
        Resnet50V1b = "resnet50_v1b" | "resnet50" | "rn50",
        /// ResNet-18 of basic blocks, torchvision's.
        Resnet18 = "resnet18",
    }
);

/// What is known of a network without building it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelFacts {
    /// As titles say it.
    pub title: &'static str,
    /// First part of every file name and the top key of DLPerf's JSON: DLPerf's short name where it has one.
    pub file_name: &'static str,
    /// What torchvision calls it, and with it PyTorch's DDP benchmark.
    pub torchvision: &'static str,
    /// Classes that it tells apart.
    pub classes: u32,
    /// Height and width of its images in pixels.
    pub image_size: u32,
    /// 1e9 multiply-accumulates of one image's forward pass at that size, torchvision's figure.
    pub gmacs: f64,
    /// Trained parameters.
    pub parameters: u64,
    /// Arrays that they come in.
    pub arrays: u32,
    /// What a rank takes that trains on a CPU.
    pub training_memory: RankMemory,
    /// What a rank takes that scores on a CPU.
    pub scoring_memory: RankMemory,
}

/// Memory of a rank on the CPU at its peak, for images of the network's own size in nhwc: a line above what was measured,
/// and within half of it, for batch sizes 8, 16 and 32. Measured is `peak_memory` in the record of `ringmark-worker train
/// --device cpu --threads 1 --iters 3 --warmup 1 --model M --dtype T --batch-size N`; `score` likewise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RankMemory {
    /// Program, libraries, weights; of training also gradients, momentum and buckets.
    pub fixed: Bytes,
    /// What an image of the batch adds where activations have 32 bits.
    pub of_image: Bytes,
    /// The same under autocast to 16 bits.
    pub of_half_image: Bytes,
}

impl Model {
    /// What is known of this network.
    pub const fn facts(self) -> &'static ModelFacts {
        match self {
            Model::Resnet50V1b => &ModelFacts {
                title: "ResNet50-v1b",
                file_name: "rn50",
                torchvision: "resnet50",
                classes: 1000,
                image_size: 224,
                gmacs: 4.089,
                parameters: 25_557_032,
                arrays: 161,
                training_memory: RankMemory {
                    fixed: Bytes(850_000_000),
                    of_image: Bytes(97_000_000),
                    of_half_image: Bytes(62_000_000),
                },
                scoring_memory: RankMemory {
                    fixed: Bytes(420_000_000),
                    of_image: Bytes(18_000_000),
                    of_half_image: Bytes(12_000_000),
                },
            },
            Model::Resnet18 => &ModelFacts {
                title: "ResNet-18",
                file_name: "resnet18",
                torchvision: "resnet18",
                classes: 1000,
                image_size: 224,
                gmacs: 1.814,
                parameters: 11_689_512,
                arrays: 62,
                training_memory: RankMemory {
                    fixed: Bytes(420_000_000),
                    of_image: Bytes(33_000_000),
                    of_half_image: Bytes(20_000_000),
                },
                scoring_memory: RankMemory {
                    fixed: Bytes(270_000_000),
                    of_image: Bytes(8_000_000),
                    of_half_image: Bytes(8_000_000),
                },
            },
        }
    }

    /// The network whose files begin with `name`.
    pub fn of_file_name(name: &str) -> Option<Model> {
        Model::ALL.iter().copied().find(|model| model.facts().file_name == name)
    }
}

/// Memory of a rank whose precision, layout and image size are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BatchMemory {
    /// Without an image.
    pub fixed: Bytes,
    /// Of each image of its batch.
    pub of_image: Bytes,
}

impl RankMemory {
    /// Of `facts`' network with images of so many pixels a side, with which activations grow.
    pub fn at(&self, facts: &ModelFacts, dtype: Dtype, layout: Layout, image_size: u32) -> BatchMemory {
        let of_image = match dtype {
            Dtype::Fp32 | Dtype::Tf32 => self.of_image,
            Dtype::Fp16 | Dtype::Bf16 => self.of_half_image,
        };
        // Convolutions of contiguous images copy them to the other layout and back.
        let of_layout = match layout {
            Layout::Nhwc => 1.0,
            Layout::Nchw => 1.3,
        };
        let of_image = of_image.0 as f64 * of_layout * facts.pixels_ratio(image_size);
        BatchMemory { fixed: self.fixed, of_image: Bytes(of_image as u64) }
    }
}

impl BatchMemory {
    /// With so many images.
    pub fn of_batch(&self, images: u32) -> Bytes {
        Bytes(self.fixed.0 + self.of_image.0 * u64::from(images))
    }

    /// Most images that it is enough for; 0 where it is not enough for one.
    pub fn largest_batch(&self, available: Bytes) -> u32 {
        let images = available.0.saturating_sub(self.fixed.0) / self.of_image.0.max(1);
        u32::try_from(images).unwrap_or(u32::MAX)
    }
}

impl ModelFacts {
    /// Multiply-accumulates of one image's forward pass where it has `image_size` pixels a side, in 1e9: they grow with the
    /// pixels, as activations do.
    pub fn gmacs_at(&self, image_size: u32) -> f64 {
        self.gmacs * self.pixels_ratio(image_size)
    }

    fn pixels_ratio(&self, image_size: u32) -> f64 {
        (f64::from(image_size) / f64::from(self.image_size)).powi(2)
    }

    /// Its gradients as fp32.
    pub const fn gradient_bytes(&self) -> Bytes {
        Bytes(4 * self.parameters)
    }
}

impl Default for Model {
    /// DLPerf's.
    fn default() -> Model {
        Model::Resnet50V1b
    }
}

keyword_enum!(
    /// Memory layout of images, activations and convolution weights.
    Layout {
        /// channels_last.
        Nhwc = "nhwc" | "channels_last",
        /// contiguous.
        Nchw = "nchw" | "contiguous",
    }
);

keyword_enum!(
    /// What is asked for as memory layout; a record has what it came to.
    LayoutChoice {
        /// The usual one of type and device.
        Auto = "auto",
        /// channels_last.
        Nhwc = "nhwc" | "channels_last",
        /// contiguous.
        Nchw = "nchw" | "contiguous",
    }
);

impl LayoutChoice {
    /// What it comes to. Auto is channels_last, but contiguous for fp32 on GPUs: on V100 a step took 1.68 s so, and 2.76 s
    /// in channels_last (PyTorch issue 44943).
    pub fn of(self, dtype: Dtype, device: DeviceKind) -> Layout {
        match (self, dtype, device) {
            (LayoutChoice::Nchw, ..) | (LayoutChoice::Auto, Dtype::Fp32, DeviceKind::Cuda) => Layout::Nchw,
            (LayoutChoice::Nhwc | LayoutChoice::Auto, ..) => Layout::Nhwc,
        }
    }
}

impl From<Layout> for LayoutChoice {
    fn from(layout: Layout) -> LayoutChoice {
        match layout {
            Layout::Nhwc => LayoutChoice::Nhwc,
            Layout::Nchw => LayoutChoice::Nchw,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_found_by_its_file_name_and_no_two_share_one() {
        for model in Model::ALL {
            assert_eq!(Model::of_file_name(model.facts().file_name), Some(*model));
            // The file name is followed by `_b`.
            assert!(!model.facts().file_name.contains("_b"));
        }
        assert_eq!(Model::of_file_name("vgg"), None);
        assert_eq!(Model::default().facts().gradient_bytes(), Bytes(102_228_128));
    }
}
