//! Training data from files to pixels. Needs neither libtorch nor MPI: the launcher packs files with it, a rank reads them.
//!
//! | module | what it is for |
//! |---|---|
//! | [`place`] | where in a file something stands, for messages |
//! | [`byte_source`] | bytes of a file by their offset, every failure with its place |
//! | [`format`](mod@format) | each file format by itself: RecordIO, image records, .idx, .lst, idx arrays, folders of classes |
//! | [`dataset`] | files or folders as items with labels, whatever their format |
//! | [`shard`] | which part of the items a rank has |
//! | [`pack`] | a folder of images as one RecordIO file |

pub mod byte_source;
pub mod dataset;
pub mod format;
pub mod pack;
pub mod place;
mod python_random;
pub mod shard;
