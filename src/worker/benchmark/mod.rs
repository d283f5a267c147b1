//! What this program measures, a module each.

pub mod bandwidth;
pub mod train;
