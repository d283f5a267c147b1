//! The files in which launcher, worker and reader meet. What a record says is in [`benchmark`](crate::benchmark), what a
//! manifest says in [`manifest`](crate::manifest).
//!
//! | module | what it is for |
//! |---|---|
//! | [`schema`] | the head of every file: what it is, in which version |
//! | [`run_name`] | where a run's log and record lie, under DLPerf's names |
//! | [`safetensors`] | check of the header of a safetensors file against its size |
//! | [`sha256`] | the hash of a file, by which a change of it is found |
//! | [`whole_file`] | a file that is there whole or not at all |

pub mod run_name;
pub mod safetensors;
pub mod schema;
pub mod sha256;
pub mod whole_file;
