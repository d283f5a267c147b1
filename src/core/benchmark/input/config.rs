//! Options of an input run, each with its default.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::data_input::{DataFiles, DataInputConfig};
use crate::benchmark::{DEFAULT_IMAGE_SIZE, is_default, shared_options};
use crate::dimension::Model;
use crate::options::keyword_enum::KeywordEnum;
use crate::options::option_table::{OptionSpec, Options};
use crate::options::value::{OptionValue, parse_list};
use crate::trace::TraceConfig;
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// Source of the files' bytes in a pass.
    PageCache {
        /// Disk: none of the files' pages are in the page cache when the pass starts.
        Cold = "cold",
        /// Memory: all pages that the pass reads are in the page cache.
        Warm = "warm",
    }

    /// Passes to run.
    CacheChoice {
        /// Cold passes, then warm passes.
        Both = "both",
        ..
    }
);

impl CacheChoice {
    /// Returns the page-cache states in the order they run.
    pub fn caches(self) -> &'static [PageCache] {
        self.chosen().map_or(PageCache::ALL, |cache| &PageCache::ALL[cache as usize..=cache as usize])
    }
}

/// Thread counts of successive passes; empty to derive them from the hosts' cores.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct ThreadCounts(pub Vec<u32>);

impl ThreadCounts {
    /// Maximum thread count, more than any host has cores.
    const MAX_THREADS: u32 = 1024;

    /// Returns the given thread counts, or by default the powers of two below the cores of the largest host and the
    /// core counts of all hosts.
    ///
    /// Hosts with 6 and 8 cores yield 1, 2, 4, 6, 8.
    pub fn resolve(&self, cores: &[u32]) -> Vec<u32> {
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
        let number = |word: &str| {
            let threads: u32 = word.parse().ok().with_context(|| {
                format!("{word:?} is not a number of threads: use comma-separated whole numbers, such as 1,2,4")
            })?;
            ensure!(
                (1..=ThreadCounts::MAX_THREADS).contains(&threads),
                "{threads} is out of range: choose 1 to {}",
                ThreadCounts::MAX_THREADS
            );
            Ok(threads)
        };
        parse_list(text, number).map(ThreadCounts)
    }
}

config_options! {
    /// One input run.
    InputConfig {
        /// Images to read.
        data: DataFiles = DataFiles::default() => option("data", "FILES",
            "Images to read, required: comma-separated .rec files, a folder of them or of classes, MNIST's arrays, or CIFAR's \
             files"),
        /// Network that determines image size, channels and classes of the batches.
        model: Model = Model::default() => option("model", "NAME",
            "Network that determines the image size, channels and classes"),
        /// Height and width of an image in a batch, in pixels; `None` is the network's default. A record contains the
        /// resolved value.
        image_size: Option<u32> = None => option("image-size", "PIXELS", "Height and width of an image in a batch")
            .range(1u32..=4096).default_is(DEFAULT_IMAGE_SIZE),
        /// Images per batch.
        batch_size: u32 = 128 => option("batch-size", "IMAGES", "Images per batch").range(1u32..=65_536),
        /// Threads that read and decode, for each pass. A record contains the resolved values.
        decode_threads: ThreadCounts = ThreadCounts::default() => option("decode-threads", "N,..",
            "Threads per host that read and decode; one pass per number")
            .aliases(&["data-nthreads"]).default_is("powers of two and the host's cores"),
        /// Passes to run.
        cache: CacheChoice = CacheChoice::Both => option("cache", "WHICH",
            "Passes to measure: from disk (cold: the kernel drops the files' pages first), from memory (warm) or both"),
        /// Minimum duration of each pass, in seconds; a cold pass ends at the last whole batch of the data.
        seconds: u32 = 10 => option("seconds", "N", "Duration of each pass; a cold pass ends once it has read all \
                                                     images")
            .range(1u32..=86_400),
        /// Number of batches per pass, instead of a duration.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        batches: Option<u32> = None => option("batches", "N", "Batches to measure in each pass, instead of a duration")
            .range(1u32..=10_000_000).conflicts_with(&["seconds"]),
        /// Warm-up batches of each pass, not measured.
        warmup: u32 = 2 => option("warmup", "BATCHES", "Warm-up batches, not measured")
            .range(0u32..=10_000_000),
        /// Batches per output line, as MXNet's `--disp-batches`.
        display: u32 = 20 => option("disp-batches", "N", "Batches per output line, as in \
                                                          MXNet").range(1u32..=10_000_000),
        /// Seed of shuffling and augmentation.
        seed: i64 = 0 => option("seed", "N", "Seed of the image order and of random augmentation"),
        /// Options for reading images; its thread count is replaced by `decode_threads`.
        images: DataInputConfig = DataInputConfig::default() => group(image_options()).order(1),
        /// File for the record (JSON), written by rank 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<PathBuf> = None => shared(shared_options::record),
        /// Trace options.
        #[serde(default, skip_serializing_if = "is_default")]
        trace: TraceConfig = TraceConfig::default() => group(TraceConfig::options_of_spans()).order(1),
    }
}

/// Returns the options of images except `--decode-threads`, which is a list here.
fn image_options() -> impl Iterator<Item = OptionSpec<DataInputConfig>> {
    DataInputConfig::options().into_iter().filter(|option| option.name() != "decode-threads")
}

impl InputConfig {
    /// Returns the height and width of an image in a batch, in pixels.
    pub fn image_size(&self) -> u32 {
        // `validate` refuses language models.
        self.model.image_size(self.image_size).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_counts_default_to_powers_of_two_and_cores() {
        let default = ThreadCounts::default();
        assert_eq!(default.resolve(&[1]), [1]);
        assert_eq!(default.resolve(&[2]), [1, 2]);
        assert_eq!(default.resolve(&[6, 8]), [1, 2, 4, 6, 8]);
        let typed = ThreadCounts::parse("4, 1,2").expect("numbers");
        assert_eq!((typed.resolve(&[64]), typed.text()), (vec![4, 1, 2], "4,1,2".to_owned()));
        for (text, message) in [
            ("0", "0 is out of range: choose 1 to 1024"),
            ("1,2000", "2000 is out of range"),
            ("2,2", "2 is listed twice"),
            ("1,,2", "\"\" is not a number of threads"),
            ("all", "\"all\" is not a number of threads"),
        ] {
            let error = ThreadCounts::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
