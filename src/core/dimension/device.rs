//! Devices: the choice that is asked for, and the kind that a rank has.

use crate::keyword_enum;

keyword_enum!(
    /// Where to compute.
    DeviceChoice {
        /// CUDA where driver, libtorch_cuda, NCCL and a device are all there, otherwise the CPU.
        Auto = "auto",
        /// The CPU.
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
    /// Kind of device a rank computed on; figures of different kinds are never put side by side.
    DeviceKind {
        /// The host's cores.
        Cpu = "cpu",
        /// One NVIDIA GPU.
        Cuda = "cuda",
    }
);
