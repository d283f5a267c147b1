//! The figures of a folder, in every format that `ringmark extract` prints and writes.
//!
//! | module | what it is for |
//! |---|---|
//! | [`text`] | tables for a terminal, and the same in Markdown |
//! | [`scaling_loss`] | the table of the scaling loss |
//! | [`kv_stores`] | kv-stores of one sweep side by side |
//! | [`dlperf`] | DLPerf's file |
//! | [`csv`] | one line a case |
//! | [`pytorch_ddp`] | for users of PyTorch's DDP suite: the JSON for its diff.py, and its lines |

pub mod csv;
pub mod dlperf;
pub mod kv_stores;
pub mod pytorch_ddp;
pub mod scaling_loss;
pub mod text;
