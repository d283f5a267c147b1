//! The options of a scoring run, each in one line: see [`crate::options::option_table`].

use crate::benchmark::cores;
use crate::benchmark::score::config::ScoreConfig;
use crate::option;
use crate::options::option_table::{AUTO_BATCH_SIZE, OF_NETWORK, OptionSpec, Options, check_ranges};
use crate::trace::config::TraceConfig;

impl Options for ScoreConfig {
    const HEADING: &'static str = "Scoring";

    fn options() -> Vec<OptionSpec<ScoreConfig>> {
        let mut options = vec![
            option!(model, "model", "NAME", "Network to score with"),
            option!(batch_size, "batch-size", "IMAGES", "Images of a rank and pass")
                .range(1u32..=65_536)
                .keyword_of_launcher(AUTO_BATCH_SIZE, "the largest that fits, found by trials")
                .set_by_profile(),
            option!(dtype, "dtype", "TYPE", "Precision of the pass; fp32 is IEEE, tf32 only when asked for"),
            option!(
                device,
                "device",
                "KIND",
                "Where to compute; auto takes CUDA where all of it is there and says what is missing"
            ),
            option!(
                layout,
                "layout",
                "NAME",
                "Memory layout: channels_last or contiguous; auto is nchw for fp32 on GPUs, nhwc elsewhere"
            ),
            option!(iterations, "iters", "N", "Timed passes").range(1u32..=10_000_000).set_by_profile(),
            option!(warmup, "warmup", "N", "Dry passes before them, which no figure holds")
                .range(0u32..=10_000_000)
                .set_by_profile(),
            option!(image_size, "image-size", "PIXELS", "Height and width of an image")
                .range(1u32..=4096)
                .default_is(OF_NETWORK),
            option!(
                fold,
                "fold",
                "ON|OFF",
                "Take batch normalization into the convolution before it, and ReLU and sums into its end, as compilers do"
            ),
            option!(
                graphs,
                "graphs",
                "WHEN",
                "On GPUs, capture a pass as a CUDA graph and replay it; auto falls back to separate launches"
            ),
        ];
        options.extend(cores::options(
            (|config: &ScoreConfig| &config.threads, |config: &mut ScoreConfig| &mut config.threads),
            (|config: &ScoreConfig| &config.cores_divided_by, |config: &mut ScoreConfig| &mut config.cores_divided_by),
        ));
        options.extend([
            option!(
                seed,
                "seed",
                "N",
                "Seed of the weights, the same on every device, and, plus the rank, of the data"
            ),
            option!(init, "init", "FILE", "Weights to use: safetensors with the names of the network's source"),
            option!(record, "record", "FILE", "Where rank 0 writes the record (JSON)").for_worker(),
        ]);
        let trace = TraceConfig::options_of_layers();
        options.extend(
            trace.map(|option| option.within(|config: &ScoreConfig| &config.trace, |config| &mut config.trace)),
        );
        options
    }
}

impl ScoreConfig {
    /// Refuses values outside their range; the message names option, value and range.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        self.trace.check(self.iterations)?;
        self.model.check_image_size(self.image_size())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::benchmark::exchange::Switch;
    use crate::dimension::device::DeviceChoice;
    use crate::dimension::dtype::Dtype;
    use crate::dimension::graphs::GraphChoice;
    use crate::dimension::layout::LayoutChoice;
    use crate::dimension::model::Model;
    use crate::options::option_table::{Worker, arguments};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Worker<ScoreConfig>,
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let config = ScoreConfig {
            model: Model::Resnet18,
            batch_size: 2,
            dtype: Dtype::Bf16,
            device: DeviceChoice::Cpu,
            layout: LayoutChoice::Nchw,
            iterations: 7,
            warmup: 0,
            image_size: Some(64),
            fold: Switch::Off,
            graphs: GraphChoice::Off,
            threads: Some(3),
            cores_divided_by: Some(8),
            seed: -4,
            init: Some("a b.safetensors".into()),
            record: Some("c.json".into()),
            trace: TraceConfig { profile_layers: true, ..TraceConfig::default() },
        };
        let program = std::iter::once("worker".to_owned());
        let typed = Typed::try_parse_from(program.chain(arguments(&config))).expect("valid arguments");
        assert_eq!(typed.options.apply(ScoreConfig::default()).expect("valid values"), config);
        config.validate().expect("in range");
        assert_eq!(arguments(&ScoreConfig::default()), Vec::<String>::new());
        let error = ScoreConfig { batch_size: 0, ..config }.validate().expect_err("out of range").to_string();
        assert_eq!(error, "--batch-size 0 is out of range: choose 1 to 65536");
    }
}
