//! Iterations of another trainer, from the lines that it prints. A [`LineFormat`] is the name of a known trainer or a
//! regular expression; the names of its groups state the quantity and the unit.

mod formats;
mod reader;

pub use formats::LineFormat;
pub use reader::{LineReader, ProgramIteration, Timing};
