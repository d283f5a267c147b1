//! A prediction of larger cases, for people and for programs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`text`] | tables, and what they rest on below them |
//! | [`json`] | the same for programs |
//! | [`notes`] | what it rests on, and what a reader must know |

pub mod json;
pub mod notes;
pub mod text;
