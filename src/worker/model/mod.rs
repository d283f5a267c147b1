//! What is trained: the network, its named tensors, and the files that hold them. Knows nothing of ranks or gradients.

pub mod flat_parameters;
mod layers;
pub mod named_tensors;
pub mod network;
pub mod networks;
mod precision;
pub mod prepared;
pub mod weights_file;
