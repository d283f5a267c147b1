//! Facts of networks and devices, known without building or asking them.
//!
//! | module | facts |
//! |---|---|
//! | [`model`] | each network: source, images, size |
//! | [`decoder`] | shapes of language models |
//! | [`rank_memory`] | the memory that a network takes |
//! | [`device_peak`] | the published speed of devices |

mod decoder;
pub mod device_peak;
mod model;
mod rank_memory;

pub use decoder::{DecoderFamily, DecoderShape, MfuFormula, Rotary};
pub use model::{FACTS, ImageRule, ModelFacts, ModelInput, PASSES_OF_TRAINING, Source};
pub use rank_memory::{BatchMemory, RankMemory};
