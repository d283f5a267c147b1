//! Tables of scoring sweeps.
//!
//! | module | contents |
//! |---|---|
//! | [`text`] | table by network and batch size, for a terminal or in Markdown |
//! | [`published`] | published rates of the same networks |
//! | [`csv`] | CSV with one row per point |

pub mod csv;
pub mod published;
pub mod text;
