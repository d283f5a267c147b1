//! Result files of other benchmarks, as their own programs write them. Not for ours, and not for comparing.
//!
//! | module | what it is for |
//! |---|---|
//! | [`nccl_tests`] | the JSON of nccl-tests (`-J`) |
//! | [`pytorch_ddp`] | the JSON of PyTorch's `benchmarks/distributed/ddp`, which its `diff.py` reads |

pub mod nccl_tests;
pub mod pytorch_ddp;
