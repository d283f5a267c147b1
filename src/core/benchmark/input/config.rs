//! Options of a run of reading and decoding, each with its default.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::OF_NETWORK;
use crate::benchmark::image_input::{DataFiles, ImageInputConfig};
use crate::dimension::Model;
use crate::options::option_table::{OptionSpec, OptionValue, Options};
use crate::trace::TraceConfig;
use crate::{config_options, keyword_enum};

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

config_options! {
    /// One run.
    InputConfig {
        /// Which images.
        data: DataFiles = DataFiles::default() => option("data", "FILES",
            "Images to read: .rec files with commas between them, a folder of them or of classes, or MNIST's arrays")
            .default_is("none: it must be named"),
        /// Network whose size of image, channels and classes the batches have.
        model: Model = Model::default() => option("model", "NAME",
            "Network whose size of image, channels and classes the batches have"),
        /// Height and width of an image in a batch, in pixels; `None` is the network's own size, in a record what it came to.
        image_size: Option<u32> = None => option("image-size", "PIXELS", "Height and width of an image in a batch")
            .range(1u32..=4096).default_is(OF_NETWORK),
        /// Images of a batch.
        batch_size: u32 = 128 => option("batch-size", "IMAGES", "Images of a batch").range(1u32..=65_536),
        /// Threads that read and decode, of each pass; in a record what it came to.
        decode_threads: ThreadCounts = ThreadCounts::default() => option("decode-threads", "N,..",
            "Threads that read and decode on each host, of one pass after the other")
            .aliases(&["data-nthreads"]).default_is("powers of two, and the cores of the host"),
        /// Which passes there are.
        cache: CacheChoice = CacheChoice::Both => option("cache", "WHICH",
            "Passes from the disk (cold: the kernel drops the files' pages first), from memory (warm), or both"),
        /// What each pass measures at least, in seconds; a cold one ends with the data's last whole batch.
        seconds: u32 = 10 => option("seconds", "N", "Measure so long in each pass, a cold one at most all images once")
            .range(1u32..=86_400),
        /// Batches that each pass measures instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batches: Option<u32> = None => option("batches", "N", "Measure so many batches in each pass instead")
            .range(1u32..=10_000_000).conflicts_with(&["seconds"]),
        /// Batches before them that no figure holds.
        warmup: u32 = 2 => option("warmup", "BATCHES", "Batches before them that no figure holds")
            .range(0u32..=10_000_000),
        /// Batches of a line of MXNet's.
        display: u32 = 20 => option("disp-batches", "N", "Batches of a line of MXNet's").range(1u32..=10_000_000),
        /// Seed of order and augmentation.
        seed: i64 = 0 => option("seed", "N", "Seed of the order of the images and of what is drawn for each"),
        /// How images are read; its threads are those above.
        images: ImageInputConfig = ImageInputConfig::default() => group(image_options()).order(1),
        /// Where rank 0 writes the record (JSON).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<PathBuf> = None => option("record", "FILE", "Where rank 0 writes the record (JSON)")
            .for_worker(),
        /// What is traced.
        #[serde(default, skip_serializing_if = "TraceConfig::is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options_of_spans()).order(1),
    }
}

/// Returns the options of images except `--decode-threads`, which is a list here.
fn image_options() -> impl Iterator<Item = OptionSpec<ImageInputConfig>> {
    ImageInputConfig::options().into_iter().filter(|option| option.name() != "decode-threads")
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
