//! What one thread does to one image: read, decode, augment, each timed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::augment::Generator;
use crate::dataset::Dataset;
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
}

impl Worker {
    pub(super) fn new(config: LoaderConfig) -> Result<Worker> {
        let pipeline = ImagePipeline::new(config.decoder, config.scaling)?;
        Ok(Worker { pipeline, item: Item::default(), config })
    }

    /// Which library decodes JPEG, with its version.
    pub(super) fn decoder(&self) -> String {
        self.pipeline.decoder().name()
    }

    /// Fills `place` with an image; its class, and what that took.
    pub(super) fn make(&mut self, dataset: &Dataset, draw: Draw, place: &mut [u8]) -> (Result<i64>, StageTimes) {
        let mut times = StageTimes { images: 1, ..StageTimes::default() };
        let made = self.fill(dataset, draw, place, &mut times);
        (made, times)
    }

    fn fill(&mut self, dataset: &Dataset, draw: Draw, place: &mut [u8], times: &mut StageTimes) -> Result<i64> {
        timed(&mut times.read, || dataset.read(draw.item, &mut self.item))?;
        let (item, LoaderConfig { recipe, seed, channels, classes, .. }) = (&self.item, &self.config);
        times.bytes = item.bytes().len() as u64;
        match item.form {
            Form::Encoded => {
                ensure!(
                    *channels == 3,
                    "{}: image files become RGB, and the network takes {} channel: choose another network, or data of MNIST",
                    item.place,
                    channels
                );
                let mut generator = Generator::of_image(*seed, draw.epoch, draw.item);
                let pipeline = &mut self.pipeline;
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
