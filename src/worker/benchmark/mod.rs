//! What this program measures, a module each. A benchmark is a body that gets a [`Session`](crate::job::session::Session);
//! [`cli`](crate::cli) has its options.

pub mod bandwidth;
pub mod input;
pub mod score;
pub mod train;
