//! Checks for conflicting options of a checkpoint run.

use anyhow::{bail, ensure};

use crate::benchmark::checkpoint::config::{CheckpointConfig, Writers};
use crate::benchmark::checkpoint::parts;
use crate::number_text::count;
use crate::options::option_table::check_ranges;

/// Largest number of files of a writer.
const MAX_FILES: u32 = 65_536;

impl CheckpointConfig {
    /// Refuses values outside their range and a missing folder; the message names them.
    pub fn validate(&self) -> anyhow::Result<()> {
        check_ranges(self)?;
        ensure!(
            !self.folder.as_os_str().is_empty(),
            "--folder is missing: use a folder on the storage to measure, such as --folder /scratch"
        );
        if let Some(files) = self.files.0.iter().find(|files| !(1..=MAX_FILES).contains(*files)) {
            bail!("--files {files} is out of range: choose 1 to {MAX_FILES}");
        }
        ensure!(self.bytes().0 > 0, "--size 0 is out of range: choose at least {} bytes", parts::PAGE);
        self.validate_for(1)
    }

    /// Refuses files that would be empty with `ranks` ranks.
    pub fn validate_for(&self, ranks: u32) -> anyhow::Result<()> {
        let pages = self.bytes().0 / parts::PAGE;
        let files = self.files.0.iter().copied().max().unwrap_or(1);
        for writers in &self.writers.0 {
            let smallest = if *writers == Writers::Shards { pages / u64::from(ranks) } else { pages };
            ensure!(
                smallest >= u64::from(files),
                "--writers {writers}: with {}, a writer has {} of {} bytes, too few for {}: choose fewer --files or a larger \
                 --size",
                count(ranks, "rank"),
                count(smallest, "page"),
                parts::PAGE,
                count(files, "file")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::dimension::Bytes;
    use crate::options::value::ValueList;

    #[test]
    fn every_field_survives_worker_arguments() {
        crate::benchmark::tests::check_options::<CheckpointConfig>(&[]);
    }

    #[test]
    fn unsupported_measurements_are_rejected() {
        let config = || CheckpointConfig { folder: "/scratch".into(), ..CheckpointConfig::default() };
        config().validate_for(8).expect("in range");
        let refused = [
            CheckpointConfig::default(),
            CheckpointConfig { files: ValueList(vec![1, 0]), ..config() },
            CheckpointConfig { size: Some(Bytes(0)), ..config() },
            CheckpointConfig { size: Some(Bytes(8192)), files: ValueList(vec![3]), ..config() },
            CheckpointConfig { iterations: 0, ..config() },
        ];
        let error = |config: CheckpointConfig| config.validate().expect_err("refused").to_string();
        expect![[r#"
            --folder is missing: use a folder on the storage to measure, such as --folder /scratch
            --files 0 is out of range: choose 1 to 65536
            --size 0 is out of range: choose at least 4096 bytes
            --writers rank-0: with 1 rank, a writer has 2 pages of 4096 bytes, too few for 3 files: choose fewer --files or a larger --size
            --iters 0 is out of range: choose 1 to 100000"#]].assert_eq(&refused.map(error).join("\n"));
        let tiny = CheckpointConfig { size: Some(Bytes(16384)), ..config() };
        tiny.validate_for(4).expect("a page a rank");
        expect!["--writers shards: with 5 ranks, a writer has 0 pages of 4096 bytes, too few for 1 file: choose fewer --files or a larger --size"].assert_eq(&tiny.validate_for(5).expect_err("less than a page").to_string());
    }
}
