//! Unit of speed: images or tokens.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Images of an epoch of ImageNet-1k (ILSVRC 2012).
pub const IMAGENET_IMAGES: u64 = 1_281_167;

/// Unit of the work of a network: speed is the number of them per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
pub enum WorkUnit {
    /// Unit of networks that classify images.
    #[default]
    #[serde(rename = "images")]
    Image,
    /// A token of a sequence.
    #[serde(rename = "tokens")]
    Token,
}

impl WorkUnit {
    /// All units.
    pub const ALL: [WorkUnit; 2] = [WorkUnit::Image, WorkUnit::Token];

    /// Returns the name of one unit.
    pub const fn singular(self) -> &'static str {
        match self {
            WorkUnit::Image => "image",
            WorkUnit::Token => "token",
        }
    }

    /// Returns the name of several units.
    pub const fn plural(self) -> &'static str {
        match self {
            WorkUnit::Image => "images",
            WorkUnit::Token => "tokens",
        }
    }

    /// Returns the unit of speed.
    pub const fn per_second(self) -> &'static str {
        match self {
            WorkUnit::Image => "images/s",
            WorkUnit::Token => "tokens/s",
        }
    }

    /// Returns the units that a price is given for: an epoch of ImageNet-1k, or 1e9 tokens.
    pub const fn priced(self) -> f64 {
        match self {
            WorkUnit::Image => IMAGENET_IMAGES as f64,
            WorkUnit::Token => 1e9,
        }
    }

    /// Returns true if the unit is the image; records and results omit it then.
    pub fn is_image(&self) -> bool {
        *self == WorkUnit::Image
    }
}

impl fmt::Display for WorkUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.plural())
    }
}

/// Size of a sample, which determines the arithmetic and the memory that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SampleSize {
    /// Height and width of an image.
    Pixels(u32),
    /// Length of a sequence.
    Tokens(u32),
}

impl SampleSize {
    /// Returns the number without its unit.
    pub const fn number(self) -> u32 {
        match self {
            SampleSize::Pixels(number) | SampleSize::Tokens(number) => number,
        }
    }

    /// Returns the name of samples: `images` or `sequences`.
    pub const fn samples(self) -> &'static str {
        match self {
            SampleSize::Pixels(_) => "images",
            SampleSize::Tokens(_) => "sequences",
        }
    }
}

impl fmt::Display for SampleSize {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleSize::Pixels(size) => write!(formatter, "{size} pixels"),
            SampleSize::Tokens(length) => write!(formatter, "{length} tokens"),
        }
    }
}
