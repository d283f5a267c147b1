//! Pure arithmetic on what was measured, each function with its formula and a worked number. Not for files or tables.

pub mod busbw;
pub mod comparison;
pub mod scaling;
pub mod straggler;
pub mod summary;
