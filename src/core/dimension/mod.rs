//! Dimensions of the measured figures.
//!
//! | module | dimension |
//! |---|---|
//! | [`model`] | the network |
//! | [`facts`] | properties of networks and devices, known without building or querying them |
//! | [`kv_store_name`] | key-value store that sums gradients and updates weights |
//! | [`graphs`] | use of CUDA graphs |
//! | [`kernels`] | the kernels of a GPU's layers |
//! | [`layout`] | memory layout of images |
//! | [`dtype`] | the precision of a step |
//! | [`device`] | CPU or CUDA |
//! | [`backend_name`] | the backend that summed |
//! | [`batch`] | samples per rank or of all ranks; tokens of a sample |
//! | [`work_unit`] | the unit of speed: images or tokens |
//! | [`case`] | nodes and ranks per node: `1n8g` |
//! | [`preprocessing`] | decoder, interpolation, augmentation |
//! | [`image_limits`] | limits of an image that is read |
//! | [`operation`] | collective operation and reduction |
//! | [`phase`] | phases of an iteration |
//! | [`wire`] | the element type of gradients in an exchange |
//! | [`units`] | bytes, seconds, units of work per second, GB/s, TFLOP/s |

mod backend_name;
mod batch;
mod case;
mod device;
mod dtype;
mod facts;
mod graphs;
mod image_limits;
mod kernels;
mod kv_store_name;
mod layout;
mod model;
mod operation;
mod phase;
mod preprocessing;
mod units;
mod wire;
mod work_unit;

pub use backend_name::BackendName;
pub use batch::{BatchShape, BatchSize};
pub use case::Case;
pub use device::{DeviceChoice, DeviceKind};
pub use dtype::Dtype;
pub use facts::{
    BatchMemory, DecoderFamily, DecoderShape, ImageRule, MfuFormula, ModelFacts, ModelInput, PASSES_OF_TRAINING,
    RankMemory, Rotary, Source, device_peak,
};
pub use graphs::GraphChoice;
pub use image_limits::{ImageLimit, ImageLimits, OverLimit};
pub use kernels::{AttentionKernel, KernelsChoice};
pub use kv_store_name::{KeyPlacement, KvStore};
pub use layout::{Layout, LayoutChoice};
pub use model::Model;
pub use operation::{Operands, Operation, Reduction};
pub use phase::{Phase, Phases};
pub use preprocessing::{Augmentation, BadImage, DecoderChoice, ImageFormat, Interpolation, Scaling};
pub use units::{Bytes, GigabytesPerSecond, Seconds, TeraflopsPerSecond, UnitsPerSecond};
pub use wire::Wire;
pub use work_unit::{IMAGENET_IMAGES, SampleSize, WorkUnit};
