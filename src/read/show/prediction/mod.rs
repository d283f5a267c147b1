//! Predictions of larger cases, as text and JSON.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | tables, and notes below them |
//! | [`json`] | JSON |
//! | [`notes`] | assumptions and warnings as sentences; [`strategy_notes`] for kv-stores without all-reduce |

pub mod json;
pub mod notes;
mod strategy_notes;
pub mod text;
