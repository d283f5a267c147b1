//! File formats, each on its own. [`dataset`](crate::dataset) combines related files: a `.rec` with its `.idx`,
//! images with their labels.
//!
//! | module | contents |
//! |---|---|
//! | [`record_io`] | dmlc-core's record container, `.rec` |
//! | [`image_record`] | MXNet's contents of a record: labels and an image file |
//! | [`index_file`] | offsets of the records, `.idx` |
//! | [`list_file`] | list of files for `im2rec.py`, `.lst` |
//! | [`idx_array`] | MNIST's arrays, optionally compressed (`.gz`) |
//! | [`image_folder`] | one folder per class |
//! | [`token_file`] | tokens of nanoGPT and Megatron-LM, `.bin` |
//! | [`token_index`] | Megatron-LM's index of tokens, `.idx` |

pub mod idx_array;
pub mod image_folder;
pub mod image_record;
pub mod index_file;
pub mod list_file;
pub mod record_io;
mod text_lines;
pub mod token_file;
pub mod token_index;
