//! Two results against each other: what differs in how they were made, and how sure it is that one is faster. The test is
//! in [`ringmark_core::stats::comparison`].
//!
//! | module | what it is for |
//! |---|---|
//! | [`side`] | BASE or TEST, whatever it was read from |
//! | [`training`] | training runs as a side: the JSON that extract makes of them |
//! | [`pytorch`] | files of PyTorch's DDP benchmark as a side |
//! | [`collectives`] | records of `ringmark bandwidth` and files of nccl-tests as a side |
//! | [`pairing`] | which is compared with which, and what must not be |
//! | [`verdicts`] | differences, intervals, verdicts |

pub mod collectives;
pub mod pairing;
pub mod pytorch;
pub mod side;
pub mod training;
pub mod verdicts;
