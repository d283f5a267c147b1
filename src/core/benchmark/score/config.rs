//! Options of a scoring run, each with its default.

use std::path::PathBuf;

use crate::benchmark::exchange::Switch;
use crate::benchmark::{AUTO_BATCH_SIZE, CPU_SEQUENCE_LENGTH, SweepProfile, is_default, shared_options};
use crate::config_options;
use crate::dimension::{BatchShape, DeviceChoice, DeviceKind, Dtype, GraphChoice, LayoutChoice, Model, SampleSize};
use crate::host::BindChoice;
use crate::options::option_table::check_ranges;
use crate::trace::TraceConfig;

config_options! {
    /// One scoring run. [`ScoreConfig::default`] has the passes of MXNet's benchmark_score.py: 5 warm-up passes, then
    /// 10 timed ones.
    ScoreConfig {
        /// Network.
        model: Model = Model::default() => option("model", "NAME", "Network to score"),
        /// Images or sequences per rank and pass.
        batch_size: u32 = 32 => option("batch-size", "N", "Images, or sequences of tokens, per GPU (rank) and pass")
            .range(1u32..=65_536).keyword_of_launcher(AUTO_BATCH_SIZE, "the largest that fits, found by trials")
            .set_by_profile("1,2,4,8,16,32"),
        /// Precision of the pass.
        dtype: Dtype = Dtype::Fp32 => shared(shared_options::dtype),
        /// Device to compute on.
        device: DeviceChoice = DeviceChoice::Auto => shared(shared_options::device),
        /// Memory layout. A record contains the resolved value.
        layout: LayoutChoice = LayoutChoice::Auto => shared(shared_options::layout),
        /// Timed passes.
        iterations: u32 = 10 => option("iters", "N", "Timed passes, warm-up excluded").range(1u32..=10_000_000).set_by_profile("10"),
        /// Warm-up passes, not measured.
        warmup: u32 = 5 => option("warmup", "N", "Warm-up passes, not measured")
            .range(0u32..=10_000_000).set_by_profile("5"),
        /// Height and width of an image in pixels; `None` is the network's default. A record contains the resolved
        /// value.
        image_size: Option<u32> = None => shared(shared_options::image_size),
        /// Tokens of a sequence; `None` is the network's default, and required for networks of images. A record contains
        /// the resolved value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sequence_length: Option<u32> = None => shared(shared_options::sequence_length),
        /// Folding of batch normalization into the preceding convolution; absent in records that predate the option.
        #[serde(default)]
        fold: Switch = Switch::On => option("fold", "ON|OFF",
            "Fuse batch normalization, ReLU and additions into convolutions, as inference compilers do"),
        /// Use of a CUDA graph for the timed passes. A record contains the outcome; absent means off.
        #[serde(default, skip_serializing_if = "is_default")]
        graphs: GraphChoice = GraphChoice::Auto => option("graphs", "WHEN",
            "Capture a pass as a CUDA graph and replay it (GPUs only); auto falls back to separate launches").resolved_from("auto"),
        /// CPU threads of a rank; `None` divides the host's cores among its ranks.
        threads: Option<u32> = None => shared(shared_options::threads),
        /// Number of ranks that share a host's cores if `threads` is `None`; `None` is the number of ranks on the host.
        /// A sweep sets this to the ranks of its largest case, so that a device is the same in all cases.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cores_divided_by: Option<u32> = None => shared(shared_options::cores_divided_by),
        /// Binding of ranks to processors. A record contains the resolved value; absent means none.
        #[serde(default, skip_serializing_if = "is_default")]
        bind: BindChoice = BindChoice::Auto => shared(shared_options::bind),
        /// Seed of weights and data; the data of rank r use `seed + r`.
        seed: i64 = 0 => shared(shared_options::seed),
        /// Weights to use (safetensors).
        init: Option<PathBuf> = None => option("init", "FILE",
            "Weights to use: safetensors with the names of the network's source"),
        /// File for the record (JSON), written by rank 0.
        record: Option<PathBuf> = None => shared(shared_options::record),
        /// Trace options.
        #[serde(default, skip_serializing_if = "is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options_of_layers()),
    }
}

impl ScoreConfig {
    /// Returns the defaults of a scoring sweep with this profile. DLPerf has no scoring, so that its profile uses
    /// MXNet's.
    pub fn for_profile(profile: SweepProfile) -> ScoreConfig {
        match profile {
            SweepProfile::Dlperf => ScoreConfig::default(),
            SweepProfile::Cpu => ScoreConfig { sequence_length: Some(CPU_SEQUENCE_LENGTH), ..ScoreConfig::default() },
            SweepProfile::Quick => {
                let sequence_length = Some(CPU_SEQUENCE_LENGTH);
                ScoreConfig { batch_size: 4, iterations: 5, warmup: 2, sequence_length, ..ScoreConfig::default() }
            }
        }
    }

    /// Rejects values outside their range; the error names the option, the value and the range.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        self.trace.check(self.iterations)?;
        self.model.check_known()?;
        self.model.check_sample_size(self.image_size, self.sequence_length)
    }

    /// Resolves automatic choices for `device`.
    pub fn on(&self, device: DeviceKind) -> ScoreConfig {
        let layout = self.layout.resolve(self.dtype, device).into();
        let graphs = self.graphs.on(device);
        let (image_size, sequence_length) =
            (self.model.image_size(self.image_size), self.model.sequence_length(self.sequence_length));
        ScoreConfig { layout, graphs, image_size, sequence_length, ..self.clone() }
    }

    /// Formats layout, folding and graph use: `nhwc, folded, CUDA graph`.
    pub fn arrangement(&self) -> String {
        let folded = if self.fold == Switch::On { ", folded" } else { "" };
        let graph = if self.graphs == GraphChoice::On { ", CUDA graph" } else { "" };
        format!("{}{folded}{graph}", self.layout)
    }

    /// Returns the samples of a pass.
    pub fn batch(&self) -> BatchShape {
        let sequence_length = self.model.sequence_length(self.sequence_length);
        BatchShape { sequence_length, ..BatchShape::per_rank(self.batch_size) }
    }

    /// Returns the configuration with the samples of `batch`.
    pub fn with_batch(&self, BatchShape { size, sequence_length }: BatchShape) -> ScoreConfig {
        ScoreConfig { batch_size: size.number(), sequence_length, ..self.clone() }
    }

    /// Returns the size of a sample.
    pub fn sample_size(&self) -> SampleSize {
        self.model.sample_size(self.image_size, self.sequence_length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_survives_worker_arguments() {
        crate::benchmark::tests::check_options::<ScoreConfig>(&[]);
    }

    #[test]
    fn value_outside_its_range_is_rejected() {
        let error =
            ScoreConfig { batch_size: 0, ..ScoreConfig::default() }.validate().expect_err("refused").to_string();
        assert_eq!(error, "--batch-size 0 is out of range: choose 1 to 65536");
    }
}
