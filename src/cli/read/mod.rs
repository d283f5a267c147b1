//! Options of the commands that read what was written.
//!
//! | module | command |
//! |---|---|
//! | [`extract`] | extract: the figures of a folder, also for other programs |
//! | [`check`] | check: whether a result is sound |
//! | [`diff`] | diff: two results against each other |
//! | [`report`] | report: a page, tables with bars |
//! | [`predict`] | predict: larger cases |

pub mod check;
pub mod diff;
pub mod extract;
pub mod predict;
pub mod report;
