//! Tables of scoring sweeps.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | table by network and batch size, for a terminal or in Markdown |
//! | [`csv`] | CSV with one row per point |

pub mod csv;
pub mod text;
