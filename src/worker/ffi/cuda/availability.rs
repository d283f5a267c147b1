//! Detection of CUDA in this process: driver, libtorch's CUDA half, runtime and NCCL are loaded at run time, so that
//! one program serves CPU and GPU, and are checked for compatibility.
//!
//! libtorch checks for its CUDA half once, at the first call that involves CUDA, and caches the result: [`load`] must
//! run before any other libtorch call.

use std::fs;
use std::path::{Path, PathBuf};

use libloading::os::unix::Library;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::number_text::count;

use crate::ffi::cuda::driver::{self, ComputeCapability, CudaVersion, DeviceFacts, DriverFacts};
use crate::ffi::cuda::kernels::CompilerLibrary;
use crate::ffi::process::libraries::{self, is_named, open};

/// Sonames of NVRTC, for libtorch builds whose runtime is elsewhere.
const COMPILERS: [&str; 2] = ["libnvrtc.so.13", "libnvrtc.so.12"];

/// Usable CUDA; its libraries stay open for the life of the process.
pub struct Cuda {
    /// NCCL: the copy that libtorch_cuda has loaded.
    pub nccl: &'static Library,
    pub compiler: Option<CompilerLibrary>,
    /// GPUs in the numbering of this process, at least one.
    pub devices: Vec<DeviceFacts>,
    /// Sentences about causes of lower performance.
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoCuda {
    /// CUDA was not requested, or there is no GPU.
    Absent(String),
    /// A GPU exists but cannot be used. Falling back to the CPU would produce results that look like those of the GPU.
    Unusable(String),
}

impl NoCuda {
    pub fn reason(&self) -> &str {
        match self {
            NoCuda::Absent(reason) | NoCuda::Unusable(reason) => reason,
        }
    }
}

/// Loads the libraries for CUDA training, in the order driver, libtorch_cuda, NCCL. Loads nothing if `choice` is cpu.
pub fn load(choice: DeviceChoice) -> Result<Cuda, NoCuda> {
    if choice == DeviceChoice::Cpu {
        return Err(NoCuda::Absent("--device cpu was requested".to_owned()));
    }
    let driver = query_driver()?;
    let found = described(&driver);
    let unusable = |why: String| NoCuda::Unusable(format!("{found} cannot be used: {why}"));
    load_libtorch().map_err(unusable)?;
    if let Some(runtime) = runtime_version() {
        check_versions(&driver, runtime).map_err(unusable)?;
    }
    let nccl = open("libnccl.so.2").map_err(|error| {
        unusable(format!("NCCL not found ({error}): remove .libtorch, then run RINGMARK_TORCH=cuda scripts/setup.sh"))
    })?;
    let compiler = load_runtime_compiler();
    let remarks =
        [compiler.as_ref().err().cloned(), foreign_cudnn(&libraries::loaded())].into_iter().flatten().collect();
    let compiler = compiler.ok().or_else(|| COMPILERS.iter().find_map(|name| open(name).ok()));
    let counted = tch::Cuda::device_count().max(0) as usize;
    if counted != driver.devices.len() {
        return Err(unusable(format!("libtorch finds {counted}: see the warning above and nvidia-smi")));
    }
    Ok(Cuda { nccl, compiler, devices: driver.devices, remarks })
}

/// Loads the driver; fails unless it has at least one GPU.
fn query_driver() -> Result<DriverFacts, NoCuda> {
    let library = open("libcuda.so.1").map_err(|error| match device_file() {
        None => NoCuda::Absent(format!("no NVIDIA driver ({error})")),
        Some(file) => NoCuda::Unusable(format!(
            "{} found, but no driver library ({error}): allow the container access to GPUs (docker run --gpus all), or \
             install the driver's libraries",
            file.display()
        )),
    })?;
    let driver =
        driver::query(library).map_err(|error| NoCuda::Unusable(format!("the driver does not work: {error}")))?;
    if driver.devices.is_empty() { Err(NoCuda::Absent("the driver found no GPU".to_owned())) } else { Ok(driver) }
}

/// Returns the path of the first GPU, such as `/dev/nvidia0`; under WSL, all share one.
fn device_file() -> Option<PathBuf> {
    let linux = (0..64).map(|number| format!("/dev/nvidia{number}"));
    linux.chain(["/dev/dxg".to_owned()]).map(PathBuf::from).find(|file| file.exists())
}

fn load_libtorch() -> Result<(), String> {
    open("libtorch_cuda.so").map(drop).map_err(|error| {
        format!(
            "this ringmark-worker is built with libtorch for CPUs ({error}): run RINGMARK_TORCH=cuda \
                 scripts/setup.sh, then rebuild it"
        )
    })
}

/// Checks the CUDA `runtime` of libtorch for compatibility with driver and GPUs.
///
/// A driver serves every runtime of its own major version and older ones (CUDA compatibility guide). libtorch 2.11.0
/// supports GPUs from Turing (7.5; on aarch64 from Ampere, 8.0) in its builds for CUDA 13.0, and up to Hopper (9.0) in
/// those for 12.6.
fn check_versions(driver: &DriverFacts, runtime: CudaVersion) -> Result<(), String> {
    const IS_AARCH64: bool = cfg!(target_arch = "aarch64");
    const OLDEST: ComputeCapability =
        if IS_AARCH64 { ComputeCapability::new(8, 0) } else { ComputeCapability::new(7, 5) };
    const OTHER_BUILD: &str = if IS_AARCH64 {
        "build another libtorch (run LIBTORCH=FOLDER scripts/setup.sh, then rebuild)"
    } else {
        "install libtorch for CUDA 12.6 (run RINGMARK_TORCH=cu126 scripts/setup.sh, then rebuild; image ringmark:cu126)"
    };
    if driver.cuda.major < runtime.major {
        let newer = match runtime.major {
            13 => "580",
            12 => "525",
            _ => "for that CUDA version",
        };
        let other =
            if runtime.major > 12 && driver.cuda.major == 12 { format!(", or {OTHER_BUILD}") } else { String::new() };
        return Err(format!(
            "libtorch is built for CUDA {runtime}, which this driver does not support: install driver {newer} or \
             newer{other}"
        ));
    }
    for device in &driver.devices {
        let capability = device.compute_capability;
        let too_old = runtime.major >= 13 && capability < OLDEST;
        let too_new = (runtime.major, runtime.minor) < (12, 8) && capability.major >= 10;
        let fix = match (too_old, too_new) {
            (true, _) => OTHER_BUILD,
            (_, true) => {
                "install libtorch for CUDA 13.0 (run RINGMARK_TORCH=cu130 scripts/setup.sh, then rebuild; image \
                 ringmark:cu130)"
            }
            _ => continue,
        };
        return Err(format!(
            "{} has compute capability {capability}, but libtorch for CUDA {runtime} has no kernels for it: {fix}",
            device.name
        ));
    }
    Ok(())
}

/// Describes GPUs and driver by the first GPU: `2 GPUs (NVIDIA H100 80GB HBM3, compute capability 9.0) with a driver
/// for CUDA 12.4 (550.54.15)`.
fn described(driver: &DriverFacts) -> String {
    let DriverFacts { cuda, devices } = driver;
    let first = devices.first().map_or_else(String::new, |DeviceFacts { name, compute_capability, .. }| {
        format!(" ({name}, compute capability {compute_capability})")
    });
    let release = driver::release().map(|release| format!(" ({release})")).unwrap_or_default();
    let count = count(devices.len(), "GPU");
    format!("{count}{first} with a driver for CUDA {cuda}{release}")
}

/// Loads the compiler that cuDNN uses for its kernels. The folder of NVRTC and its builtins is not in their search
/// path: once they are loaded by full path, later lookups by name succeed. PyTorch does the same in Python.
fn load_runtime_compiler() -> Result<CompilerLibrary, String> {
    let wanted = |folder: &Path, start: &str| -> Vec<PathBuf> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|file| file.to_str().is_some_and(|path| is_named(path, start))).collect()
    };
    let folders = runtime_folders(&libraries::loaded());
    let find = |name| {
        let files: Vec<PathBuf> = folders.iter().flat_map(|folder| wanted(folder, name)).collect();
        files.iter().find_map(|file| open(&file.to_string_lossy()).ok()).ok_or_else(|| {
            let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            format!(
                "cuDNN cannot compile its own kernels and is slower: {name} not found in {}",
                if places.is_empty() { "the CUDA runtime's folder".to_owned() } else { places.join(" and ") }
            )
        })
    };
    let compiler = find("libnvrtc.so")?;
    find("libnvrtc-builtins.so").map(|_| compiler)
}

/// Returns the possible folders of the compiler: next to the CUDA runtime (wheels for CUDA 13), or in a separate
/// package (CUDA 12).
fn runtime_folders(loaded: &[String]) -> Vec<PathBuf> {
    let Some(runtime) = loaded.iter().find(|path| is_named(path, "libcudart.so")) else { return Vec::new() };
    let training_state = Path::new(runtime).parent().map(Path::to_owned);
    let own = Path::new(runtime).ancestors().nth(3).map(|packages| packages.join("cuda_nvrtc/lib"));
    [training_state, own].into_iter().flatten().filter(|folder| folder.is_dir()).collect()
}

/// Returns the path of a loaded cuDNN that is not libtorch's, if libtorch has one.
fn foreign_cudnn(loaded: &[String]) -> Option<String> {
    let path = |name| loaded.iter().find(|path| is_named(path, name)).map(Path::new);
    let packages = path("libtorch_cuda.so")?.ancestors().nth(3)?;
    let cudnn = path("libcudnn.so")?;
    let own = packages.join("nvidia/cudnn/lib");
    (own.is_dir() && !cudnn.starts_with(packages)).then(|| {
        format!(
            "cuDNN is {}, not the one that libtorch was built with: remove it from LD_LIBRARY_PATH",
            cudnn.display()
        )
    })
}

/// Formats an error with its causes. For a CUDA error from libtorch, keeps the first line and adds a fix: the other
/// lines are only useful for debugging kernels.
pub fn user_message(error: &anyhow::Error) -> String {
    const NAME: &str = "CUDA error: ";
    let text = format!("{error:#}");
    let Some((before, after)) = text.split_once(NAME) else { return text };
    let what = after.lines().next().unwrap_or_default();
    let fix = if what.contains("out of memory") { "use a smaller --batch-size" } else { driver::RESET_HINT };
    // Prefix added by tch, which errors of the shim do not have.
    let before = before.replace("Internal torch error", "libtorch");
    format!("{before}{NAME}{what}: {fix}")
}

/// Returns the version of the CUDA runtime that libtorch has loaded.
pub fn runtime_version() -> Option<CudaVersion> {
    let path = libraries::loaded().into_iter().find(|path| is_named(path, "libcudart.so"))?;
    driver::version_by(open(&path).ok()?, "cudaRuntimeGetVersion")
}

/// Returns the newest CUDA version that the driver supports, if there is a driver.
pub fn driver_version() -> Option<CudaVersion> {
    driver::version_by(open("libcuda.so.1").ok()?, "cuDriverGetVersion")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn driver(cuda: (u32, u32), capabilities: &[(i32, i32)]) -> DriverFacts {
        let device = |capability: &(i32, i32)| DeviceFacts {
            name: "NVIDIA V100".to_owned(),
            compute_capability: ComputeCapability { major: capability.0, minor: capability.1 },
            bus_id: String::new(),
        };
        let cuda = CudaVersion { major: cuda.0, minor: cuda.1 };
        DriverFacts { cuda, devices: capabilities.iter().map(device).collect() }
    }

    const CU130: CudaVersion = CudaVersion { major: 13, minor: 0 };
    const CU126: CudaVersion = CudaVersion { major: 12, minor: 6 };

    #[test]
    fn driver_supports_its_major_version_and_older() {
        for (version, runtime) in [((13, 0), CU130), ((13, 1), CU130), ((13, 0), CU126), ((12, 0), CU126)] {
            assert_eq!(check_versions(&driver(version, &[(9, 0)]), runtime), Ok(()), "{version:?} {runtime}");
        }
        let error = check_versions(&driver((12, 4), &[(9, 0)]), CU130).expect_err("an old driver");
        expect!["libtorch is built for CUDA 13.0, which this driver does not support: install driver 580 or newer, or install libtorch for CUDA 12.6 (run RINGMARK_TORCH=cu126 scripts/setup.sh, then rebuild; image ringmark:cu126)"].assert_eq(&error);
        let found = described(&driver((12, 4), &[(9, 0), (9, 0)]));
        expect!["2 GPUs (NVIDIA V100, compute capability 9.0) with a driver for CUDA 12.4"].assert_eq(&found);
        expect!["libtorch is built for CUDA 13.0, which this driver does not support: install driver 580 or newer, or install libtorch for CUDA 12.6 (run RINGMARK_TORCH=cu126 scripts/setup.sh, then rebuild; image ringmark:cu126)"].assert_eq(&error);
        let error = check_versions(&driver((11, 8), &[(8, 0)]), CU126).expect_err("an older driver");
        expect!["libtorch is built for CUDA 12.6, which this driver does not support: install driver 525 or newer"]
            .assert_eq(&error);
    }

    #[test]
    fn gpu_without_kernels_is_rejected_by_name() {
        for capability in [(7, 5), (8, 0), (9, 0), (10, 0), (12, 0)] {
            assert_eq!(check_versions(&driver((13, 0), &[capability]), CU130), Ok(()), "{capability:?}");
        }
        let error = check_versions(&driver((13, 0), &[(9, 0), (7, 0)]), CU130).expect_err("a V100");
        expect!["NVIDIA V100 has compute capability 7.0, but libtorch for CUDA 13.0 has no kernels for it: install libtorch for CUDA 12.6 (run RINGMARK_TORCH=cu126 scripts/setup.sh, then rebuild; image ringmark:cu126)"].assert_eq(&error);
        assert_eq!(check_versions(&driver((12, 6), &[(7, 0)]), CU126), Ok(()));
        let error = check_versions(&driver((13, 0), &[(10, 0)]), CU126).expect_err("a B200");
        expect!["NVIDIA V100 has compute capability 10.0, but libtorch for CUDA 12.6 has no kernels for it: install libtorch for CUDA 13.0 (run RINGMARK_TORCH=cu130 scripts/setup.sh, then rebuild; image ringmark:cu130)"].assert_eq(&error);
    }

    #[test]
    fn cuda_error_is_one_line() {
        let text = "libtorch: CUDA error: unspecified launch failure\nSearch for `cudaErrorLaunchFailure' in ..\nCompile with ..";
        let error = anyhow::anyhow!("{text}").context("iteration 3");
        expect!["iteration 3: libtorch: CUDA error: unspecified launch failure: check dmesg for Xid errors, then reset the GPU or restart the host"].assert_eq(&user_message(&error));
        let other = anyhow::anyhow!("no such file\nor so");
        expect![[r"
            no such file
            or so"]]
        .assert_eq(&user_message(&other));
    }

    #[test]
    fn compiler_is_found_with_runtime_or_in_its_package() {
        let packages = std::env::temp_dir().join(format!("ringmark-packages-{}", std::process::id()));
        let folders = ["cuda_runtime/lib", "cuda_nvrtc/lib"].map(|folder| packages.join("nvidia").join(folder));
        folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("made"));
        let loaded = [format!("{}/libcudart.so.12", folders[0].display())];
        assert_eq!(runtime_folders(&loaded), folders);
        assert_eq!(runtime_folders(&[]), Vec::<PathBuf>::new());
        fs::remove_dir_all(&packages).expect("removed");
    }

    #[test]
    fn foreign_cudnn_is_reported() {
        let packages = std::env::temp_dir().join(format!("ringmark-cudnn-{}", std::process::id()));
        let own = packages.join("nvidia/cudnn/lib");
        fs::create_dir_all(&own).expect("made");
        let torch = packages.join("torch/lib/libtorch_cuda.so").display().to_string();
        assert_eq!(foreign_cudnn(&[torch.clone(), own.join("libcudnn.so.9").display().to_string()]), None);
        let remark = foreign_cudnn(&[torch, "/usr/lib/libcudnn.so.9".to_owned()]).expect("foreign");
        expect![
            "cuDNN is /usr/lib/libcudnn.so.9, not the one that libtorch was built with: remove it from LD_LIBRARY_PATH"
        ]
        .assert_eq(&remark);
        fs::remove_dir_all(&packages).expect("removed");
    }
}
