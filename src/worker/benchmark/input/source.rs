//! Data of the input benchmark and its loaders, configured as in training: one process gets all images of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, anyhow};
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::benchmark::input::{InputConfig, PageCache, StoredImages};
use ringmark_core::host::memory;
use ringmark_input::dataset::Dataset;
use ringmark_input::dataset::item::{Item, ItemFormat};
use ringmark_input::decode::{self, Decoder};
use ringmark_input::loader::order::{Order, Share};
use ringmark_input::loader::{Loader, LoaderConfig};
use ringmark_input::shard::Shard;

use crate::data::assignment::{Access, Assignment, Receiver};
use crate::data::reader::{BatchSpec, loader_config, training_recipe};
use crate::job::heartbeat;

/// Number of images sampled to describe how they are stored.
const SAMPLED_IMAGES: u64 = 128;

/// Stored bytes that warm passes read repeatedly: more than any processor cache, but quick to read.
const WARM_BYTES: u64 = 1_000_000_000;

/// Divisor of the free memory that limits these bytes.
const WARM_PART: u64 = 4;

pub struct Source {
    /// All data, as for a single rank.
    pub assignment: Assignment,
    /// Loader configuration; each pass sets its own number of threads.
    pub loader: LoaderConfig,
    shuffle: Option<u64>,
    /// Number of batches that warm passes read repeatedly.
    warm_batches: u64,
}

impl Source {
    /// Opens the data.
    ///
    /// # Errors
    ///
    /// Fails if the data cannot be read or do not match the network.
    pub fn open(config: &InputConfig) -> Result<Source> {
        let DataSource::Read(files) = config.data.source() else { return Err(anyhow!("--data contains no images")) };
        let dataset = Dataset::open_within(files, config.images.limits())?;
        let seed = config.seed as u64;
        let recipe = training_recipe(&config.images, &dataset, config.image_size())?;
        let batches = BatchSpec { model: config.model, samples: config.batch_size, seed, threads: 1 };
        let loader = loader_config(&config.images, recipe, batches);
        let alone = Receiver { rank: 0, ranks: 1, samples: config.batch_size };
        let assignment = Assignment::new(dataset, alone, |steps| steps)?;
        let mut source = Source { assignment, loader, shuffle: config.images.shuffle_seed(seed), warm_batches: 1 };
        let bytes_of_batch = source.mean_bytes()? * source.loader.samples as f64;
        let most = WARM_BYTES.min(memory::available().0 / WARM_PART) as f64 / bytes_of_batch.max(1.0);
        source.warm_batches = (most as u64).clamp(1, source.whole_batches());
        Ok(source)
    }

    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.assignment.dataset
    }

    /// Returns the number of complete batches of distinct images; 1 if there are too few images.
    pub fn whole_batches(&self) -> u64 {
        (self.assignment.items() / self.loader.samples).max(1)
    }

    fn share(&self) -> Share {
        Share { global_batch: self.loader.samples, first: 0, samples: self.loader.samples }
    }

    /// Starts a loader with this number of threads, in the order of training. A warm pass repeats the first batches.
    pub fn loader(&self, threads: u32, cache: PageCache) -> Result<Loader> {
        let config = LoaderConfig { threads: threads as usize, ..self.loader };
        let start = |assignment: &Assignment| assignment.start(self.share(), self.shuffle, config, 0);
        match cache {
            PageCache::Cold => start(&self.assignment),
            PageCache::Warm => start(&self.assignment.repeating(self.warm_batches)),
        }
    }

    /// Makes one batch before the measurement, because unused code is loaded from the disk too and would count as
    /// images. Errors are left to the measured pass.
    pub fn warm_up(&self) -> Result<()> {
        let _ = self.loader(1, PageCache::Warm)?.next_batch();
        Ok(())
    }

    /// Returns the name and version of the JPEG decoder; `None` if nothing is decoded.
    pub fn decoder(&self) -> Result<Option<String>> {
        match self.dataset().item_format() {
            ItemFormat::Encoded => Ok(Some(Decoder::new(self.loader.decoder, self.loader.scaling)?.name())),
            ItemFormat::Pixels { .. } | ItemFormat::Tokens { .. } => Ok(None),
        }
    }

    /// Reads the data of the warm passes into the page cache. The pass itself reports or skips unreadable images.
    pub fn read_once(&self, threads: u32) -> Result<()> {
        let images = self.warm_batches * self.loader.samples;
        match self.assignment.access {
            Access::ByNumber { items } => {
                let order = Order::new(items, self.shuffle, self.share())?;
                self.read_by_number(threads, images, |number| {
                    order.draw(number / self.loader.samples, number % self.loader.samples).item
                })
            }
            Access::Sequential(_) => {
                let (mut records, mut item) = (self.dataset().records(Shard::WHOLE)?, Item::default());
                for _ in 0..images {
                    if !matches!(records.next(&mut item), Ok(Some(_))) {
                        break;
                    }
                    heartbeat::count_progress();
                }
                Ok(())
            }
        }
    }

    fn read_by_number(&self, threads: u32, images: u64, item_of: impl Fn(u64) -> u64 + Sync) -> Result<()> {
        let next = AtomicU64::new(0);
        let read = || -> Result<()> {
            let mut item = Item::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= images {
                    return Ok(());
                }
                let _ = self.dataset().read(item_of(number), &mut item);
                heartbeat::count_progress();
            }
        };
        thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader thread panicked"))?)
        })
    }

    /// Calls `observe` with evenly spaced images, by number or by byte. Skips unreadable ones, which the pass reports.
    fn sample_images(&self, mut observe: impl FnMut(&Item)) -> Result<()> {
        let (items, mut item) = (self.assignment.items(), Item::default());
        let count = items.min(SAMPLED_IMAGES);
        for number in 0..count {
            let is_read = match self.assignment.access {
                Access::ByNumber { .. } => self.dataset().read(number * items / count, &mut item).is_ok(),
                Access::Sequential(_) => {
                    let mut part = self.dataset().records(Shard::new(number as u32, count as u32)?)?;
                    matches!(part.next(&mut item), Ok(Some(_)))
                }
            };
            if is_read {
                observe(&item);
            }
            heartbeat::count_progress();
        }
        Ok(())
    }

    fn mean_bytes(&self) -> Result<f64> {
        let (mut bytes, mut count) = (0.0, 0.0);
        self.sample_images(|item| {
            bytes += item.bytes().len() as f64;
            count += 1.0;
        })?;
        Ok(bytes / f64::max(count, 1.0))
    }

    /// Describes how images are stored, by those with a readable header; `None` for arrays of pixels.
    pub fn stored(&self) -> Result<Option<StoredImages>> {
        if let ItemFormat::Pixels { .. } = self.dataset().item_format() {
            return Ok(None);
        }
        let mut sum = StoredImages { sampled: 0, bytes: 0.0, pixels: 0.0, shorter_edge: 0.0, aspect: 0.0 };
        self.sample_images(|item| {
            let Ok(header) = decode::header(item.bytes(), &self.loader.limits) else { return };
            let (pixels, shorter) = (header.size().pixels() as f64, header.size().shorter() as f64);
            sum.sampled += 1;
            sum.bytes += item.bytes().len() as f64;
            sum.pixels += pixels;
            sum.shorter_edge += shorter;
            sum.aspect += pixels / (shorter * shorter);
        })?;
        let mean = |value: f64| value / sum.sampled as f64;
        Ok((sum.sampled > 0).then(|| StoredImages {
            sampled: sum.sampled,
            bytes: mean(sum.bytes),
            pixels: mean(sum.pixels),
            shorter_edge: mean(sum.shorter_edge),
            aspect: mean(sum.aspect),
        }))
    }
}
