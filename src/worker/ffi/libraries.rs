//! Which CUDA libraries this process has. They are loaded at run time, so that one program serves CPU and GPU.
//!
//! libtorch asks once, at its first question about CUDA, whether its CUDA half is there, and keeps the answer:
//! [`load_cuda`] must run before any other libtorch call.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::c_int;
use std::path::PathBuf;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUdevice_attribute;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use ringmark_record::dimension::device::DeviceChoice;

/// The CUDA half of libtorch and what it needs, kept open for the life of the process.
pub struct CudaLibraries {
    /// NCCL: the copy that libtorch_cuda itself loaded.
    pub nccl: &'static Library,
}

/// Loads what CUDA training needs, in the order driver, libtorch_cuda, NCCL; `Err` names the first that is missing.
///
/// `choice` cpu loads nothing.
pub fn load_cuda(choice: DeviceChoice) -> Result<CudaLibraries, String> {
    if choice == DeviceChoice::Cpu {
        return Err("--device cpu was asked for".to_owned());
    }
    open("libcuda.so.1").map_err(|error| format!("no NVIDIA driver ({error})"))?;
    open("libtorch_cuda.so").map_err(|error| format!("no CUDA half of libtorch ({error})"))?;
    let nccl = open("libnccl.so.2").map_err(|error| format!("no NCCL ({error})"))?;
    Ok(CudaLibraries { nccl })
}

/// What NCCL and MPI are asked for unless the user asked for something else; first in every process, because they look
/// only once. `interface` is the one that NCCL is to use, where it was chosen.
pub fn set_defaults(interface: Option<&str>) {
    // The sign before the name asks for this very name; without it other names that begin so would do as well.
    let interface = interface.map(|name| format!("={name}"));
    let mut defaults = vec![
        // Rings are what this benchmark measures.
        ("NCCL_ALGO", "Ring"),
        // Longer messages wait for the receiver's answer, which over TCP stands in the queue behind our own data: two
        // hosts then send in turns, at half the speed of the link (measured: results/README.md).
        ("OMPI_MCA_btl_tcp_eager_limit", "4194304"),
    ];
    defaults.extend(interface.as_deref().map(|name| ("NCCL_SOCKET_IFNAME", name)));
    for (name, value) in defaults {
        if std::env::var_os(name).is_none() {
            // SAFETY: this process has one thread yet.
            unsafe { std::env::set_var(name, value) };
        }
    }
}

/// Where NCCL writes what it uses.
pub struct NcclLog {
    /// `None` where nothing was asked for.
    path: Option<PathBuf>,
}

impl NcclLog {
    /// Where it is `wanted`, asks NCCL for it, unless the user asked for something; before [`load_cuda`], because NCCL
    /// looks only once.
    pub fn new(choice: DeviceChoice, wanted: bool) -> NcclLog {
        let has_driver = || open("libcuda.so.1").is_ok();
        if !wanted
            || choice == DeviceChoice::Cpu
            || !has_driver()
            || std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("NCCL_DEBUG"))
        {
            return NcclLog { path: None };
        }
        let path = std::env::temp_dir().join(format!("ringmark-nccl-{}.log", std::process::id()));
        let variables = [
            ("NCCL_DEBUG", "INFO".as_ref()),
            ("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING,NET".as_ref()),
            ("NCCL_DEBUG_FILE", path.as_os_str()),
        ];
        for (name, value) in variables {
            // SAFETY: this process has one thread yet.
            unsafe { std::env::set_var(name, value) };
        }
        NcclLog { path: Some(path) }
    }

    /// What it wrote until now, in lines; nothing where NCCL was not used. The file goes: a run that does not count ends
    /// without leaving its variables in order.
    pub fn read(&self) -> String {
        let Some(path) = &self.path else { return String::new() };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text
    }
}

/// `dlopen`: a library that is loaded already is that one again, whatever folder it came from.
fn open(name: &str) -> Result<&'static Library, String> {
    // SAFETY: the initializers of the driver, libtorch_cuda and NCCL may run at any time before there are threads that
    // use them; the heartbeat's does not, and asks for no variable that they may set.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    Ok(Box::leak(Box::new(library)))
}

/// Every file that this process has loaded.
pub fn loaded() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| line[start..].to_owned()));
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether `path` is the library `name`, `libmpi.so` say, of whatever version.
pub fn is_named(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// What the MPI library says of itself, without its long end.
pub fn mpi_version() -> String {
    let version = mpi::environment::library_version().unwrap_or_default();
    let first = version.lines().next().unwrap_or_default();
    first.split(", ident").next().unwrap_or_default().to_owned()
}

/// The CUDA version that the driver brings.
pub fn cuda_driver_version() -> Option<String> {
    version_by("libcuda.so.1", "cuDriverGetVersion")
}

/// The version of the CUDA runtime that libtorch has loaded.
pub fn cuda_runtime_version() -> Option<String> {
    let path = loaded().into_iter().find(|path| is_named(path, "libcudart.so"))?;
    version_by(&path, "cudaRuntimeGetVersion")
}

/// Both functions of CUDA fill in a number such as 13010, for 13.1, and return 0.
fn version_by(library: &str, function: &str) -> Option<String> {
    let library = open(library).ok()?;
    let mut version = 0;
    // SAFETY: this is the type of both functions in CUDA's headers, which need no initialization; the pointer is to a
    // live int.
    let status = unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(function).ok()?(&mut version) };
    (status == 0 && version > 0).then(|| format!("{}.{}", version / 1000, version % 1000 / 10))
}

/// What the driver says of one GPU.
#[derive(Debug, Clone)]
pub struct DeviceFacts {
    /// `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Major and minor number.
    pub compute_capability: (i32, i32),
    /// `00000000:1b:00.0`: CUDA's own numbers follow CUDA_VISIBLE_DEVICES, those of other programs do not.
    pub bus_id: String,
}

/// Facts of device `index` as this process counts them; only after [`load_cuda`] found the driver.
pub fn device_facts(index: usize) -> Result<DeviceFacts, DriverError> {
    result::init()?;
    let device = result::device::get(index as i32)?;
    let number = |attribute| {
        // SAFETY: `device` comes from the driver.
        unsafe { result::device::get_attribute(device, attribute) }
    };
    Ok(DeviceFacts {
        name: result::device::get_name(device)?,
        compute_capability: (
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        bus_id: format!(
            "{:08x}:{:02x}:{:02x}.0",
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?,
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?
        ),
    })
}
