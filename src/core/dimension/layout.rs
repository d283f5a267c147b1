//! Memory layouts: where an image's channels are in memory.

use crate::dimension::{DeviceKind, Dtype};
use crate::keyword_enum;

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
