//! GPU kernels of `../../kernels`: compiled by NVRTC for one GPU, loaded through the driver, launched by `kernels.cpp`.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail};
use cudarc::driver::sys::CUdevice_attribute;
use libloading::os::unix::Library;

use crate::ffi::cuda::driver::{ComputeCapability, Driver, exports};
use crate::ffi::memory::element::Element;
use crate::ffi::process::libraries::{Exports, functions, open};
use crate::ffi::torch::shim::check;

const PRELUDE: &str = include_str!("../../kernels/prelude.cuh");

/// Kernels that are compiled and loaded together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelSet {
    /// Batch normalization, max pooling and the update of the weights.
    Norm,
    /// 1x1 convolutions fused with their batch normalization, on tensor cores: fp16, bf16 and TF32, compute capability
    /// 8.0 or higher.
    Pointwise,
}

impl KernelSet {
    fn sources(self) -> &'static [&'static str] {
        match self {
            KernelSet::Norm => &[
                include_str!("../../kernels/batch_norm.cu"),
                include_str!("../../kernels/pool.cu"),
                include_str!("../../kernels/update.cu"),
            ],
            KernelSet::Pointwise => &[include_str!("../../kernels/pointwise.cu")],
        }
    }

    /// Returns true if the set supports GPUs of this compute capability.
    pub fn serves(self, capability: ComputeCapability) -> bool {
        self == KernelSet::Norm || capability >= ComputeCapability::new(8, 0)
    }
}

/// Returns the macro that selects the type of images and their gradients.
fn definition(element: Element) -> &'static str {
    match element {
        Element::Half => "-DELEMENT_HALF",
        Element::BFloat16 => "-DELEMENT_BFLOAT16",
        Element::Float => "-DELEMENT_FLOAT",
    }
}

pub type CompilerLibrary = &'static Library;

pub struct Compilation {
    compiler: Compiler,
    source: String,
    options: Vec<String>,
}

impl Compilation {
    /// Prepares to compile a kernel set for this element type and compute capability.
    pub fn new(
        compiler: CompilerLibrary,
        set: KernelSet,
        element: Element,
        ComputeCapability { major, minor }: ComputeCapability,
    ) -> Result<Compilation> {
        let options = [&format!("--gpu-architecture=sm_{major}{minor}"), "--std=c++17", "-default-device"];
        let options = options.into_iter().chain([definition(element)]).map(str::to_owned).collect();
        Ok(Compilation {
            compiler: Compiler::new(compiler)?,
            source: PRELUDE.to_owned() + &set.sources().concat(),
            options,
        })
    }

    /// Returns a text that identifies the result, for use as a cache key.
    pub fn identity(&self) -> Result<String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers are to live integers.
        self.compiler.check(unsafe { (self.compiler.version)(&raw mut major, &raw mut minor) }, "nvrtcVersion")?;
        Ok(format!("NVRTC {major}.{minor} {}\n{}", self.options.join(" "), self.source))
    }

    /// Compiles the kernels to machine code (cubin). Takes one to four seconds.
    pub fn compile(&self) -> Result<Vec<u8>> {
        let Compiler { create, compile, log_size, log, image_size, image, destroy, .. } = self.compiler;
        let source = CString::new(self.source.as_str())?;
        let options: Vec<CString> =
            self.options.iter().map(|option| CString::new(option.as_str())).collect::<Result<_, _>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = null_mut();
        // SAFETY: the texts are NUL-terminated and outlive the call; there are no headers.
        let status = unsafe { create(&raw mut program, source.as_ptr(), c"ringmark.cu".as_ptr(), 0, null(), null()) };
        self.compiler.check(status, "nvrtcCreateProgram")?;
        let body = || {
            // SAFETY: `program` is NVRTC's, and the count is the length of the list.
            let status = unsafe { compile(program, pointers.len() as c_int, pointers.as_ptr()) };
            if status != 0 {
                // SAFETY: both functions are of the program's log.
                let text = unsafe { self.compiler.fill(program, log_size, log, "nvrtcGetProgramLog") }?;
                let text = String::from_utf8_lossy(&text);
                let message = text.trim_end_matches('\0').lines().find(|line| line.contains("error"));
                bail!("NVRTC cannot compile the kernels: {}", message.unwrap_or("no compiler log"));
            }
            // SAFETY: both functions are of the program's cubin.
            unsafe { self.compiler.fill(program, image_size, image, "nvrtcGetCUBIN") }
        };
        let result = body();
        // SAFETY: created above and destroyed once.
        unsafe { destroy(&raw mut program) };
        result
    }
}

type Program = *mut c_void;
type GetSize = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type GetBytes = unsafe extern "C" fn(Program, *mut c_char) -> c_int;

functions!(
    /// Functions of NVRTC (nvrtc.h).
    #[derive(Clone, Copy)]
    struct Compiler {
        version = "nvrtcVersion": unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
        error = "nvrtcGetErrorString": unsafe extern "C" fn(c_int) -> *const c_char,
        create = "nvrtcCreateProgram": unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int,
        compile = "nvrtcCompileProgram": unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
        log_size = "nvrtcGetProgramLogSize": GetSize,
        log = "nvrtcGetProgramLog": GetBytes,
        image_size = "nvrtcGetCUBINSize": GetSize,
        image = "nvrtcGetCUBIN": GetBytes,
        destroy = "nvrtcDestroyProgram": unsafe extern "C" fn(*mut Program) -> c_int,
    }
);

impl Compiler {
    fn new(library: CompilerLibrary) -> Result<Compiler> {
        Compiler::find(Exports { library, name: "NVRTC", fix: "run scripts/setup.sh again" })
    }

    fn check(&self, status: c_int, call: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: NVRTC returns a string constant for every status.
        let text = unsafe { CStr::from_ptr((self.error)(status)) };
        Err(anyhow!("{call} failed: {}", text.to_string_lossy()))
    }

    /// # Safety
    /// `size` and `bytes` must be a pair of NVRTC's functions for the same text of `program`.
    unsafe fn fill(&self, program: Program, size: GetSize, bytes: GetBytes, call: &str) -> Result<Vec<u8>> {
        let mut length = 0;
        // SAFETY: the pointer is to a live usize.
        self.check(unsafe { size(program, &raw mut length) }, call)?;
        let mut content = vec![0_u8; length];
        // SAFETY: the buffer has the size that NVRTC reported.
        self.check(unsafe { bytes(program, content.as_mut_ptr().cast()) }, call)?;
        Ok(content)
    }
}

/// Kernels loaded on this process's GPU, not in use yet.
pub struct LoadedKernels {
    module: *mut c_void,
    set: KernelSet,
    element: Element,
    processors: i64,
}

impl LoadedKernels {
    /// Loads `image` on GPU `device`, whose context libtorch has made current.
    pub fn new(image: &[u8], set: KernelSet, element: Element, device: usize) -> Result<LoadedKernels> {
        const MULTIPROCESSORS: CUdevice_attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        let driver = KernelDriver::for_device(device)?;
        let mut module = null_mut();
        // SAFETY: the image is complete machine code, which the driver checks and copies.
        driver.check(unsafe { (driver.functions.load)(&raw mut module, image.as_ptr().cast()) }, "cuModuleLoadData")?;
        let mut processors = 0;
        // SAFETY: the pointer is to a live int, the device is one of the driver's.
        let status = unsafe { (driver.driver.get_attribute)(&raw mut processors, MULTIPROCESSORS, driver.device) };
        driver.check(status, "cuDeviceGetAttribute")?;
        Ok(LoadedKernels { module, set, element, processors: i64::from(processors) })
    }

    /// Registers the kernels with `kernels.cpp`: layers use them from now on, until the process ends.
    pub fn activate(self) -> Result<()> {
        // Codes defined in kernels.cpp.
        let element = match self.element {
            Element::Half => 0,
            Element::BFloat16 => 1,
            Element::Float => 2,
        };
        // SAFETY: `kernel_by_name` takes this module as its context and runs before the call returns; the launch
        // function and `make_current` have the types that kernels.cpp declares.
        check(unsafe {
            ringmark_set_kernels(
                element,
                (self.set == KernelSet::Pointwise).into(),
                kernel_by_name,
                self.module,
                driver()?.functions.launch,
                make_current,
                self.processors,
            )
        })
    }
}

type Launch = unsafe extern "C" fn(
    *mut c_void,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

unsafe extern "C" {
    fn ringmark_set_kernels(
        element: c_int,
        is_pointwise: c_int,
        find: extern "C" fn(*mut c_void, *const c_char, c_uint) -> *mut c_void,
        context: *mut c_void,
        launch: Launch,
        make_current: extern "C" fn() -> c_int,
        processors: i64,
    ) -> *mut c_char;
}

functions!(
    /// Functions of the driver for kernels (cuda.h).
    struct KernelFunctions {
        load = "cuModuleLoadData": unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> c_int,
        get_function = "cuModuleGetFunction": unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> c_int,
        set_attribute = "cuFuncSetAttribute": unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int,
        launch = "cuLaunchKernel": Launch,
        get_current = "cuCtxGetCurrent": unsafe extern "C" fn(*mut *mut c_void) -> c_int,
        set_current = "cuCtxSetCurrent": unsafe extern "C" fn(*mut c_void) -> c_int,
        retain = "cuDevicePrimaryCtxRetain": unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int,
    }
);

/// The driver, and the GPU that this process uses.
struct KernelDriver {
    driver: Driver,
    functions: KernelFunctions,
    device: c_int,
}

static DRIVER: OnceLock<KernelDriver> = OnceLock::new();

fn driver() -> Result<&'static KernelDriver> {
    DRIVER.get().context("the driver was not opened")
}

impl KernelDriver {
    fn for_device(index: usize) -> Result<&'static KernelDriver> {
        if let Some(driver) = DRIVER.get() {
            return Ok(driver);
        }
        let library = exports(open("libcuda.so.1").map_err(|error| anyhow!(error))?);
        let driver = Driver::find(library)?;
        let mut device = 0;
        // SAFETY: the pointer is to a live int.
        let status = unsafe { (driver.get_device)(&raw mut device, index as c_int) };
        let driver = KernelDriver { driver, functions: KernelFunctions::find(library)?, device };
        driver.check(status, "cuDeviceGet")?;
        Ok(DRIVER.get_or_init(|| driver))
    }

    fn check(&self, status: c_int, call: &str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        Err(anyhow!(self.driver.failure(status, call)))
    }
}

extern "C" fn kernel_by_name(module: *mut c_void, name: *const c_char, shared_bytes: c_uint) -> *mut c_void {
    /// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES` of cuda.h; the default limit is 48 KiB.
    const MAX_SHARED_BYTES: c_int = 8;
    let Some(driver) = DRIVER.get() else { return null_mut() };
    let mut function = null_mut();
    // SAFETY: a loaded module and a NUL-terminated name; the function is used only if the driver found it.
    unsafe {
        let is_ready = (driver.functions.get_function)(&raw mut function, module, name) == 0
            && (shared_bytes == 0
                || (driver.functions.set_attribute)(function, MAX_SHARED_BYTES, shared_bytes as c_int) == 0);
        if is_ready { function } else { null_mut() }
    }
}

/// Makes the primary context of the process's GPU current on a thread without a context.
extern "C" fn make_current() -> c_int {
    let Some(driver) = DRIVER.get() else { return -1 };
    let mut context = null_mut();
    // SAFETY: the pointers are to live variables; the context is the one of CUDA's runtime and stays retained until the
    // process ends.
    unsafe {
        match (driver.functions.get_current)(&raw mut context) {
            0 if !context.is_null() => 0,
            0 => match (driver.functions.retain)(&raw mut context, driver.device) {
                0 => (driver.functions.set_current)(context),
                status => status,
            },
            status => status,
        }
    }
}
