//! Closed sets of keywords: options with a few values, and the values that records contain.

use crate::dimension::Bytes;
use crate::keyword_enum;

keyword_enum!(
    /// Backend that summed the values of several ranks.
    #[derive(Default)]
    BackendName {
        /// NVIDIA Collective Communications Library.
        Nccl = "nccl",
        /// Shared memory within a host, MPI between hosts.
        SharedMemory = "shared-memory",
        /// MPI through host memory.
        Mpi = "mpi",
        /// TCP between ranks and servers.
        Tcp = "tcp",
        /// No exchange between several ranks.
        None = "none",
        /// Single rank, without any exchange.
        Solo = "solo",
        /// Undecided when the record was written, or a name from another version.
        #[default]
        #[serde(other)]
        Unknown = "",
    }
);

keyword_enum!(
    /// Kind of device a rank computed on; figures of different kinds are never compared.
    DeviceKind {
        /// Cores of the host.
        Cpu = "cpu",
        /// One NVIDIA GPU.
        Cuda = "cuda",
    }

    /// Requested device; one that cannot be used is an error.
    DeviceChoice {
        /// CUDA if driver, libtorch_cuda, NCCL and a device are available, otherwise the CPU.
        Auto = "auto",
        ..
    }
);

keyword_enum!(
    /// Precision of the training step.
    Dtype {
        /// IEEE single precision in every operation.
        Fp32 = "fp32" | "float32",
        /// Single precision, with TensorFloat-32 convolutions and matrix products if the device has them.
        Tf32 = "tf32",
        /// Half precision with autocast and dynamic loss scaling.
        Fp16 = "fp16" | "float16" | "half" | "amp" | "mixed",
        /// bfloat16 with autocast.
        Bf16 = "bf16" | "bfloat16",
    }
);

keyword_enum!(
    /// Requested use of CUDA graphs. A record contains `on` or `off`.
    #[derive(Default)]
    GraphChoice {
        /// Use a graph if the run allows it.
        Auto = "auto",
        /// Fail if no graph can be captured.
        On = "on",
        /// Launch each kernel.
        // In records that predate the option.
        #[default]
        Off = "off",
    }
);

impl GraphChoice {
    /// Returns the choice for `device`: a CPU has no graphs.
    pub fn on(self, device: DeviceKind) -> GraphChoice {
        if (device, self) == (DeviceKind::Cpu, GraphChoice::Auto) { GraphChoice::Off } else { self }
    }

    /// Returns true if each kernel is launched separately.
    pub fn is_off(&self) -> bool {
        *self == GraphChoice::Off
    }
}

keyword_enum!(
    /// Kernels for training on a GPU; a record contains the ones that ran.
    #[derive(Default)]
    KernelsChoice {
        /// ringmark's kernels if they can be compiled, otherwise libtorch's.
        #[default]
        Auto = "auto",
        /// ringmark's kernels: a normalization is fused with the operation after it and, after some 1x1 convolutions,
        /// with the convolution.
        Fused = "fused",
        /// Same as `Fused`, but with libtorch's kernels for every convolution.
        Norm = "norm",
        /// libtorch's kernels for every layer.
        Libtorch = "libtorch",
    }
);

keyword_enum!(
    /// Memory layout of images, activations and convolution weights.
    Layout {
        /// PyTorch's channels_last.
        Nhwc = "nhwc" | "channels_last",
        /// PyTorch's contiguous layout.
        Nchw = "nchw" | "contiguous",
    }

    /// Requested memory layout; a record contains the resolved one.
    LayoutChoice {
        /// Chosen by type and device.
        Auto = "auto",
        ..
    }
);

impl LayoutChoice {
    /// Resolves the layout. Auto is channels_last, except contiguous for fp32 on GPUs: on V100 a step took 1.68 s in
    /// contiguous and 2.76 s in channels_last (PyTorch issue 44943).
    pub fn resolve(self, dtype: Dtype, device: DeviceKind) -> Layout {
        let is_fp32_on_gpu = (dtype, device) == (Dtype::Fp32, DeviceKind::Cuda);
        self.chosen().unwrap_or(if is_fp32_on_gpu { Layout::Nchw } else { Layout::Nhwc })
    }
}

keyword_enum!(
    /// Element type of the gradients while they are exchanged.
    Wire {
        /// Unchanged.
        Fp32 = "fp32" | "float32" | "float",
        /// Rounded to half precision, half the bytes.
        Fp16 = "fp16" | "float16" | "half",
        /// Rounded to bfloat16, half the bytes.
        Bf16 = "bf16" | "bfloat16",
    }
);

impl Wire {
    /// Returns the bytes per element.
    pub fn bytes(self) -> u64 {
        match self {
            Wire::Fp32 => 4,
            Wire::Fp16 | Wire::Bf16 => 2,
        }
    }

    /// Returns the size on the wire of an array of this size in fp32.
    pub fn size_of(self, fp32: Bytes) -> Bytes {
        Bytes(fp32.0 / Wire::Fp32.bytes() * self.bytes())
    }

    /// Formats as `fp16, added in fp32`; without the second part if nothing is rounded.
    pub fn with_sum(self, sum_dtype: Option<Wire>) -> String {
        match sum_dtype {
            Some(sum_dtype) if self != Wire::Fp32 => format!("{self}, added in {sum_dtype}"),
            _ => self.to_string(),
        }
    }
}

keyword_enum!(
    /// Kernel that computed attention: one of libtorch's `scaled_dot_product_attention`, or our own operations.
    AttentionKernel {
        /// Flash attention, which stores no scores.
        Flash = "flash",
        /// Memory-efficient attention, which stores no scores.
        Efficient = "efficient",
        /// Attention of cuDNN.
        Cudnn = "cudnn",
        /// Separate products and softmax of libtorch, with all scores in memory.
        Math = "math",
        /// Separate products and softmax of ringmark, with all scores in memory: faster in bf16 on CPUs.
        Unfused = "unfused",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_names_of_other_versions_are_read() {
        let read = |text: &str| serde_json::from_str::<BackendName>(text).expect("any name");
        assert_eq!(read("\"shared-memory\""), BackendName::SharedMemory);
        assert_eq!(read("\"\""), BackendName::Unknown);
        assert_eq!(read("\"gloo\""), BackendName::Unknown);
        assert_eq!(serde_json::to_string(&BackendName::Unknown).expect("a name"), "\"\"");
    }
}
