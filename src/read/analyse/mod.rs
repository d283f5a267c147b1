//! Figures from what was loaded. Pure: no files, no printing.
//!
//! | module | what it is for |
//! |---|---|
//! | [`grouping`] | which runs may stand in one table, and what tables are called |
//! | [`case_runs`] | runs of one case, whatever was measured |
//! | [`figures`] | groups of runs into cases, speedup and efficiency |
//! | [`accuracy`] | predictions at the end of training |
//! | [`batch_sizes`] | speed and memory by batch size, of training and of scoring |
//! | [`run_warnings`] | what a reader of a table must know of the runs in it |
//! | [`conclusion`] | the last word about a group of runs |
//! | [`reliability`] | why figures are unreliable, and what to do |
//! | [`checks`] | whether a result holds: complete, unedited, by the rules, reliable |
//! | [`title`] | what a group of runs measured, on what and how, in a few lines |
//! | [`utilisation`] | how much of a device a network's arithmetic takes |
//! | [`energy`] | what it takes of electric power |
//! | [`cost`] | what it costs in money |
//! | [`work_load`] | what the division of the batch among ranks cost |
//! | [`scaling_loss`] | where the time of larger cases goes |
//! | [`input_demand`] | how many images the devices of a host take |
//! | [`input_ceiling`] | whether hosts read and decode as many images as their devices need |
//! | [`result_json`] | the result file of a training sweep: one row for each case |
//! | [`score`] | figures of scoring sweeps |
//! | [`comparison`] | two results against each other |
//! | [`prediction`] | larger cases from measured ones, as a band |
//! | [`results`] | the results that one report is about |
//! | [`critical_path`] | what held a traced iteration |
//! | [`published`] | rows that others published, with their sources |

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
pub mod utilisation;
pub mod work_load;
