//! Devices: the requested choice, and the kind that a rank uses.

use crate::keyword_enum;

keyword_enum!(
    /// Requested device.
    DeviceChoice {
        /// CUDA if driver, libtorch_cuda, NCCL and a device are available, otherwise the CPU.
        Auto = "auto",
        /// CPU, even if a GPU is available.
        Cpu = "cpu",
        /// CUDA, or an error that lists what is missing.
        Cuda = "cuda",
    }
);

impl From<DeviceKind> for DeviceChoice {
    fn from(kind: DeviceKind) -> DeviceChoice {
        match kind {
            DeviceKind::Cpu => DeviceChoice::Cpu,
            DeviceKind::Cuda => DeviceChoice::Cuda,
        }
    }
}

keyword_enum!(
    /// Kind of device a rank computed on; figures of different kinds are never compared.
    DeviceKind {
        /// Cores of the host.
        Cpu = "cpu",
        /// One NVIDIA GPU.
        Cuda = "cuda",
    }
);
