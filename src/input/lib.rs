//! Training data from files to pixels. Needs neither libtorch nor MPI: the launcher packs files with it, a rank reads them.

pub mod augment;
pub mod decode;
mod ffi;
pub mod image;
pub mod resize;

#[cfg(test)]
mod speed;
#[cfg(test)]
mod testing;
