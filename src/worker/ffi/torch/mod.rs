//! libtorch: the calls that tch lacks, implemented in C++ beside their Rust half, and tensors as host memory.
//!
//! | module | what it calls |
//! |---|---|
//! | [`shim`] | `shim.cpp`: gradients, streams, events, memory; layers of `batch_norm.cpp`, `pointwise_cuda.cpp`, `update_cuda.cpp` |
//! | [`graph`] | `graph.cpp`: CUDA graphs |
//! | [`packed`] | `packed.cpp`: fused layers for inference |
//! | [`nodes`] | the nodes of backward |
//! | [`host_array`], [`host_values`] | tensors in host memory as bytes and slices |

pub mod graph;
pub mod host_array;
pub mod host_values;
pub mod nodes;
pub mod packed;
pub mod shim;
