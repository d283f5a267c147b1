//! Memory layouts of images: position of the channel dimension.

use crate::dimension::{DeviceKind, Dtype};
use crate::keyword_enum;

keyword_enum!(
    /// Memory layout of images, activations and convolution weights.
    Layout {
        /// PyTorch's channels_last.
        Nhwc = "nhwc" | "channels_last",
        /// PyTorch's contiguous layout.
        Nchw = "nchw" | "contiguous",
    }
);

keyword_enum!(
    /// Requested memory layout; a record contains the resolved one.
    LayoutChoice {
        /// Chosen by type and device.
        Auto = "auto",
        /// PyTorch's channels_last.
        Nhwc = "nhwc" | "channels_last",
        /// PyTorch's contiguous layout.
        Nchw = "nchw" | "contiguous",
    }
);

impl LayoutChoice {
    /// Resolves the layout. Auto is channels_last, except contiguous for fp32 on GPUs: on V100 a step took 1.68 s in
    /// contiguous and 2.76 s in channels_last (PyTorch issue 44943).
    pub fn resolve(self, dtype: Dtype, device: DeviceKind) -> Layout {
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
