//! What one scoring run is asked to do, with every default. [`options`](super::options) has names, ranges and help.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::SweepProfile;
use crate::benchmark::exchange::Switch;
use crate::dimension::device::{DeviceChoice, DeviceKind};
use crate::dimension::dtype::Dtype;
use crate::dimension::graphs::GraphChoice;
use crate::dimension::layout::LayoutChoice;
use crate::dimension::model::Model;
use crate::trace::config::TraceConfig;

/// One scoring run. [`ScoreConfig::default`] has the passes of MXNet's benchmark_score.py: 10 timed ones after 5 dry ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreConfig {
    /// Network.
    pub model: Model,
    /// Images of a rank and pass.
    pub batch_size: u32,
    /// Precision of the pass.
    pub dtype: Dtype,
    /// Where to compute.
    pub device: DeviceChoice,
    /// Memory layout; in a record what it came to.
    pub layout: LayoutChoice,
    /// Timed passes.
    pub iterations: u32,
    /// Dry passes before them, which no figure holds.
    pub warmup: u32,
    /// Height and width of an image in pixels; `None` is the network's own size, in a record what it came to.
    pub image_size: Option<u32>,
    /// Whether batch normalization is taken into the convolution before it; records said nothing before it was.
    #[serde(default = "Switch::off")]
    pub fold: Switch,
    /// Use of a CUDA graph for the timed passes. A record contains the outcome; absent means off.
    #[serde(default = "GraphChoice::off", skip_serializing_if = "GraphChoice::is_off")]
    pub graphs: GraphChoice,
    /// CPU threads of a rank; `None` divides the host's cores among its ranks.
    pub threads: Option<u32>,
    /// Ranks that divide a host's cores where `threads` is `None`; `None` are those on the host. A sweep gives every case
    /// the ranks of its largest, so that a device is the same in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores_divided_by: Option<u32>,
    /// Seed of weights and data; rank r's data take `seed + r`.
    pub seed: i64,
    /// Weights to use (safetensors).
    pub init: Option<PathBuf>,
    /// Where rank 0 writes the record (JSON).
    pub record: Option<PathBuf>,
    /// What is traced.
    #[serde(default, skip_serializing_if = "TraceConfig::is_default")]
    pub trace: TraceConfig,
}

impl ScoreConfig {
    /// What a scoring sweep of this profile does where nothing is typed: DLPerf scores nothing, so that every measurement is
    /// MXNet's.
    pub fn of_profile(profile: SweepProfile) -> ScoreConfig {
        match profile {
            SweepProfile::Dlperf | SweepProfile::Cpu => ScoreConfig::default(),
            SweepProfile::Quick => ScoreConfig { batch_size: 4, iterations: 5, warmup: 2, ..ScoreConfig::default() },
        }
    }

    /// With what its choices come to on `device`.
    pub fn on(&self, device: DeviceKind) -> ScoreConfig {
        let layout = self.layout.of(self.dtype, device).into();
        let graphs = self.graphs.on(device);
        ScoreConfig { layout, graphs, image_size: Some(self.image_size()), ..self.clone() }
    }

    /// Formats layout, folding and graph use: `nhwc, folded, CUDA graph`.
    pub fn arrangement(&self) -> String {
        let folded = if self.fold == Switch::On { ", folded" } else { "" };
        let graph = if self.graphs == GraphChoice::On { ", CUDA graph" } else { "" };
        format!("{}{folded}{graph}", self.layout)
    }

    /// Height and width of an image in pixels.
    pub fn image_size(&self) -> u32 {
        self.model.image_size(self.image_size)
    }
}

impl Default for ScoreConfig {
    fn default() -> ScoreConfig {
        ScoreConfig {
            model: Model::default(),
            batch_size: 32,
            dtype: Dtype::Fp32,
            device: DeviceChoice::Auto,
            layout: LayoutChoice::Auto,
            iterations: 10,
            warmup: 5,
            image_size: None,
            fold: Switch::On,
            graphs: GraphChoice::Auto,
            threads: None,
            cores_divided_by: None,
            seed: 0,
            init: None,
            record: None,
            trace: TraceConfig::default(),
        }
    }
}
