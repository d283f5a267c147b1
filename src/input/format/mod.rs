//! The formats, each by itself. What belongs together, a `.rec` and its `.idx`, images and their labels, comes together in
//! [`dataset`](crate::dataset).
//!
//! | module | what it is for |
//! |---|---|
//! | [`record_io`] | dmlc-core's container of records, `.rec` |
//! | [`image_record`] | what MXNet keeps in such a record: labels and an image file |
//! | [`index_file`] | where the records are, `.idx` |
//! | [`list_file`] | what `im2rec.py` packs, `.lst` |
//! | [`idx_array`] | MNIST's arrays, `.gz` too |
//! | [`image_folder`] | a folder a class |

pub mod idx_array;
pub mod image_folder;
pub mod image_record;
pub mod index_file;
pub mod list_file;
pub mod record_io;
mod text_lines;
