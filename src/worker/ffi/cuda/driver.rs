//! The CUDA driver, through function pointers of `libcuda.so.1`: its version and its GPUs, without libtorch.
//!
//! cudarc would load `libcuda.so` first, which may be the stub of a CUDA toolkit.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::fs;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute};
use libloading::os::unix::Library;

use crate::ffi::process::libraries::{Exports, functions};

/// `CUresult` as an integer: a newer driver may return a code that cudarc's enum lacks, which would be undefined
/// behavior.
type Status = c_int;

const SUCCESS: Status = 0;

/// `CUDA_ERROR_NO_DEVICE`: the driver is installed but shows this process no GPU.
const NO_DEVICE: Status = 100;

/// Fixes for errors of `cuInit`, by number (CUDA driver API, `CUresult`).
const FIXES: [(Status, &str); 5] = [
    (34, "a stub library of a CUDA toolkit hides the driver: remove `stubs` from LD_LIBRARY_PATH"),
    (46, "another process has exclusive access to the GPU: wait for it to exit, or run nvidia-smi -c DEFAULT"),
    (802, "start nvidia-fabricmanager of the driver's version"),
    (803, "the driver's library and kernel module have different versions: restart the host"),
    (804, "remove cuda-compat from LD_LIBRARY_PATH: this GPU does not support it"),
];

/// Fix for a GPU that fails for an unknown reason.
pub const RESET_HINT: &str = "check dmesg for Xid errors, then reset the GPU or restart the host";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    pub major: u32,
    pub minor: u32,
}

impl CudaVersion {
    /// Converts CUDA's number, such as 13010 for 13.1.
    fn from_number(number: c_int) -> CudaVersion {
        let number = number.max(0) as u32;
        CudaVersion { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    pub major: i32,
    pub minor: i32,
}

impl ComputeCapability {
    pub const fn new(major: i32, minor: i32) -> ComputeCapability {
        ComputeCapability { major, minor }
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Name such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    pub compute_capability: ComputeCapability,
    /// PCI address such as `00000000:1b:00.0`. CUDA's device numbers depend on CUDA_VISIBLE_DEVICES, those of other
    /// programs do not.
    pub bus_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverFacts {
    /// Newest supported version of CUDA.
    pub cuda: CudaVersion,
    /// Visible GPUs in the order of this process's device numbers.
    pub devices: Vec<DeviceFacts>,
}

/// Queries the driver `library`. The error is a sentence with the failed call and its fix.
pub fn query(library: &Library) -> Result<DriverFacts, String> {
    let driver = Driver::find(exports(library)).map_err(|error| error.to_string())?;
    let cuda =
        version_by(library, "cuDriverGetVersion").ok_or("cuDriverGetVersion failed: reinstall the NVIDIA driver")?;
    // SAFETY: the type is the one in cuda.h; flags must be 0.
    let devices = match unsafe { (driver.init)(0) } {
        NO_DEVICE => Vec::new(),
        status => {
            driver.check(status, "cuInit")?;
            (0..driver.count()?).map(|index| driver.device(index)).collect::<Result<_, _>>()?
        }
    };
    Ok(DriverFacts { cuda, devices })
}

/// Returns the version that `function` of `library` reports: `cuDriverGetVersion` or `cudaRuntimeGetVersion`.
pub fn version_by(library: &Library, function: &str) -> Option<CudaVersion> {
    let mut number = 0;
    // SAFETY: both functions have this type in CUDA's headers and need no initialization; the pointer is to a live int.
    let status = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> Status>(function).ok()?(&mut number) };
    (status == SUCCESS && number > 0).then(|| CudaVersion::from_number(number))
}

/// Returns the release of the driver's kernel module, such as `550.54.15`.
pub fn release() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    release_in(&text)
}

/// Parses `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ..`.
fn release_in(text: &str) -> Option<String> {
    let is_release = |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.lines().next()?.split_whitespace().find(is_release).map(str::to_owned)
}

/// Returns the functions of the driver's library.
pub(super) fn exports(library: &Library) -> Exports<'_> {
    Exports { library, name: "libcuda.so.1", fix: "reinstall the NVIDIA driver" }
}

functions!(
    /// Functions of the driver (cuda.h).
    pub(super) struct Driver {
        init = "cuInit": unsafe extern "C" fn(u32) -> Status,
        get_count = "cuDeviceGetCount": unsafe extern "C" fn(*mut c_int) -> Status,
        get_device = "cuDeviceGet": unsafe extern "C" fn(*mut CUdevice, c_int) -> Status,
        get_name = "cuDeviceGetName": unsafe extern "C" fn(*mut c_char, c_int, CUdevice) -> Status,
        get_attribute = "cuDeviceGetAttribute": unsafe extern "C" fn(*mut c_int, CUdevice_attribute, CUdevice) -> Status,
        get_error_name = "cuGetErrorName": unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    }
);

impl Driver {
    fn count(&self) -> Result<c_int, String> {
        let mut count = 0;
        // SAFETY: the pointer is to a live int.
        self.check(unsafe { (self.get_count)(&mut count) }, "cuDeviceGetCount")?;
        Ok(count)
    }

    fn device(&self, index: c_int) -> Result<DeviceFacts, String> {
        let (mut device, mut name) = (0, [0_u8; 256]);
        // SAFETY: the pointer is to a live device.
        self.check(unsafe { (self.get_device)(&mut device, index) }, "cuDeviceGet")?;
        // SAFETY: the driver writes at most `name.len()` bytes, including a terminating NUL.
        let status = unsafe { (self.get_name)(name.as_mut_ptr().cast(), name.len() as c_int, device) };
        self.check(status, "cuDeviceGetName")?;
        let number = |attribute| {
            let mut value = 0;
            // SAFETY: `device` comes from the driver, the pointer is to a live int.
            let status = unsafe { (self.get_attribute)(&mut value, attribute, device) };
            self.check(status, "cuDeviceGetAttribute").map(|()| value)
        };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(DeviceFacts {
            name: String::from_utf8_lossy(name).into_owned(),
            compute_capability: ComputeCapability {
                major: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
            bus_id: format!(
                "{:08x}:{:02x}:{:02x}.0",
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
                number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
            ),
        })
    }

    fn check(&self, status: Status, call: &str) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        let fix = FIXES.iter().find(|(number, _)| *number == status).map_or(RESET_HINT, |(_, fix)| fix);
        Err(format!("{}: {fix}", self.failure(status, call)))
    }

    /// Describes the failure of a call, without a fix.
    pub(super) fn failure(&self, status: Status, call: &str) -> String {
        let mut name = std::ptr::null();
        // SAFETY: the pointer is to a live pointer, which is set to a static string or stays null.
        let name = unsafe {
            (self.get_error_name)(status, &mut name);
            if name.is_null() { "an unknown error".into() } else { CStr::from_ptr(name).to_string_lossy() }
        };
        format!("{call} failed with {name} ({status})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_and_displayed() {
        let version = CudaVersion::from_number(13_010);
        assert_eq!((version.to_string(), version), ("13.1".to_owned(), CudaVersion { major: 13, minor: 1 }));
        assert!(CudaVersion::from_number(12_090) < CudaVersion::from_number(13_000));
    }

    #[test]
    fn kernel_module_release_is_parsed() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder)\n";
        let closed =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC 12.2.0";
        assert_eq!(release_in(open).as_deref(), Some("580.65.06"));
        assert_eq!(release_in(closed).as_deref(), Some("550.54.15"));
        assert_eq!(release_in(""), None);
    }
}
