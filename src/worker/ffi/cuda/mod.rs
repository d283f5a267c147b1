//! CUDA: availability in this process, the driver, kernels compiled at run time, and NVML.

mod availability;
mod driver;
pub mod kernels;
pub mod nvml;

pub use availability::{Cuda, NoCuda, driver_version, load, runtime_version, user_message};
pub use driver::{ComputeCapability, DeviceFacts};
