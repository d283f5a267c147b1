//! Predictions of larger cases from a sweep and a bandwidth result, each as a band.
//!
//! | module | contents |
//! |---|---|
//! | [`evidence`] | measurements: steps by case, from a folder or a published row; all-reduce times by size |
//! | [`exchange_pattern`] | communication pattern of a strategy: all-reduce, shards, owners or servers |
//! | [`model`] | extrapolation from measured cases, as a band |
//! | [`strategy_model`] | extrapolation for kv-stores without all-reduce |
//! | [`step_parts`] | parts of steps, margins and losses, shared by both models |
//! | [`refusal`] | reasons why a case cannot be predicted, and the missing measurement |
//! | [`search`] | case at which the efficiency falls below a value; backtest of the largest measured case |
//! | [`outlook`] | all predictions for one group of runs |

pub mod evidence;
pub mod exchange_pattern;
pub mod model;
pub mod outlook;
pub mod refusal;
pub mod search;
pub mod step_parts;
pub mod strategy_model;
