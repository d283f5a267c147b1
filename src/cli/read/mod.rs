//! Options of the commands that read results.
//!
//! | module | command |
//! |---|---|
//! | [`extract`] | extract: the figures of a folder, also for other programs |
//! | [`check`] | check: validation of a result |
//! | [`diff`] | diff: comparison of two results |
//! | [`report`] | report: a page, tables with bars |
//! | [`predict`] | predict: larger cases |
//! | [`price`] | `--price` of several of them |

pub mod check;
pub mod diff;
pub mod extract;
pub mod predict;
pub mod price;
pub mod report;
