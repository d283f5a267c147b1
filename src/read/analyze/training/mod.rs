//! Figures of training sweeps.
//!
//! | module | contents |
//! |---|---|
//! | [`grouping`] | which runs may share a table, and the names of tables |
//! | [`figures`] | runs grouped into cases, speedup and efficiency |
//! | [`batch_sizes`] | groups as series by batch size |
//! | [`result_json`] | the result file: one row for each case |
//! | [`title`] | description of a group of runs: network, devices, options |
//! | [`conclusion`] | summary of a group of runs |
//! | [`scaling_loss`] | scaling loss of a case and its parts |
//! | [`critical_path`] | critical path of a traced iteration |
//! | [`weight_waits`] | waits for sharded weights by phase |
//! | [`checkpoint_cost`] | cost of checkpoints |
//! | [`work_load`] | effect of uneven batch sizes per rank |
//! | [`accuracy`] | accuracy at the end of training |
//! | [`energy`] | power and energy |
//! | [`cost`] | training cost |

pub mod accuracy;
pub mod batch_sizes;
pub mod checkpoint_cost;
pub mod conclusion;
pub mod cost;
pub mod critical_path;
pub mod energy;
pub mod figures;
pub mod grouping;
pub mod result_json;
pub mod scaling_loss;
pub mod title;
pub mod weight_waits;
pub mod work_load;
