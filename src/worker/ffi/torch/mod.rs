//! libtorch: functions that tch lacks, implemented in C++ in the same folder, and tensors as host memory.
//!
//! | module | implementation and contents |
//! |---|---|
//! | [`shim`] | `shim.cpp`: gradients, memory, settings |
//! | [`update`] | `shim.cpp`, `update_cuda.cpp`: fused weight updates |
//! | [`norm`] | `batch_norm.cpp`, `pointwise_cuda.cpp`: fused layers for training |
//! | [`stream`] | `shim.cpp`: streams and events |
//! | [`transformer`] | `transformer.cpp`: rotary positions, the loss of an output layer, recomputation |
//! | [`graph`] | `graph.cpp`: CUDA graphs |
//! | [`packed`] | `packed.cpp`: fused layers for inference |
//! | [`profiler`] | `profiler.cpp`: times of operators and kernels |
//! | [`nodes`] | observation of autograd nodes in backward |
//! | [`host_array`] | tensors in host memory as bytes and slices |

pub mod graph;
pub mod host_array;
pub mod nodes;
pub mod norm;
pub mod packed;
pub mod profiler;
pub mod shim;
pub mod stream;
pub mod transformer;
pub mod update;
