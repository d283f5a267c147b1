//! What is trained: the network, its named tensors, and the files that hold them. Knows nothing of ranks or gradients.

pub mod checkpoint;
pub mod flat_parameters;
pub mod named_tensors;
pub mod precision;
pub mod prepared;
pub mod resnet;
