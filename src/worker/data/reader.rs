//! Batches that are read during training: batches of the loader, converted on the device. Reading and decoding are in
//! the package `ringmark-input`.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ringmark_core::benchmark::data_input::{DataInputConfig, RankDataInput, SKIPPED_MESSAGES};
use ringmark_core::dimension::{Augmentation, Bytes, Layout, Model, ModelInput, SampleSize, Seconds};
use ringmark_input::augment::{Normalization, Recipe, Resize};
use ringmark_input::dataset::Dataset;
use ringmark_input::dataset::item::ItemFormat;
use ringmark_input::loader::order::Share;
use ringmark_input::loader::{Loader, LoaderConfig};
use tch::{Device, Kind, Tensor};

use crate::data::batch::{Batch, BatchRequest, ReadRequest, in_layout};
use crate::data::device_copy::{BatchOnDevice, DeviceCopy, HostBatch};

/// Batches of images, or of sequences of tokens, that are read.
pub struct DataReader {
    dataset: Arc<Dataset>,
    loader: Loader,
    augmentation: Augmentation,
    threads: u32,
    /// `[images, size, size, channels]`, or `[sequences, 1, 1, bytes]`.
    shape: [i64; 4],
    copy: DeviceCopy,
    conversion: Conversion,
    current: Option<Batch>,
    counted: u64,
    /// True if the current batch has not been used yet.
    is_ahead: bool,
    skipped: u64,
    messages: Vec<String>,
}

/// Conversion of the loader's bytes on the device.
enum Conversion {
    Pixels {
        /// Mean of each channel, on the device.
        mean: Tensor,
        standard_deviation: Tensor,
        layout: Layout,
    },
    Tokens,
}

impl Conversion {
    /// Returns a batch whose memory is not that of `bytes`.
    fn apply(&self, BatchOnDevice { pixels: bytes, labels }: &BatchOnDevice) -> Result<Batch> {
        let copy = |tensor: &Tensor| -> Result<Tensor> {
            let mut own = Tensor::f_empty(tensor.size(), (tensor.kind(), tensor.device()))?;
            own.f_copy_(tensor)?;
            Ok(own)
        };
        match self {
            Conversion::Pixels { mean, standard_deviation, layout } => {
                let normalized = bytes.f_to_kind(Kind::Float)?.f_sub_(mean)?.f_div_(standard_deviation)?;
                let inputs = in_layout(&normalized.f_permute([0, 3, 1, 2])?, *layout)?;
                Ok(Batch { inputs, targets: copy(labels)? })
            }
            Conversion::Tokens => {
                let tokens = bytes.f_view_dtype(Kind::Int64)?.f_flatten(1, 3)?;
                let (_, length) = tokens.size2()?;
                let part = |first: i64| copy(&tokens.f_narrow(1, first, length - 1)?);
                Ok(Batch { inputs: part(0)?, targets: part(1)? })
            }
        }
    }
}

/// Data that this rank read, and the time that it took.
pub struct ReadUse {
    /// Description such as `2 RecordIO files with index`.
    pub what: String,
    /// Images or sequences per epoch, if known.
    pub items: Option<u64>,
    pub augmentation: Augmentation,
    pub own: RankDataInput,
    /// First messages about skipped images.
    pub skipped: Vec<String>,
}

impl DataReader {
    /// Starts to make batches.
    ///
    /// # Errors
    ///
    /// Fails if the data do not match the network.
    pub fn start(request: &BatchRequest, read: &ReadRequest, device: Device) -> Result<DataReader> {
        let &ReadRequest { ref assignment, threads, is_validation, .. } = read;
        let recipe_of = if is_validation { validation_recipe } else { training_recipe };
        let recipe = match request.size {
            SampleSize::Pixels(size) => recipe_of(&read.config, &assignment.dataset, size)?,
            SampleSize::Tokens(length) => Recipe::training(Augmentation::None, length as usize),
        };
        let share =
            Share { global_batch: read.global_batch, first: request.first.into(), samples: request.samples.into() };
        let seed = request.seed as u64;
        let shuffle = read.config.shuffle_seed(seed).filter(|_| !is_validation);
        let batches = BatchSpec { model: request.model, samples: request.samples, seed, threads };
        let config = loader_config(&read.config, recipe, batches);
        let loader = assignment.start(share, shuffle, config, read.steps_before)?;
        let [size, samples, channels] = [request.size.number(), request.samples, config.channels].map(i64::from);
        let per_channel = |values: [f32; 3]| -> Result<Tensor> {
            Ok(Tensor::from_slice(&values[..channels as usize]).f_to_device(device)?)
        };
        let Normalization { mean, standard_deviation } = recipe.normalization;
        let (shape, conversion) = match request.size {
            SampleSize::Tokens(_) => ([samples, 1, 1, config.item_bytes() as i64], Conversion::Tokens),
            SampleSize::Pixels(_) => {
                let (mean, standard_deviation) = (per_channel(mean)?, per_channel(standard_deviation)?);
                let layout = request.layout;
                ([samples, size, size, channels], Conversion::Pixels { mean, standard_deviation, layout })
            }
        };
        Ok(DataReader {
            dataset: assignment.dataset.clone(),
            loader,
            augmentation: recipe.augmentation,
            threads,
            shape,
            copy: DeviceCopy::new(device)?,
            conversion,
            current: None,
            counted: 0,
            is_ahead: false,
            skipped: 0,
            messages: Vec::new(),
        })
    }

    /// Returns the number of images of the current batch, without those that pad the last batch of an epoch.
    pub fn counted(&self) -> u64 {
        self.counted
    }

    pub fn advance(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_ahead) {
            self.current = Some(self.next()?);
        }
        Ok(())
    }

    /// Returns the batch of the current step, or the first one.
    pub fn current(&mut self) -> Result<&Batch> {
        if self.current.is_none() {
            self.current = Some(self.next()?);
            self.is_ahead = true;
        }
        self.current.as_ref().context("no current batch")
    }

    fn next(&mut self) -> Result<Batch> {
        let made = self.loader.next_batch()?;
        self.skipped += made.skipped.len() as u64;
        let room = SKIPPED_MESSAGES.saturating_sub(self.messages.len());
        self.messages.extend(made.skipped.iter().take(room).map(|error| format!("{error:#}")));
        let batch = HostBatch { pixels: &made.pixels, labels: &made.labels };
        let batch = self.copy.with(batch, self.shape, |batch| self.conversion.apply(batch))?;
        self.counted = made.counted;
        self.loader.recycle(made);
        Ok(batch)
    }

    /// Returns the input statistics so far.
    pub fn used(&self) -> ReadUse {
        let times = self.loader.times();
        let own = RankDataInput {
            decoder: (self.dataset.item_format() == ItemFormat::Encoded).then(|| self.loader.decoder().to_owned()),
            threads: self.threads,
            samples: times.samples,
            skipped: self.skipped,
            bytes: Bytes(times.bytes),
            read: Seconds(times.read.as_secs_f64()),
            decode: Seconds(times.decode.as_secs_f64()),
            augment: Seconds(times.augment.as_secs_f64()),
        };
        ReadUse {
            what: self.dataset.description_with_ignored(),
            items: self.dataset.length(),
            augmentation: self.augmentation,
            own,
            skipped: self.messages.clone(),
        }
    }
}

/// Model, size and seed of the batches that a loader makes.
pub struct BatchSpec {
    /// Model that determines channels and classes.
    pub model: Model,
    pub samples: u32,
    /// Seed of the random augmentation.
    pub seed: u64,
    pub threads: u32,
}

/// Returns the configuration of the loader, for training and for the input benchmark.
pub fn loader_config(config: &DataInputConfig, recipe: Recipe, batches: BatchSpec) -> LoaderConfig {
    let (tokens, channels, classes) = match &batches.model.facts().input {
        ModelInput::Images(rule) => (None, rule.channels, rule.classes),
        // A window of a sequence and the next token.
        ModelInput::Tokens(shape) => (Some(recipe.size as u32 + 1), 0, shape.vocabulary),
    };
    LoaderConfig {
        recipe,
        seed: batches.seed,
        tokens,
        channels,
        classes,
        samples: batches.samples.into(),
        decoder: config.decoder,
        scaling: config.decode_scaling,
        threads: batches.threads as usize,
        ahead: config.prefetch as usize,
        on_bad_image: config.on_bad_image,
        limits: config.limits(),
    }
}

/// Returns the processing of an image of `dataset` in training. Arrays of pixels are used unchanged.
///
/// # Errors
///
/// Fails for options that require image files if there are none.
pub fn training_recipe(config: &DataInputConfig, dataset: &Dataset, image_size: u32) -> Result<Recipe> {
    let size = image_size as usize;
    if dataset.item_format() != ItemFormat::Encoded {
        let requested = config.augmentation.filter(|augmentation| *augmentation != Augmentation::None);
        ensure!(
            requested.is_none() && config.resize.is_none(),
            "--data has {}, which are used unchanged: omit --augmentation and --resize, or use image files",
            dataset.description()
        );
        return Ok(Recipe::training(Augmentation::None, size));
    }
    let recipe = Recipe::training(augmentation(config), size);
    ensure!(
        config.resize.is_none() || recipe.augmentation != Augmentation::Imagenet,
        "--resize {} has no effect with --augmentation imagenet, which crops the stored image: omit --resize, or use \
         another --augmentation",
        config.resize.unwrap_or_default()
    );
    Ok(with_overrides(recipe, config))
}

/// Returns the requested augmentation, or torchvision's for ImageNet by default.
fn augmentation(config: &DataInputConfig) -> Augmentation {
    config.augmentation.unwrap_or(Augmentation::Imagenet)
}

/// Applies the requested size before the crop and the requested interpolation.
fn with_overrides(recipe: Recipe, config: &DataInputConfig) -> Recipe {
    Recipe {
        resize: config.resize.map_or(recipe.resize, |edge| Resize::ShorterEdge(edge as usize)),
        interpolation: config.interpolation.unwrap_or(recipe.interpolation),
        ..recipe
    }
}

/// Returns the processing of an image of `dataset` in validation.
fn validation_recipe(config: &DataInputConfig, dataset: &Dataset, image_size: u32) -> Result<Recipe> {
    let size = image_size as usize;
    Ok(match dataset.item_format() {
        ItemFormat::Pixels { .. } | ItemFormat::Tokens { .. } => Recipe::training(Augmentation::None, size),
        ItemFormat::Encoded => with_overrides(Recipe::validation(augmentation(config), size), config),
    })
}
