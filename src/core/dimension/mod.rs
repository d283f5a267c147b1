//! Dimensions of the measured figures.
//!
//! | module | dimension |
//! |---|---|
//! | [`model`] | the network |
//! | [`facts`] | properties of networks and devices, known without building or querying them |
//! | [`strategy`] | strategy that sums gradients and updates weights |
//! | [`choices`] | closed sets of keywords: device, precision, layout, kernels, graphs, backend, wire type |
//! | [`batch`] | samples per rank or of all ranks; tokens of a sample |
//! | [`work_unit`] | the unit of speed: images or tokens |
//! | [`case`] | nodes and ranks per node: `1n8g` |
//! | [`preprocessing`] | decoder, interpolation, augmentation |
//! | [`image_limits`] | limits of an image that is read |
//! | [`operation`] | collective operation and reduction |
//! | [`phase`] | phases of an iteration |
//! | [`units`] | bytes, seconds, units of work per second, GB/s, TFLOP/s |

mod batch;
mod case;
mod choices;
mod facts;
mod image_limits;
mod model;
mod operation;
mod phase;
mod preprocessing;
mod strategy;
mod units;
mod work_unit;

pub use batch::{BatchShape, BatchSize};
pub use case::Case;
pub use choices::{
    AttentionKernel, BackendName, DeviceChoice, DeviceKind, Dtype, GraphChoice, KernelsChoice, Layout, LayoutChoice,
    Wire,
};
pub use facts::{
    BatchMemory, DecoderFamily, DecoderShape, ImageRule, MfuFormula, ModelFacts, ModelInput, PASSES_OF_TRAINING,
    RankMemory, Rotary, Source, device_peak,
};
pub use image_limits::{ImageLimit, ImageLimits, OverLimit};
pub use model::Model;
pub use operation::{Operands, Operation, Reduction};
pub use phase::{Phase, Phases};
pub use preprocessing::{Augmentation, BadImage, DecoderChoice, ImageFormat, Interpolation, Scaling};
pub use strategy::{KeyPlacement, ShardCollectives, Strategy};
pub use units::{Bytes, GigabytesPerSecond, Seconds, TeraflopsPerSecond, UnitsPerSecond};
pub use work_unit::{IMAGENET_IMAGES, SampleSize, WorkUnit};
