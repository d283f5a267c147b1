//! Analysis of results and their presentation. Needs neither libtorch nor MPI nor a GPU.
//!
//! | module | contents |
//! |---|---|
//! | [`load`] | reading of folders and files: runs, records, bandwidth results, formats of other programs |
//! | [`analyze`] | figures from loaded results; pure, except for suggested command lines |
//! | [`show`] | figures as tables, Markdown, CSV, JSON and pages |
//! | [`benchmark`] | benchmarks without sweeps: records, and their parts of reports and exports |
//! | [`results`] | reading of a folder: loads the runs of each benchmark and computes their figures |
//! | [`extract`] | command: a folder of runs as a table, JSON, CSV and Markdown |
//! | [`export`] | option of `extract`: figures in the formats of Prometheus, InfluxDB, MLflow, MLPerf |
//! | [`check`] | command: checks that a result is complete, unedited, by the rules and reliable |
//! | [`diff`] | command: comparison of two results |
//! | [`accept`] | report of a fleet that `ringmark accept` tested |
//! | [`goodput`] | report of training under failures |
//! | [`report`] | command: a page, a picture, or tables with bars, for one or more results |
//! | [`report_json`] | JSON of a report |
//! | [`predict`] | command: predictions of larger cases from measured ones, as bands |
//!
//! `analyze` imports `load`, `show` imports both, `benchmark` imports all three, and commands import all four.
//!
//! Each concept has one word, from the smallest to the largest:
//!
//! | word | meaning | types |
//! |---|---|---|
//! | run | one execution: log, record, and figures or the reason why it does not count | `Run`, `Recorded`, `Measured` |
//! | case | nodes and ranks per node; a case of a result has all its runs with their figures | `Case`, `CaseRuns`: `TrainingCase`, `ScoreCase` |
//! | point | network, precision, batch size and strategy | `Point` |
//! | group | cases under equal conditions, which become one table | `RunGroup`: `TrainingGroup`, `ScoreGroup` |
//! | result | everything in a folder | `ResultFolder` |
//! | side | one of the two results of a comparison, with its groups | `Side`, `SideGroup` |
//! | column | name, unit and value of a figure of a case in tables and CSV | `Column` |
//! | row | a case in a table or in a file | `Row`, `JsonRow`, `ScoreRow` |
//! | series | cases in a chart | `PageSeries`, `BatchSeries` |

pub mod accept;
pub mod analyze;
pub mod benchmark;
pub mod check;
pub mod diff;
pub mod export;
pub mod extract;
pub mod goodput;
pub mod load;
pub mod predict;
pub mod report;
pub mod report_json;
pub mod results;
pub mod show;
