//! The only folder of this package with `unsafe`.

pub mod turbojpeg;

#[cfg(test)]
pub mod allocator;
