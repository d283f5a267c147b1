//! The options of a run of reading and decoding, each in one line: see [`crate::options::option_table`].

use anyhow::{bail, ensure};

use crate::benchmark::image_input::{DataSource, ImageInputConfig};
use crate::benchmark::input::config::InputConfig;
use crate::option;
use crate::options::option_table::{OF_NETWORK, OptionSpec, OptionValue, Options, check_ranges};
use crate::trace::config::TraceConfig;

/// The option of [`ImageInputConfig`] that is a list here.
const THREADS: &str = "decode-threads";

impl Options for InputConfig {
    const HEADING: &'static str = "Input";

    fn options() -> Vec<OptionSpec<InputConfig>> {
        let mut options = vec![
            option!(
                data,
                "data",
                "FILES",
                "Images to read: .rec files with commas between them, a folder of them or of classes, or MNIST's arrays"
            )
            .default_is("none: it must be named"),
            option!(model, "model", "NAME", "Network whose size of image, channels and classes the batches have"),
            option!(image_size, "image-size", "PIXELS", "Height and width of an image in a batch")
                .range(1u32..=4096)
                .default_is(OF_NETWORK),
            option!(batch_size, "batch-size", "IMAGES", "Images of a batch").range(1u32..=65_536),
            option!(
                decode_threads,
                "decode-threads",
                "N,..",
                "Threads that read and decode on each host, of one pass after the other"
            )
            .aliases(&["data-nthreads"])
            .default_is("powers of two, and the cores of the host"),
            option!(
                cache,
                "cache",
                "WHICH",
                "Passes from the disk (cold: the kernel drops the files' pages first), from memory (warm), or both"
            ),
            option!(seconds, "seconds", "N", "Measure so long in each pass, a cold one at most all images once")
                .range(1u32..=86_400),
            option!(batches, "batches", "N", "Measure so many batches in each pass instead")
                .range(1u32..=10_000_000)
                .conflicts_with(&["seconds"]),
            option!(warmup, "warmup", "BATCHES", "Batches before them that no figure holds").range(0u32..=10_000_000),
            option!(display, "disp-batches", "N", "Batches of a line of MXNet's").range(1u32..=10_000_000),
            option!(seed, "seed", "N", "Seed of the order of the images and of what is drawn for each"),
            option!(record, "record", "FILE", "Where rank 0 writes the record (JSON)").for_worker(),
        ];
        let images = ImageInputConfig::options().into_iter().filter(|option| option.name() != THREADS);
        options.extend(
            images.map(|option| option.within(|config: &InputConfig| &config.images, |config| &mut config.images)),
        );
        let trace = TraceConfig::options_of_spans();
        options.extend(
            trace.map(|option| option.within(|config: &InputConfig| &config.trace, |config| &mut config.trace)),
        );
        options
    }
}

impl InputConfig {
    /// Refuses values outside their range, and data of which nothing is read while a benchmark runs; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        // How many batches a time holds nobody knows before it is over.
        self.batches.map_or_else(|| self.trace.check_number(), |batches| self.trace.check(batches))?;
        self.model.check_image_size(self.image_size())?;
        match self.data.source() {
            DataSource::Images(_) => {}
            DataSource::Synthetic => {
                bail!("--data is missing: name .rec files, a folder of them or of classes, or MNIST's arrays")
            }
            DataSource::Batch(_) => bail!(
                "--data {} is one batch, of which nothing is read or decoded while training runs: name .rec files or a folder",
                self.data.text()
            ),
        }
        ensure!(
            self.images.decode_threads.is_none(),
            "threads of a rank are those of training: name the threads of each pass by --{THREADS}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::benchmark::exchange::Switch;
    use crate::benchmark::image_input::DataFiles;
    use crate::benchmark::input::config::{CacheChoice, ThreadCounts};
    use crate::dimension::image_input::{Augmentation, BadImage, DecoderChoice, Interpolation, Scaling};
    use crate::dimension::model::Model;
    use crate::options::option_table::{Worker, arguments};

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        options: Worker<InputConfig>,
    }

    fn config() -> InputConfig {
        InputConfig {
            data: Some("a.rec,b.rec".to_owned()).into(),
            model: Model::Resnet18,
            image_size: Some(64),
            batch_size: 7,
            decode_threads: ThreadCounts(vec![1, 3]),
            cache: CacheChoice::Warm,
            seconds: 3,
            batches: None,
            warmup: 0,
            display: 5,
            seed: -4,
            images: ImageInputConfig {
                augmentation: Some(Augmentation::Crop),
                resize: Some(80),
                interpolation: Some(Interpolation::Antialias),
                decoder: DecoderChoice::Zune,
                decode_scaling: Scaling::Allowed,
                decode_threads: None,
                prefetch: 2,
                shuffle: Switch::Off,
                on_bad_image: BadImage::Skip,
                image_limits: "pixels=7,aspect=3".parse().ok(),
            },
            record: Some("c.json".into()),
            trace: TraceConfig { iterations: "3-4".parse().ok(), ..TraceConfig::default() },
        }
    }

    #[test]
    fn every_field_survives_the_way_to_the_worker() {
        let typed = |config: &InputConfig| {
            let program = std::iter::once("worker".to_owned());
            let typed = Typed::try_parse_from(program.chain(arguments(config))).expect("valid arguments");
            typed.options.apply(InputConfig::default()).expect("valid values")
        };
        config().validate().expect("in range");
        for config in [config(), InputConfig { seconds: 10, batches: Some(9), ..config() }] {
            assert_eq!(typed(&config), config);
        }
        assert_eq!(arguments(&InputConfig::default()), Vec::<String>::new());
    }

    #[test]
    fn what_cannot_be_measured_is_refused_in_words() {
        let error = |config: InputConfig| config.validate().expect_err("refused").to_string();
        assert!(error(InputConfig::default()).starts_with("--data is missing: name .rec files"));
        let batch = InputConfig { data: Some("a.safetensors".to_owned()).into(), ..config() };
        assert!(error(batch).starts_with("--data a.safetensors is one batch, of which nothing is read"));
        assert!(error(InputConfig { image_size: Some(8), ..config() }).contains("--image-size 8 is not for resnet18"));
        assert!(error(InputConfig { batch_size: 0, ..config() }).starts_with("--batch-size 0 is out of range"));
        assert_eq!(DataFiles::default(), InputConfig::default().data);
    }
}
