//! From files to figures. Needs no libtorch, no MPI and no GPU. Not for starting anything.
//!
//! | module | what it is for |
//! |---|---|
//! | [`load`] | what lies in a folder or a file: runs, records, bandwidth results, other programs' formats |
//! | [`analyse`] | figures from what was loaded; pure, but for the command lines that it advises |
//! | [`show`] | figures as tables, Markdown, CSV, JSON and pages |
//! | [`extract`] | the command: a folder of runs as a table, JSON, CSV and Markdown |
//! | [`export`] | the same command: the figures in the formats of Prometheus, InfluxDB, MLflow, MLPerf |
//! | [`check`] | the command: whether a result is complete, unedited, by the rules, reliable |
//! | [`diff`] | the command: two results against each other |
//! | [`report`] | the command: a page, a picture, or tables with bars, of one result or several |
//! | [`input`] | what a result of training needs of reading and decoding |
//! | [`predict`] | the command: larger cases from measured ones, as a band |
//!
//! `analyse` imports `load`, `show` imports both, and commands import all three.

pub mod analyse;
pub mod check;
pub mod diff;
pub mod export;
pub mod extract;
pub mod input;
pub mod load;
pub mod predict;
pub mod report;
pub mod show;
