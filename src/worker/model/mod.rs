//! The network, its named tensors and weight files. Independent of ranks and gradients.

pub mod flat_parameters;
mod layers;
pub mod network;
pub mod networks;
mod precision;
pub mod prepared;
pub mod tensor_hash;
mod unit;
pub mod weights_file;

pub use layers::attention_kernel;
