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

/// Parses `1.5%` as a share; `None` without the sign, since 0.01 could mean either.
fn percent(text: &str) -> Option<f64> {
    Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0)
}
