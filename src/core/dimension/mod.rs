//! What a figure is given by, each dimension named once.
//!
//! | module | dimension |
//! |---|---|
//! | [`model`] | the network |
//! | [`model_facts`] | what is known of each network |
//! | [`rank_memory`] | the memory that a network takes |
//! | [`kv_store`] | where gradients are summed and weights updated |
//! | [`graphs`] | CUDA graphs: a pass launched as a whole |
//! | [`kernels`] | the kernels of a GPU's layers |
//! | [`layout`] | where an image's channels are in memory |
//! | [`dtype`] | the precision of a step |
//! | [`device`] | CPU or CUDA |
//! | [`device_peak`] | what is published of a device's speed |
//! | [`backend_name`] | the backend that summed |
//! | [`case`] | nodes and ranks a node: `1n8g` |
//! | [`image_input`] | decoder, interpolation, augmentation |
//! | [`image_limits`] | limits of an image that is read |
//! | [`operation`] | what ranks do together with their arrays |
//! | [`phase`] | the parts of an iteration |
//! | [`wire`] | the element type of gradients in an exchange |
//! | [`units`] | bytes, seconds, images/s, GB/s, TFLOP/s |

pub mod backend_name;
pub mod case;
pub mod device;
pub mod device_peak;
pub mod dtype;
pub mod graphs;
pub mod image_input;
pub mod image_limits;
pub mod kernels;
pub mod kv_store;
pub mod layout;
pub mod model;
pub mod model_facts;
pub mod operation;
pub mod phase;
pub mod rank_memory;
pub mod units;
pub mod wire;

pub use backend_name::BackendName;
pub use case::Case;
pub use device::{DeviceChoice, DeviceKind};
pub use dtype::Dtype;
pub use graphs::GraphChoice;
pub use image_input::{Augmentation, BadImage, DecoderChoice, ImageFormat, Interpolation, Scaling};
pub use image_limits::{ImageLimit, ImageLimits, OverLimit};
pub use kernels::KernelsChoice;
pub use kv_store::{KeyPlacement, KvStore};
pub use layout::{Layout, LayoutChoice};
pub use model::Model;
pub use model_facts::{ImageRule, ModelFacts, Source};
pub use operation::{Operands, Operation, Reduction};
pub use phase::{Phase, Phases};
pub use rank_memory::{BatchMemory, RankMemory};
pub use units::{Bytes, GigabytesPerSecond, ImagesPerSecond, Seconds, TeraflopsPerSecond};
pub use wire::Wire;
