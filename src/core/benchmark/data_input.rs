//! Images or tokens that a benchmark reads, and their preprocessing: configuration, options, and the statistics in a
//! record. The names of the choices are in [`crate::dimension`]; the package `ringmark-input` reads the data.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::exchange::Switch;
use crate::config_options;
use crate::dimension::{
    Augmentation, BadImage, Bytes, DecoderChoice, ImageLimits, Interpolation, SampleSize, Scaling, Seconds,
};
use crate::number_text::count;
use crate::options::option_table::settings;
use crate::options::value::OptionValue;

/// Files and folders of `--data`; empty for synthetic data.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Option<String>", into = "Option<String>")]
#[schemars(with = "Option<String>")]
pub struct DataFiles(Vec<PathBuf>);

/// Source of the data, derived from [`DataFiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSource<'a> {
    /// Random images and labels, or tokens, generated once.
    Synthetic,
    /// One batch from a file, `images` and `labels` in safetensors, used in every iteration.
    Batch(&'a Path),
    /// Images or tokens that are read while the benchmark runs.
    Read(&'a [PathBuf]),
}

impl DataFiles {
    const SYNTHETIC: &'static str = "synthetic";

    /// Returns the source that these files stand for.
    pub fn source(&self) -> DataSource<'_> {
        match self.0.as_slice() {
            [] => DataSource::Synthetic,
            [file] if file.extension().is_some_and(|extension| extension == "safetensors") => DataSource::Batch(file),
            several => DataSource::Read(several),
        }
    }

    /// Returns true if data are read while the benchmark runs.
    pub fn are_read(&self) -> bool {
        matches!(self.source(), DataSource::Read(_))
    }

    /// Returns all files and folders.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Applies `change` to each file.
    pub fn try_map(self, change: impl FnMut(PathBuf) -> Result<PathBuf>) -> Result<DataFiles> {
        self.0.into_iter().map(change).collect::<Result<_>>().map(DataFiles)
    }
}

impl From<Option<String>> for DataFiles {
    fn from(text: Option<String>) -> DataFiles {
        DataFiles(text.iter().flat_map(|text| text.split(',')).map(PathBuf::from).collect())
    }
}

impl From<DataFiles> for Option<String> {
    fn from(files: DataFiles) -> Option<String> {
        Some(files.text()).filter(|text| !text.is_empty())
    }
}

impl OptionValue for DataFiles {
    fn text(&self) -> String {
        self.0.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(",")
    }

    fn parse(text: &str) -> Result<DataFiles> {
        if text == DataFiles::SYNTHETIC {
            return Ok(DataFiles::default());
        }
        ensure!(text.split(',').all(|file| !file.is_empty()), "empty file name in the list");
        Ok(Some(text.to_owned()).into())
    }
}

config_options! {
    /// Options for reading, decoding and augmenting images.
    #[derive(Copy)]
    DataInputConfig {
        /// Augmentation of an image; `None` is `imagenet` for image files and no augmentation for arrays of pixels.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        augmentation: Option<Augmentation> = None => option("augmentation", "RECIPE",
            "Augmentation of the input images; see docs/input.md")
            .default_is("imagenet; none for pixel arrays (MNIST, CIFAR)"),
        /// Pixels of the shorter edge before the crop; `None` is the size that `augmentation` needs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resize: Option<u32> = None => option("resize", "PIXELS", "Resize the shorter edge to this before the crop")
            .range(1u32..=65_536).default_is("as the augmentation needs"),
        /// Interpolation of resized images; `None` is that of the framework that defines `augmentation`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interpolation: Option<Interpolation> = None => option("interpolation", "KIND",
            "Image resizing: bilinear (as in OpenCV and MXNet) or antialias (as in Pillow and torchvision)")
            .default_is("that of the augmentation's framework"),
        /// Library that decodes JPEG.
        decoder: DecoderChoice = DecoderChoice::Auto => option("decoder", "LIBRARY",
            "Library that decodes JPEG; auto uses turbojpeg if it is installed"),
        /// Decoding of a JPEG at a fraction of its size.
        decode_scaling: Scaling = Scaling::Off => option("decode-scaling", "OFF|ALLOWED",
            "Decode a JPEG at a fraction of its size if the crop needs no more pixels"),
        /// Threads of a rank that read and decode; `None` is the rank's share of the host's cores.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decode_threads: Option<u32> = None => option("decode-threads", "N",
            "Threads per rank that read and decode images, or read tokens")
            .range(1u32..=1024).aliases(&["data-nthreads"]).default_is("the rank's share of the host's cores").free_on_resume(),
        /// Batches prepared ahead of the step that uses them.
        prefetch: u32 = 4 => option("prefetch", "BATCHES", "Batches to prefetch")
            .range(1u32..=1024).free_on_resume(),
        /// Shuffling of the images or sequences in every epoch.
        shuffle: Switch = Switch::On => option("shuffle", "ON|OFF",
            "Shuffle the images, or sequences of tokens, in every epoch, by --seed"),
        /// Handling of an image that cannot be decoded.
        on_bad_image: BadImage = BadImage::Fail => option("on-bad-image", "FAIL|SKIP",
            "End the run if an image cannot be decoded, or replace it with another of the batch and count it"),
        /// Limits of an image; `None` is the default limits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image_limits: Option<ImageLimits> = None => option("image-limits", "LIMITS",
            "Reject images beyond these limits: pixels, aspect (ratio of longer to shorter edge), scans of a JPEG, \
             bytes")
            .default_is("pixels=50000000,aspect=100,scans=32,bytes=100000000"),
    }
}

impl DataInputConfig {
    /// Returns the limits of an image.
    pub fn limits(&self) -> ImageLimits {
        self.image_limits.unwrap_or_default()
    }

    /// Returns the seed for shuffling; `None` keeps the stored order.
    pub fn shuffle_seed(&self, seed: u64) -> Option<u64> {
        (self.shuffle == Switch::On).then_some(seed)
    }

    /// Returns the names and values of options that do not have their default.
    fn given(&self) -> impl Iterator<Item = (&'static str, String)> {
        let pairs = settings(self).into_iter().zip(settings(&DataInputConfig::default()));
        pairs.filter(|(own, default)| own != default).map(|(own, _)| own)
    }

    /// Returns the first option that applies to images but not to tokens.
    pub fn option_for_images(&self) -> Option<&'static str> {
        self.given().map(|(name, _)| name).find(|name| !["decode-threads", "prefetch", "shuffle"].contains(name))
    }

    /// Rejects image options if no images are read.
    ///
    /// # Errors
    ///
    /// The error names the option.
    pub fn check(&self, data: &DataFiles) -> Result<()> {
        match self.given().next() {
            Some((name, value)) if !data.are_read() => {
                bail!("--{name} {value} needs input images: add --data FILE, or omit the option")
            }
            _ => Ok(()),
        }
    }
}

/// Maximum number of messages about skipped images per rank.
pub const SKIPPED_MESSAGES: usize = 5;

/// Statistics of the images or sequences that were read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DataInputUse {
    /// Description of the source: `2 RecordIO files with index`.
    pub what: String,
    /// Images or sequences per epoch, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Augmentation of each image.
    pub augmentation: Augmentation,
    /// Statistics of every rank.
    pub ranks: Vec<RankDataInput>,
    /// First messages about skipped images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// Work of a rank's threads, in all parts of a resumed run; times are summed over the threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankDataInput {
    /// Library that decoded JPEG, with its version; `None` if pixels were stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<String>,
    /// Number of threads that decoded.
    pub threads: u32,
    /// Prepared images or sequences, including those prepared ahead, which a resumed run prepares again.
    #[serde(rename = "images")]
    pub samples: u64,
    /// Skipped images, which could not be decoded.
    pub skipped: u64,
    /// Stored size of the samples.
    pub bytes: Bytes,
    /// Time to read the samples.
    pub read: Seconds,
    /// Time to decode bytes to pixels.
    pub decode: Seconds,
    /// Time to crop, resize, adjust colors and copy into the batch.
    pub augment: Seconds,
}

impl DataInputUse {
    /// Adds the statistics from `before` a resumption, which has as many ranks; decoder and threads are the later ones.
    pub fn merge_earlier(self, before: &DataInputUse) -> DataInputUse {
        let both = |(own, before): (RankDataInput, &RankDataInput)| RankDataInput {
            samples: before.samples + own.samples,
            skipped: before.skipped + own.skipped,
            bytes: Bytes(before.bytes.0 + own.bytes.0),
            read: Seconds(before.read.0 + own.read.0),
            decode: Seconds(before.decode.0 + own.decode.0),
            augment: Seconds(before.augment.0 + own.augment.0),
            ..own
        };
        let ranks: Vec<RankDataInput> = self.ranks.into_iter().zip(&before.ranks).map(both).collect();
        let messages = before.skipped.iter().cloned().chain(self.skipped);
        let skipped = messages.take(SKIPPED_MESSAGES * ranks.len()).collect();
        DataInputUse { ranks, skipped, ..self }
    }

    /// Formats the statistics: `1281167 images of 2 RecordIO files with index, augmentation imagenet; rank 0: 5120 by
    /// zune-jpeg and 2 threads, per image 0.02 ms read, 1.90 ms decode, 0.45 ms augment`.
    pub fn text(&self, size: SampleSize) -> String {
        let DataInputUse { what, items, augmentation, ranks, .. } = self;
        let items = items.map(|items| format!("{items} {} of ", size.samples())).unwrap_or_default();
        if let SampleSize::Tokens(_) = size {
            let first = ranks.first().map(|RankDataInput { threads, samples, read, .. }| {
                let each = 1e3 * read.0 / (*samples).max(1) as f64;
                format!("; rank 0: {samples} by {}, per sequence {each:.3} ms read", count(*threads, "thread"))
            });
            return format!("{items}{what}{}", first.unwrap_or_default());
        }
        let first = ranks.first().map(|RankDataInput { decoder, threads, samples, read, decode, augment, .. }| {
            let each = |time: &Seconds| 1e3 * time.0 / (*samples).max(1) as f64;
            let decoder = decoder.as_ref().map(|decoder| format!("{decoder} and ")).unwrap_or_default();
            format!(
                "; rank 0: {samples} by {decoder}{}, per image {:.2} ms read, {:.2} ms decode, {:.2} ms augment",
                count(*threads, "thread"),
                each(read),
                each(decode),
                each(augment)
            )
        });
        let skipped: u64 = ranks.iter().map(|rank| rank.skipped).sum();
        let skipped = (skipped > 0)
            .then(|| format!("; {skipped} skipped, the first: {}", self.skipped.first().map_or("", String::as_str)));
        format!(
            "{items}{what}, augmentation {augmentation}{}{}",
            first.unwrap_or_default(),
            skipped.unwrap_or_default()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> DataFiles {
        DataFiles::parse(text).expect(text)
    }

    #[test]
    fn data_source_follows_the_file_name() {
        assert_eq!(files("synthetic").source(), DataSource::Synthetic);
        assert_eq!(files("a/batch.safetensors").source(), DataSource::Batch(Path::new("a/batch.safetensors")));
        assert_eq!(files("a.rec,b.rec").source(), DataSource::Read(&["a.rec".into(), "b.rec".into()]));
        assert!(files("folder").are_read());
        assert!(DataFiles::parse("a.rec,").is_err());
        let whole = files("a.rec,b.rec").try_map(|file| Ok(Path::new("/").join(file))).expect("mapped");
        assert_eq!(whole.text(), "/a.rec,/b.rec");
    }

    #[test]
    fn resumed_run_adds_counts_by_rank() {
        let rank = |samples: u64, threads: u32| RankDataInput {
            decoder: None,
            threads,
            samples,
            skipped: samples / 4,
            bytes: Bytes(100 * samples),
            read: Seconds(0.25 * samples as f64),
            decode: Seconds(0.5 * samples as f64),
            augment: Seconds(samples as f64),
        };
        let of = |ranks: Vec<RankDataInput>, skipped: &[&str]| DataInputUse {
            what: "1 RecordIO file".to_owned(),
            items: None,
            augmentation: Augmentation::None,
            ranks,
            skipped: skipped.iter().map(|&message| message.to_owned()).collect(),
        };
        let before = of(vec![rank(8, 1), rank(4, 1)], &["a"]);
        let later = of(vec![rank(16, 2), rank(20, 2)], &["b", "c"]);
        assert_eq!(later.merge_earlier(&before), of(vec![rank(24, 2), rank(24, 2)], &["a", "b", "c"]));
    }

    #[test]
    fn data_files_are_text_or_null_in_json() {
        for (text, json) in [("synthetic", "null"), ("a.rec,b.rec", r#""a.rec,b.rec""#)] {
            assert_eq!(serde_json::to_string(&files(text)).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<DataFiles>(json).expect("read"), files(text));
        }
    }

    #[test]
    fn image_options_need_input_images() {
        let config = DataInputConfig { prefetch: 2, ..DataInputConfig::default() };
        let error = config.check(&files("synthetic")).expect_err("refused").to_string();
        assert_eq!(error, "--prefetch 2 needs input images: add --data FILE, or omit the option");
        assert!(config.check(&files("a.safetensors")).is_err());
        config.check(&files("a.rec")).expect("images are read");
        DataInputConfig::default().check(&DataFiles::default()).expect("nothing was typed");
    }

    #[test]
    fn image_statistics_are_one_line() {
        let rank = RankDataInput {
            decoder: Some("zune-jpeg 0.5".to_owned()),
            threads: 2,
            samples: 100,
            skipped: 1,
            bytes: Bytes(11_000_000),
            read: Seconds(0.01),
            decode: Seconds(0.2),
            augment: Seconds(0.05),
        };
        let used = DataInputUse {
            what: "1 RecordIO file with index".to_owned(),
            items: Some(1000),
            augmentation: Augmentation::Crop,
            ranks: vec![rank],
            skipped: vec!["a.rec, byte 12: no image".to_owned()],
        };
        let expected = "1000 images of 1 RecordIO file with index, augmentation crop; rank 0: 100 by zune-jpeg 0.5 \
                        and 2 threads, per image 0.10 ms read, 2.00 ms decode, 0.50 ms augment; 1 skipped, the first: \
                        a.rec, byte 12: no image";
        assert_eq!(used.text(SampleSize::Pixels(224)), expected);
        let used = DataInputUse { what: "a token file of uint16".to_owned(), ..used };
        assert_eq!(
            used.text(SampleSize::Tokens(64)),
            "1000 sequences of a token file of uint16; rank 0: 100 by 2 threads, per sequence 0.100 ms read"
        );
    }
}
