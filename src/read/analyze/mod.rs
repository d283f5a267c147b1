//! Computation of figures from loaded results. Pure: no file access and no output.
//!
//! | module | contents |
//! |---|---|
//! | [`training`], [`score`] | figures of sweeps, a folder per benchmark |
//! | [`comparison`] | comparison of two results |
//! | [`prediction`] | predictions of larger cases, as bands |
//! | [`published`] | figures published by others |
//! | [`results`] | the results of a folder |
//! | [`checks`] | checks of a result: complete, unedited, by the rules, reliable |
//!
//! Shared by training and scoring:
//!
//! | module | contents |
//! |---|---|
//! | [`case_runs`] | runs of one case |
//! | [`run_group`] | cases under equal conditions |
//! | [`result_row`] | parts of a row of a result file |
//! | [`batch_sizes`] | speed and memory by batch size |
//! | [`run_warnings`] | warnings about the runs in a table |
//! | [`assessment`] | warnings and trust of a group, a record or a folder |
//! | [`once`] | deduplication of warnings that several points share |
//! | [`reliability`] | reasons why figures are unreliable, and remedies |
//! | [`utilization`] | share of a device's arithmetic rate that a network reaches |
//! | [`settings`] | options of runs by their names in records |

pub mod assessment;
pub mod batch_sizes;
pub mod case_runs;
pub mod checks;
pub mod comparison;
pub mod once;
pub mod prediction;
pub mod published;
pub mod reliability;
pub mod result_row;
pub mod results;
pub mod run_group;
pub mod run_warnings;
pub mod score;
pub mod settings;
pub mod training;
pub mod utilization;
