//! Analysis of results and their presentation. Needs neither libtorch nor MPI nor a GPU.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | reading of folders and files: runs, records, bandwidth results, formats of other programs |
//! | [`analyze`] | figures from loaded results; pure, except for suggested command lines |
//! | [`show`] | figures as tables, Markdown, CSV, JSON and pages |
//! | [`results`] | reading of a folder: loads the runs of each benchmark and computes their figures |
//! | [`extract`] | command: a folder of runs as a table, JSON, CSV and Markdown |
//! | [`export`] | option of `extract`: figures in the formats of Prometheus, InfluxDB, MLflow, MLPerf |
//! | [`check`] | command: checks that a result is complete, unedited, by the rules and reliable |
//! | [`diff`] | command: comparison of two results |
//! | [`report`] | command: a page, a picture, or tables with bars, for one or more results |
//! | [`input`] | comparison of input rates with the demand of a training result |
//! | [`predict`] | command: predictions of larger cases from measured ones, as bands |
//!
//! `analyze` imports `load`, `show` imports both, and commands import all three.

pub mod analyze;
pub mod check;
pub mod diff;
pub mod export;
pub mod extract;
pub mod input;
pub mod load;
pub mod predict;
pub mod report;
pub mod results;
pub mod show;
