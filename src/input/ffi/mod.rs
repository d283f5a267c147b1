//! The only folder of this package with `unsafe`.

pub mod turbojpeg;

/// A resizer without vector instructions, whatever the processor has.
#[cfg(test)]
pub fn plain_resizer() -> fast_image_resize::Resizer {
    let mut resizer = fast_image_resize::Resizer::new();
    // SAFETY: no instruction is used that a processor may lack.
    unsafe { resizer.set_cpu_extensions(fast_image_resize::CpuExtensions::None) };
    resizer
}
