//! A prediction of larger cases, for people and for programs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`text`] | tables, and what they rest on below them |
//! | [`json`] | the same for programs |
//! | [`notes`] | what it rests on, and what a reader must know; [`kv_store_notes`] where the exchange is no all-reduce |

pub mod json;
mod kv_store_notes;
pub mod notes;
pub mod text;
