//! Spans inside some iterations of a run, of all ranks on one clock.

pub mod chrome;
pub mod clock;
pub mod config;
pub mod horovod;
pub mod layer_profile;
pub mod operator_profile;
pub mod span;
pub mod timeline;

pub use clock::{ClockMethod, ClockReading, RankClock};
pub use config::{TraceConfig, TraceFormat};
pub use layer_profile::LayerProfile;
pub use operator_profile::OperatorProfile;
pub use span::{Direction, GradientReady, Lane, LayerKind, LayerPass, RankTrace, Span, iteration_ranges};
pub use timeline::{GradientArray, Timeline};
