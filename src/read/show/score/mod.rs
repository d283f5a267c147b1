//! Tables of scoring sweeps.
//!
//! | module | content |
//! |---|---|
//! | [`text`] | a table by network and batch size, for a terminal and in Markdown |
//! | [`published`] | published rates of the same networks |
//! | [`csv`] | one line for each point |

pub mod csv;
pub mod published;
pub mod text;
