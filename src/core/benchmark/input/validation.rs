//! Checks for conflicting options of an input run.

use anyhow::{bail, ensure};

use crate::benchmark::data_input::DataSource;
use crate::benchmark::input::config::InputConfig;
use crate::options::option_table::check_ranges;
use crate::options::value::OptionValue;

impl InputConfig {
    /// Refuses values outside their range, and data of which nothing is read while a benchmark runs; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        // The number of batches in a time is unknown before it is over.
        self.batches.map_or_else(|| self.trace.check_number(), |batches| self.trace.check(batches))?;
        self.model.check_image_size(self.image_size())?;
        match self.data.source() {
            DataSource::Read(_) => {}
            DataSource::Synthetic => {
                bail!(
                    "--data is missing: use .rec files, a folder of them or of classes, MNIST's arrays, or CIFAR's \
                     files"
                )
            }
            DataSource::Batch(_) => bail!(
                "--data {} is a single batch, which is not read or decoded during training: use .rec files or a folder",
                self.data.text()
            ),
        }
        ensure!(
            self.images.decode_threads.is_none(),
            "the number of threads per rank applies to training only: set the threads of each pass with \
             --decode-threads"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::benchmark::data_input::DataFiles;
    use crate::dimension::Model;

    #[test]
    fn every_field_survives_worker_arguments() {
        crate::benchmark::tests::check_options::<InputConfig>(&["/images/decode_threads"]);
    }

    #[test]
    fn unsupported_measurements_are_rejected() {
        let config =
            || InputConfig { data: Some("a.rec".to_owned()).into(), model: Model::Resnet18, ..InputConfig::default() };
        config().validate().expect("in range");
        let refused = [
            InputConfig::default(),
            InputConfig { data: Some("a.safetensors".to_owned()).into(), ..config() },
            InputConfig { image_size: Some(8), ..config() },
            InputConfig { batch_size: 0, ..config() },
        ];
        let error = |config: InputConfig| config.validate().expect_err("refused").to_string();
        expect![[r#"
            --data is missing: use .rec files, a folder of them or of classes, MNIST's arrays, or CIFAR's files
            --data a.safetensors is a single batch, which is not read or decoded during training: use .rec files or a folder
            --image-size 8 does not fit resnet18, which needs images of at least 32 pixels: choose --image-size 32 or more
            --batch-size 0 is out of range: choose 1 to 65536"#]].assert_eq(&refused.map(error).join("\n"));
        assert_eq!(DataFiles::default(), InputConfig::default().data);
    }
}
