//! The data, and the loader over them as training has it: one process with all images of a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow};
use ringmark_input::dataset::Dataset;
use ringmark_input::dataset::item::{Form, Item};
use ringmark_input::decode::{self, Decoder};
use ringmark_input::loader::order::{Order, Share};
use ringmark_input::loader::{Loader, LoaderConfig};
use ringmark_record::benchmark::image_input::DataSource;
use ringmark_record::benchmark::input::config::{InputConfig, PageCache};
use ringmark_record::benchmark::input::record::StoredImages;
use ringmark_record::host::memory;

use crate::data::images::{BatchSpec, loader_config, training_recipe};
use crate::job::heartbeat;

/// Images that are looked at to say how they are stored.
const LOOKED_AT: u64 = 128;

/// Stored bytes that warm passes read again and again: more than any cache of a processor, and read in a moment.
const WARM_BYTES: u64 = 1_000_000_000;

/// Part of the free memory that they may take.
const WARM_PART: u64 = 4;

/// What is read, and how.
pub struct Source {
    /// All of it.
    pub dataset: Arc<Dataset>,
    /// Images of an epoch.
    pub items: u64,
    /// How batches are made; a pass has its own number of threads.
    pub loader: LoaderConfig,
    shuffle: Option<u64>,
    /// Batches that warm passes read again and again.
    warm_batches: u64,
}

impl Source {
    /// Opens the data.
    ///
    /// # Errors
    ///
    /// Where they cannot be read, or do not suit the network.
    pub fn open(config: &InputConfig) -> Result<Source> {
        let DataSource::Images(files) = config.data.source() else { return Err(anyhow!("--data names no images")) };
        let dataset = Arc::new(Dataset::open(files)?);
        let items = dataset.length().with_context(|| {
            let what = dataset.what();
            format!("--data has {what}, and what is read twice is read by number: make the .idx by `ringmark pack`")
        })?;
        let seed = config.seed as u64;
        let recipe = training_recipe(&config.images, &dataset, config.image_size())?;
        let batches = BatchSpec { model: config.model, images: config.batch_size, seed, threads: 1 };
        let loader = loader_config(&config.images, recipe, batches);
        let shuffle = config.images.shuffle_seed(seed);
        let mut source = Source { dataset, items, loader, shuffle, warm_batches: 1 };
        let bytes_of_batch = source.mean_bytes()? * source.loader.images as f64;
        let most = WARM_BYTES.min(memory::available().0 / WARM_PART) as f64 / bytes_of_batch.max(1.0);
        source.warm_batches = (most as u64).clamp(1, source.whole_batches());
        Ok(source)
    }

    /// Batches of different images alone; one where there are not enough for one.
    pub fn whole_batches(&self) -> u64 {
        (self.items / self.loader.images).max(1)
    }

    /// The order of training: a warm pass has the first batches of it again and again.
    fn order(&self, cache: PageCache) -> Result<Order> {
        let images = self.loader.images;
        let order = Order::new(self.items, self.shuffle, Share { joined: images, first: 0, images })?;
        Ok(match cache {
            PageCache::Cold => order,
            PageCache::Warm => order.repeating(self.warm_batches),
        })
    }

    /// A loader of so many threads, which begins at once.
    pub fn loader(&self, threads: u32, cache: PageCache) -> Result<Loader> {
        let config = LoaderConfig { threads: threads as usize, ..self.loader };
        Loader::start(self.dataset.clone(), self.order(cache)?, config, 0)
    }

    /// Which library decodes JPEG, with its version.
    pub fn decoder(&self) -> Result<String> {
        Ok(Decoder::new(self.loader.decoder, self.loader.scaling)?.name())
    }

    /// Reads what warm passes read, so that the kernel has it.
    pub fn read_once(&self, threads: u32) -> Result<()> {
        let order = self.order(PageCache::Warm)?;
        let (images, next) = (self.loader.images, AtomicU64::new(0));
        let read = || -> Result<()> {
            let mut item = Item::default();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.warm_batches * images {
                    return Ok(());
                }
                // What cannot be read is named, or skipped and counted, by the pass itself.
                let _ = self.dataset.read(order.draw(number / images, number % images).item, &mut item);
                heartbeat::count_progress();
            }
        };
        thread::scope(|scope| {
            let readers: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().map_err(|_| anyhow!("a thread that reads has panicked"))?)
        })
    }

    /// Evenly apart.
    fn looked_at(&self) -> impl Iterator<Item = u64> {
        let count = self.items.min(LOOKED_AT);
        let items = self.items;
        (0..count).map(move |number| number * items / count)
    }

    fn mean_bytes(&self) -> Result<f64> {
        let (mut bytes, mut count, mut item) = (0.0, 0.0, Item::default());
        for index in self.looked_at() {
            // One that cannot be read is the pass's to name, or to skip.
            if self.dataset.read(index, &mut item).is_ok() {
                bytes += item.bytes().len() as f64;
                count += 1.0;
            }
            heartbeat::count_progress();
        }
        Ok(bytes / f64::max(count, 1.0))
    }

    /// How images are stored, of those whose head can be read; `None` of arrays of pixels.
    pub fn stored(&self) -> Result<Option<StoredImages>> {
        if let Form::Pixels { .. } = self.dataset.form() {
            return Ok(None);
        }
        let mut item = Item::default();
        let mut sum = StoredImages { looked_at: 0, bytes: 0.0, pixels: 0.0, shorter_edge: 0.0, aspect: 0.0 };
        for index in self.looked_at() {
            let read = self.dataset.read(index, &mut item).and_then(|()| decode::header(item.bytes()));
            let Ok(header) = read else { continue };
            let (pixels, shorter) = (header.size().pixels() as f64, header.size().shorter() as f64);
            sum.looked_at += 1;
            sum.bytes += item.bytes().len() as f64;
            sum.pixels += pixels;
            sum.shorter_edge += shorter;
            sum.aspect += pixels / (shorter * shorter);
        }
        let mean = |value: f64| value / sum.looked_at as f64;
        Ok((sum.looked_at > 0).then(|| StoredImages {
            looked_at: sum.looked_at,
            bytes: mean(sum.bytes),
            pixels: mean(sum.pixels),
            shorter_edge: mean(sum.shorter_edge),
            aspect: mean(sum.aspect),
        }))
    }
}
