//! Files that launcher, worker and reader exchange. [`benchmark`](crate::benchmark) defines the contents of records,
//! [`manifest`](crate::manifest) those of a manifest.

pub mod atomic_file;
pub mod run_name;
pub mod safetensors;
pub mod schema;
pub mod sha256;
