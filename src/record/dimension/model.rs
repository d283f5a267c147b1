//! The networks, each in one line of one table: what it is called, and by whom; how large it is. Not for how it computes,
//! which the worker's folder `model` knows.

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
            },
        }
    }

    /// The network whose files begin with `name`.
    pub fn of_file_name(name: &str) -> Option<Model> {
        Model::ALL.iter().copied().find(|model| model.facts().file_name == name)
    }
}

impl ModelFacts {
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
        Nhwc = "nhwc",
        /// contiguous.
        Nchw = "nchw",
    }
);

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
