//! Predictions of larger cases, as text and JSON.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | tables, and notes below them |
//! | [`json`] | JSON |
//! | [`notes`] | assumptions and warnings as sentences; [`kv_store_notes`] for kv-stores without all-reduce |

pub mod json;
mod kv_store_notes;
pub mod notes;
pub mod text;
