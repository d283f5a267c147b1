//! What went on inside some iterations of a run, span by span, of all ranks on one clock.
//!
//! | module | what it is for |
//! |---|---|
//! | [`config`] | what is traced: options of every benchmark |
//! | [`clock`] | how the clocks of several hosts become one |
//! | [`span`] | a span, and those of a rank |
//! | [`timeline`] | those of all ranks on rank 0's clock |
//! | [`chrome`] | the file that Perfetto and Chrome open |
//! | [`horovod`] | the file that tools for Horovod's timeline read |
//! | [`layer_profile`] | time by layer |

pub mod chrome;
pub mod clock;
pub mod config;
pub mod horovod;
pub mod layer_profile;
pub mod span;
pub mod timeline;

pub use clock::{ClockMethod, ClockReading, RankClock};
pub use config::{TraceConfig, TraceFormat};
pub use layer_profile::LayerProfile;
pub use span::{Direction, GradientReady, Lane, LayerKind, LayerPass, RankTrace, Span};
pub use timeline::{GradientArray, Timeline};
