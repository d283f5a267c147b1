//! What a figure is given by, each dimension named once.
//!
//! | module | dimension |
//! |---|---|
//! | [`model`] | the network |
//! | [`dtype`] | the precision of a step |
//! | [`device`] | CPU or CUDA |
//! | [`case`] | nodes and ranks a node: `1n8g` |
//! | [`phase`] | the parts of an iteration |
//! | [`units`] | bytes, seconds, images/s, GB/s |

pub mod case;
pub mod device;
pub mod dtype;
pub mod model;
pub mod phase;
pub mod units;
