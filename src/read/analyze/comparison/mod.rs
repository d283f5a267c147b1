//! Comparison of two results: differences in how they were made, and confidence that one is faster. The statistical
//! test is in [`ringmark_core::stats::comparison`].
//!
//! | module | contents |
//! |---|---|
//! | [`side`] | BASE or TEST, independent of the file format |
//! | [`training`] | a side from training runs: the JSON written by `extract` |
//! | [`pytorch`] | a side from files of PyTorch's DDP benchmark |
//! | [`collectives`] | a side from `ringmark bandwidth` records or nccl-tests files |
//! | [`checkpoints`] | a side from `ringmark checkpoint` records |
//! | [`pairing`] | matching tables and cases of both sides, and refusing incomparable ones |
//! | [`verdicts`] | differences, intervals, verdicts |

pub mod checkpoints;
pub mod collectives;
pub mod pairing;
pub mod pytorch;
pub mod side;
pub mod training;
pub mod verdicts;
