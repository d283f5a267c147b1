//! A prediction of larger cases, for people and for programs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`text`] | tables, and what they rest on below them |

pub mod text;
