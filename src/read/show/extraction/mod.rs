//! The figures of a folder, in every format that `ringmark extract` prints and writes.
//!
//! | module | what it is for |
//! |---|---|
//! | [`text`] | tables for a terminal, and the same in Markdown |
//! | [`json`] | DLPerf's JSON with our fields |
//! | [`pytorch_ddp`] | for users of PyTorch's DDP suite: the JSON for its diff.py, and its lines |

pub mod json;
pub mod pytorch_ddp;
pub mod text;
