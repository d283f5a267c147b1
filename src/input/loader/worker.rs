//! What one thread does to one image: read, decode, augment, each timed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::augment::Generator;
use crate::dataset::item::{Form, Item};
use crate::image::ImagePipeline;
use crate::loader::config::LoaderConfig;
use crate::loader::growing::StageTimes;
use crate::loader::order::Draw;

/// One thread's memory.
pub(super) struct Worker {
    pipeline: ImagePipeline,
    item: Item,
    config: LoaderConfig,
    times: StageTimes,
}

impl Worker {
    pub(super) fn new(config: LoaderConfig) -> Result<Worker> {
        let pipeline = ImagePipeline::new(config.decoder, config.scaling)?;
        Ok(Worker { pipeline, item: Item::default(), config, times: StageTimes::default() })
    }

    /// Which library decodes JPEG, with its version.
    pub(super) fn decoder(&self) -> String {
        self.pipeline.decoder().name()
    }

    /// What the image that was read last took.
    pub(super) fn times(&self) -> StageTimes {
        self.times
    }

    /// Reads an image's bytes.
    pub(super) fn read(&mut self, read: impl FnOnce(&mut Item) -> Result<Draw>) -> Result<Draw> {
        self.times = StageTimes { images: 1, ..StageTimes::default() };
        let draw = timed(&mut self.times.read, || read(&mut self.item))?;
        self.times.bytes = self.item.bytes().len() as u64;
        Ok(draw)
    }

    /// Fills `place` with the image whose bytes were read; its class.
    pub(super) fn make(&mut self, draw: Draw, place: &mut [u8]) -> Result<i64> {
        let Worker { pipeline, item, config: LoaderConfig { recipe, seed, channels, classes, .. }, times } = self;
        match item.form {
            Form::Encoded => {
                ensure!(
                    *channels == 3,
                    "{}: image files become RGB, and the network takes {} channel: choose another network, or data of MNIST",
                    item.place,
                    channels
                );
                let mut generator = Generator::of_image(*seed, draw.epoch, draw.item);
                let plan = timed(&mut times.decode, || pipeline.decode(item.bytes(), recipe, &mut generator));
                let plan = plan.with_context(|| item.place.to_string())?;
                timed(&mut times.augment, || pipeline.augment(&plan, place)).with_context(|| item.place.to_string())?;
            }
            Form::Pixels { height, width, channels: stored } => {
                ensure!(
                    [height as usize, width as usize] == [recipe.size; 2] && stored == *channels,
                    "{}: {width} x {height} pixels of {stored} channel, and the network takes {} x {} of {}: choose another \
                     --image-size or network",
                    item.place,
                    recipe.size,
                    recipe.size,
                    channels
                );
                timed(&mut times.augment, || place.copy_from_slice(item.bytes()));
            }
        }
        Ok(i64::from(item.class(*classes)?))
    }
}

fn timed<Value>(time: &mut Duration, work: impl FnOnce() -> Value) -> Value {
    let start = Instant::now();
    let value = work();
    *time += start.elapsed();
    value
}
