//! Computation of figures from loaded results. Pure: no file access and no output.
//!
//! | module | contents |
//! |---|---|
//! | [`grouping`] | which runs may share a table, and table titles |
//! | [`case_runs`] | runs of one case, for every benchmark |
//! | [`figures`] | runs grouped into cases, speedup and efficiency |
//! | [`accuracy`] | accuracy at the end of training |
//! | [`batch_sizes`] | speed and memory by batch size, for training and scoring |
//! | [`run_warnings`] | warnings about the runs in a table |
//! | [`conclusion`] | summary of a group of runs |
//! | [`reliability`] | reasons why figures are unreliable, and remedies |
//! | [`checks`] | checks of a result: complete, unedited, by the rules, reliable |
//! | [`title`] | description of a group of runs: network, devices, options |
//! | [`utilization`] | share of a device's arithmetic rate that a network reaches |
//! | [`energy`] | power and energy |
//! | [`cost`] | training cost |
//! | [`work_load`] | effect of uneven batch sizes per rank |
//! | [`scaling_loss`] | scaling loss of a case and its parts |
//! | [`input_demand`] | images per second that the devices of a host consume |
//! | [`input_ceiling`] | comparison of a host's input rate with that demand |
//! | [`result_json`] | result file of a training sweep: one row for each case |
//! | [`score`] | figures of scoring sweeps |
//! | [`comparison`] | comparison of two results |
//! | [`prediction`] | predictions of larger cases, as bands |
//! | [`results`] | the results included in one report |
//! | [`critical_path`] | critical path of a traced iteration |
//! | [`published`] | rows published by others, with their sources |

pub mod accuracy;
pub mod batch_sizes;
pub mod case_runs;
pub mod checks;
pub mod comparison;
pub mod conclusion;
pub mod cost;
pub mod critical_path;
pub mod energy;
pub mod figures;
pub mod grouping;
pub mod input_ceiling;
pub mod input_demand;
pub mod prediction;
pub mod published;
pub mod reliability;
pub mod result_json;
pub mod results;
pub mod run_warnings;
pub mod scaling_loss;
pub mod score;
pub mod title;
pub mod utilization;
pub mod work_load;
