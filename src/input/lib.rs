//! Training data from files to pixels. Needs neither libtorch nor MPI: the launcher packs files with it, a rank reads them.
//!
//! | module | what it is for |
//! |---|---|
//! | [`location`] | where in a file something stands, for messages |
//! | [`byte_source`] | bytes of a file by their offset, every failure with its location |
//! | [`format`](mod@format) | each file format by itself: RecordIO, image records, .idx, .lst, idx arrays, folders of classes |
//! | [`dataset`] | files or folders as items with labels, whatever their format |
//! | [`shard`] | which part of the items a rank has |
//! | [`pack`] | a folder of images as one RecordIO file |
//! | [`convert`] | an image file as another: its centre, another size, JPEG or PNG |
//! | [`decode`] | JPEG and PNG as RGB |
//! | [`resize`] | another size, by either of two interpolations |
//! | [`augment`] | what is cut, turned and shifted in an image before a step sees it |
//! | [`image`] | the two stages of one image, decoding and augmenting |
//! | [`loader`] | threads that make batches ahead of the steps that use them |

pub mod augment;
pub mod byte_source;
pub mod convert;
pub mod dataset;
pub mod decode;
mod ffi;
pub mod format;
pub mod image;
pub mod loader;
pub mod location;
pub mod pack;
mod python_random;
pub mod resize;
pub mod shard;

#[cfg(test)]
mod testing;
