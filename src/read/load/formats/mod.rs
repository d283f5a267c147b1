//! Result files of other benchmarks, in their own formats.
//!
//! | module | contents |
//! |---|---|
//! | [`nccl_tests`] | JSON of nccl-tests (`-J`) |
//! | [`pytorch_ddp`] | JSON of PyTorch's `benchmarks/distributed/ddp`, the input of its `diff.py` |

pub mod nccl_tests;
pub mod pytorch_ddp;
