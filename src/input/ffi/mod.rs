//! Foreign function interfaces; the only `unsafe` code of this package.

pub mod turbojpeg;

/// Returns a resizer without vector instructions, whatever the processor supports.
#[cfg(test)]
pub fn plain_resizer() -> fast_image_resize::Resizer {
    let mut resizer = fast_image_resize::Resizer::new();
    // SAFETY: without extensions, no instruction is used that a processor may lack.
    unsafe { resizer.set_cpu_extensions(fast_image_resize::CpuExtensions::None) };
    resizer
}
