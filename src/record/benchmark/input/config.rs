//! What one run of reading and decoding is asked to do, with every default. [`options`](super::options) has names, ranges and
//! help.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::image_input::{DataFiles, ImageInputConfig};
use crate::dimension::model::Model;
use crate::keyword_enum;
use crate::options::option_table::OptionValue;
use crate::trace::config::TraceConfig;

keyword_enum!(
    /// Where a pass takes the files' bytes from.
    PageCache {
        /// The disk: the kernel has none of the files' pages when the pass begins.
        Cold = "cold",
        /// Memory: the kernel has all pages that the pass reads.
        Warm = "warm",
    }
);

keyword_enum!(
    /// Which passes there are.
    CacheChoice {
        /// Cold ones, then warm ones.
        Both = "both",
        /// From the disk alone.
        Cold = "cold",
        /// From memory alone.
        Warm = "warm",
    }
);

impl CacheChoice {
    /// In the order in which they run.
    pub fn caches(self) -> &'static [PageCache] {
        match self {
            CacheChoice::Both => &[PageCache::Cold, PageCache::Warm],
            CacheChoice::Cold => &[PageCache::Cold],
            CacheChoice::Warm => &[PageCache::Warm],
        }
    }
}

/// Numbers of threads, one after the other; none where the hosts' cores say which.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ThreadCounts(pub Vec<u32>);

impl ThreadCounts {
    /// More threads than any host has cores.
    const MOST: u32 = 1024;

    /// Those that were typed; or the powers of two below the cores of the largest host, and the cores of each.
    ///
    /// Hosts of 6 and 8 cores: 1, 2, 4, 6, 8.
    pub fn of(&self, cores: &[u32]) -> Vec<u32> {
        if !self.0.is_empty() {
            return self.0.clone();
        }
        let largest = cores.iter().copied().max().unwrap_or(1);
        let powers = (0..).map(|power| 1_u32 << power).take_while(|threads| *threads < largest);
        powers.chain(cores.iter().copied()).collect::<BTreeSet<u32>>().into_iter().collect()
    }
}

impl OptionValue for ThreadCounts {
    fn text(&self) -> String {
        self.0.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    fn parse(text: &str) -> anyhow::Result<ThreadCounts> {
        let mut all = Vec::new();
        for word in text.split(',') {
            let threads: u32 = word.trim().parse().ok().with_context(|| {
                format!("{word:?} is no number of threads: write whole numbers with commas between them, as 1,2,4")
            })?;
            ensure!(
                (1..=ThreadCounts::MOST).contains(&threads),
                "{threads} is out of range: choose 1 to {}",
                ThreadCounts::MOST
            );
            ensure!(!all.contains(&threads), "{threads} stands there twice: name it once");
            all.push(threads);
        }
        Ok(ThreadCounts(all))
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputConfig {
    /// Which images.
    pub data: DataFiles,
    /// Network whose size of image, channels and classes the batches have.
    pub model: Model,
    /// Height and width of an image in a batch, in pixels; `None` is the network's own size, in a record what it came to.
    pub image_size: Option<u32>,
    /// Images of a batch.
    pub batch_size: u32,
    /// Threads that read and decode, of each pass; in a record what it came to.
    pub decode_threads: ThreadCounts,
    /// Which passes there are.
    pub cache: CacheChoice,
    /// What each pass measures at least, in seconds; a cold one ends with the data's last whole batch.
    pub seconds: u32,
    /// Batches that each pass measures instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batches: Option<u32>,
    /// Batches before them that no figure holds.
    pub warmup: u32,
    /// Batches of a line of MXNet's.
    pub display: u32,
    /// Seed of order and augmentation.
    pub seed: i64,
    /// How images are read; its threads are those above.
    pub images: ImageInputConfig,
    /// Where rank 0 writes the record (JSON).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// What is traced.
    #[serde(default, skip_serializing_if = "TraceConfig::is_default")]
    pub trace: TraceConfig,
}

impl Default for InputConfig {
    fn default() -> InputConfig {
        InputConfig {
            data: DataFiles::default(),
            model: Model::default(),
            image_size: None,
            batch_size: 128,
            decode_threads: ThreadCounts::default(),
            cache: CacheChoice::Both,
            seconds: 10,
            batches: None,
            warmup: 2,
            display: 20,
            seed: 0,
            images: ImageInputConfig::default(),
            record: None,
            trace: TraceConfig::default(),
        }
    }
}

impl InputConfig {
    /// Height and width of an image in a batch, in pixels.
    pub fn image_size(&self) -> u32 {
        self.model.image_size(self.image_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_powers_of_two_and_the_cores_or_those_that_were_typed() {
        let default = ThreadCounts::default();
        assert_eq!(default.of(&[1]), [1]);
        assert_eq!(default.of(&[2]), [1, 2]);
        assert_eq!(default.of(&[6, 8]), [1, 2, 4, 6, 8]);
        let typed = ThreadCounts::parse("4, 1,2").expect("numbers");
        assert_eq!((typed.of(&[64]), typed.text()), (vec![4, 1, 2], "4,1,2".to_owned()));
        for (text, message) in [
            ("0", "0 is out of range: choose 1 to 1024"),
            ("1,2000", "2000 is out of range"),
            ("2,2", "2 stands there twice"),
            ("1,,2", "\"\" is no number of threads"),
            ("all", "\"all\" is no number of threads"),
        ] {
            let error = ThreadCounts::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
