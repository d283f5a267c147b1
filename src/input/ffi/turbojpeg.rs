//! libjpeg-turbo's TurboJPEG 2.x API, loaded at run time from `libturbojpeg.so.0`, which may be absent. Declarations
//! follow turbojpeg.h of 2.1; 3.x has the same functions.

use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_ulong, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Library name in Debian's package `libturbojpeg0`.
pub const LIBRARY: &str = "libturbojpeg.so.0";

/// `tjscalingfactor`: scales an edge of n pixels to `(n * numerator + denominator - 1) / denominator`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Factor {
    /// `num`.
    pub numerator: c_int,
    /// `denom`.
    pub denominator: c_int,
}

/// Pixel format of the output (`TJPF`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PixelFormat {
    /// Red, green, blue.
    Rgb,
    /// Cyan, magenta, yellow, black, as stored.
    Cmyk,
}

impl PixelFormat {
    /// Returns the number of bytes per pixel.
    pub fn channels(self) -> usize {
        match self {
            PixelFormat::Rgb => 3,
            PixelFormat::Cmyk => 4,
        }
    }

    fn number(self) -> c_int {
        match self {
            PixelFormat::Rgb => 0,
            PixelFormat::Cmyk => 11,
        }
    }
}

type Handle = *mut c_void;

struct Functions {
    init_decompress: unsafe extern "C" fn() -> Handle,
    /// Writes width, height, subsampling and color space.
    decompress_header:
        unsafe extern "C" fn(Handle, *const c_uchar, c_ulong, *mut c_int, *mut c_int, *mut c_int, *mut c_int) -> c_int,
    /// Takes width, pitch, height, pixel format and flags.
    decompress:
        unsafe extern "C" fn(Handle, *const c_uchar, c_ulong, *mut c_uchar, c_int, c_int, c_int, c_int, c_int) -> c_int,
    destroy: unsafe extern "C" fn(Handle) -> c_int,
    error_text: unsafe extern "C" fn(Handle) -> *mut c_char,
    factors: Vec<Factor>,
}

/// Returns the library, which is loaded once per process and never unloaded.
fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, String> {
    // SAFETY: libjpeg-turbo has no initializers with side effects.
    let library = unsafe { Library::open(Some(LIBRARY), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))?;
    let library: &'static Library = Box::leak(Box::new(library));
    // SAFETY: the type is that of turbojpeg.h.
    let factors: unsafe extern "C" fn(*mut c_int) -> *mut Factor = unsafe { find(library, c"tjGetScalingFactors") }?;
    let mut count = 0;
    // SAFETY: writes one integer and returns null or a static table with that many entries.
    let factors = unsafe {
        let table = factors(&mut count);
        let count = if table.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
        if count == 0 { Vec::new() } else { std::slice::from_raw_parts(table, count).to_vec() }
    };
    // SAFETY: the types of the fields are those of turbojpeg.h.
    unsafe {
        Ok(Functions {
            init_decompress: find(library, c"tjInitDecompress")?,
            decompress_header: find(library, c"tjDecompressHeader3")?,
            decompress: find(library, c"tjDecompress2")?,
            destroy: find(library, c"tjDestroy")?,
            error_text: find(library, c"tjGetErrorStr2")?,
            factors,
        })
    }
}

/// # Safety
///
/// `T` must be the type of the function `name`.
unsafe fn find<T: Copy>(library: &'static Library, name: &CStr) -> Result<T, String> {
    // SAFETY: the caller guarantees the type; the library is never unloaded.
    let symbol = unsafe { library.get::<T>(name.to_bytes_with_nul()) };
    symbol.map(|symbol| *symbol).map_err(|error| format!("{LIBRARY} has no {}: {error}", name.to_string_lossy()))
}

/// Size of an image in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JpegSize {
    /// Pixels per row.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// A decompressor, used by one thread at a time.
pub struct Decompressor {
    functions: &'static Functions,
    handle: NonNull<c_void>,
}

// SAFETY: a handle is not tied to the thread that created it. turbojpeg.h requires use by one thread at a time, which
// `&mut` ensures.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// Creates a decompressor.
    ///
    /// # Errors
    ///
    /// Fails if the library is absent or lacks a function; contains the loader's message.
    pub fn new() -> Result<Decompressor, String> {
        let functions = functions()?;
        // SAFETY: takes no arguments; null is checked below.
        let handle = unsafe { (functions.init_decompress)() };
        let handle = NonNull::new(handle).ok_or_else(|| format!("{LIBRARY} cannot create a decompressor"))?;
        Ok(Decompressor { functions, handle })
    }

    /// Returns the supported scaling factors.
    pub fn factors(&self) -> &[Factor] {
        &self.functions.factors
    }

    /// Returns the size in the header of `jpeg`.
    ///
    /// # Errors
    ///
    /// The library's message if the header is invalid.
    pub fn size(&mut self, jpeg: &[u8]) -> Result<JpegSize, String> {
        let [mut width, mut height, mut subsampling, mut color_space] = [0; 4];
        // SAFETY: reads only `jpeg`, and writes four integers.
        let status = unsafe {
            (self.functions.decompress_header)(
                self.handle.as_ptr(),
                jpeg.as_ptr(),
                jpeg.len() as c_ulong,
                &mut width,
                &mut height,
                &mut subsampling,
                &mut color_space,
            )
        };
        match (usize::try_from(width), usize::try_from(height)) {
            (Ok(width), Ok(height)) if status == 0 => Ok(JpegSize { width, height }),
            _ => Err(self.error()),
        }
    }

    /// Decodes `jpeg` to rows of `width` pixels without gaps. The library uses the largest of the
    /// [`factors`](Self::factors) whose result fits into `width` x `height`, so pass one of these sizes.
    ///
    /// # Errors
    ///
    /// The library's message, for errors and for warnings.
    ///
    /// # Panics
    ///
    /// Panics if `pixels` is smaller than `height` such rows.
    pub fn decompress(
        &mut self,
        jpeg: &[u8],
        JpegSize { width, height }: JpegSize,
        format: PixelFormat,
        pixels: &mut [u8],
    ) -> Result<(), String> {
        let pitch = width * format.channels();
        assert!(width > 0 && height > 0 && pixels.len() >= pitch * height, "{width} x {height} do not fit");
        let [width, pitch, height] = [width, pitch, height].map(|edge| c_int::try_from(edge).unwrap_or(c_int::MAX));
        // SAFETY: reads only `jpeg`; writes at most `height` rows of `pitch` bytes, for which `pixels` is large
        // enough. An image that does not fit is rejected ("Could not scale down to desired image dimensions").
        let status = unsafe {
            (self.functions.decompress)(
                self.handle.as_ptr(),
                jpeg.as_ptr(),
                jpeg.len() as c_ulong,
                pixels.as_mut_ptr(),
                width,
                pitch,
                height,
                format.number(),
                0,
            )
        };
        if status == 0 { Ok(()) } else { Err(self.error()) }
    }

    fn error(&mut self) -> String {
        // SAFETY: the handle is valid; the text is null-terminated and valid until the next call with the handle.
        let text = unsafe { CStr::from_ptr((self.functions.error_text)(self.handle.as_ptr())) };
        text.to_string_lossy().into_owned()
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: created by tjInitDecompress, and not used afterwards.
        unsafe { (self.functions.destroy)(self.handle.as_ptr()) };
    }
}
