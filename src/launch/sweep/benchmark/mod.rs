//! What is a benchmark's own.
//!
//! | module | what it is for |
//! |---|---|
//! | [`train`] | training runs |
//! | [`bandwidth`] | all-reduce alone, once a case |

pub mod bandwidth;
pub mod train;
