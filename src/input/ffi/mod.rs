//! The only folder of this package with `unsafe`.

pub mod turbojpeg;
