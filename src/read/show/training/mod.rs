//! Figures of a folder, in every format of `ringmark extract`.
//!
//! | module | contents |
//! |---|---|
//! | [`columns`] | figures of training as columns |
//! | [`text`] | tables for a terminal or in Markdown |
//! | [`scaling_loss`] | table of the scaling loss |
//! | [`strategies`] | strategies of a sweep side by side |
//! | [`dlperf`] | DLPerf's result file |
//! | [`csv`] | CSV with one row per case |
//! | [`pytorch_ddp`] | JSON and text of PyTorch's DDP benchmark, for its diff.py |

pub mod columns;
pub mod csv;
pub mod dlperf;
pub mod pytorch_ddp;
pub mod scaling_loss;
pub mod strategies;
pub mod text;
