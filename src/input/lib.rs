//! Training data, from files to pixels or tokens. Depends on neither libtorch nor MPI: the launcher uses it to pack files,
//! ranks to read them.
//!
//! | module | contents |
//! |---|---|
//! | [`byte_source`] | reads a file by offset; errors include the location |
//! | [`format`](mod@format) | the file formats: RecordIO, image records, .idx, .lst, idx arrays, folders of classes, token files |
//! | [`dataset`] | files or folders as images with labels or as windows of tokens, independent of their format |
//! | [`shard`] | the part of the items that a rank reads |
//! | [`pack`] | packs a folder of images into a RecordIO file |
//! | [`convert`] | converts an image file: center crop, resize, JPEG or PNG |
//! | [`decode`] | decodes JPEG and PNG to RGB |
//! | [`resize`] | resizes with one of two interpolations |
//! | [`augment`] | random crop, distortion, color shift and mirroring |
//! | [`image`] | the two stages of one image, decoding and augmenting |
//! | [`loader`] | threads that prepare batches ahead of the steps that use them |

pub mod augment;
pub mod byte_source;
pub mod convert;
pub mod dataset;
pub mod decode;
#[allow(unsafe_code)]
mod ffi;
pub mod format;
pub mod image;
pub mod loader;
pub mod pack;
mod python_random;
pub mod resize;
pub mod shard;

#[cfg(test)]
mod testing;
