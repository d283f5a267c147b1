//! Work of one thread on one image: reads, decodes and augments it, and times each stage.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::augment::Generator;
use crate::dataset::item::{Item, ItemFormat};
use crate::image::ImagePipeline;
use crate::loader::config::LoaderConfig;
use crate::loader::image_fault::ImageFault;
use crate::loader::order::SampleIndex;
use crate::loader::stage::{ImageStage, StageSpan, StageTimes};

/// Working memory of one thread.
pub(super) struct Worker {
    pipeline: ImagePipeline,
    item: Item,
    config: LoaderConfig,
    /// Stages of the last image, in order.
    stages: Vec<StageSpan>,
    bytes: u64,
}

impl Worker {
    pub(super) fn new(config: LoaderConfig) -> Result<Worker> {
        let pipeline = ImagePipeline::new(config.decoder, config.scaling, config.limits)?;
        Ok(Worker { pipeline, item: Item::default(), config, stages: Vec::new(), bytes: 0 })
    }

    /// Returns the name and version of the JPEG decoder.
    pub(super) fn decoder(&self) -> String {
        self.pipeline.decoder().name()
    }

    /// Returns the times of the last image.
    pub(super) fn times(&self) -> StageTimes {
        let of = |stage: ImageStage| {
            self.stages.iter().filter(|span| span.stage == stage).map(|span| span.end - span.begin).sum()
        };
        StageTimes {
            read: of(ImageStage::Read),
            decode: of(ImageStage::Decode),
            augment: of(ImageStage::Augment),
            samples: 1,
            bytes: self.bytes,
            ..StageTimes::default()
        }
    }

    /// Returns the stages of the last image.
    pub(super) fn stages(&self) -> &[StageSpan] {
        &self.stages
    }

    /// Reads an image's bytes.
    pub(super) fn read(&mut self, read: impl FnOnce(&mut Item) -> Result<SampleIndex>) -> Result<SampleIndex> {
        self.stages.clear();
        self.bytes = 0;
        let draw = timed(ImageStage::Read, &mut self.stages, || read(&mut self.item))?;
        self.bytes = self.item.bytes().len() as u64;
        Ok(draw)
    }

    /// Writes the image that was read into `place` and returns its class.
    pub(super) fn make(&mut self, draw: SampleIndex, place: &mut [u8]) -> Result<i64, ImageFault> {
        let class = self.check().map_err(ImageFault::Data)?;
        let Worker { pipeline, item, config: LoaderConfig { recipe, seed, .. }, stages, .. } = self;
        match item.form {
            ItemFormat::Encoded => {
                let mut generator = Generator::for_image(*seed, draw.epoch, draw.item);
                let plan = timed(ImageStage::Decode, stages, || pipeline.decode(item.bytes(), recipe, &mut generator));
                let plan = plan.with_context(|| item.location.to_string()).map_err(ImageFault::Image)?;
                let augmented = timed(ImageStage::Augment, stages, || pipeline.augment(&plan, place));
                augmented.with_context(|| item.location.to_string()).map_err(ImageFault::Data)?;
            }
            ItemFormat::Pixels { .. } | ItemFormat::Tokens { .. } => {
                timed(ImageStage::Augment, stages, || place.copy_from_slice(item.bytes()));
            }
        }
        Ok(class.into())
    }

    /// Checks that the item matches the network and returns its class, which is 0 for tokens.
    fn check(&self) -> Result<u32> {
        let (item, LoaderConfig { recipe, channels, classes, .. }) = (&self.item, &self.config);
        match item.form {
            ItemFormat::Encoded => ensure!(
                *channels == 3,
                "{}: image files are decoded to RGB, but the network takes {channels} channel: use another network, \
                 or MNIST",
                item.location
            ),
            ItemFormat::Pixels { height, width, channels: stored } => ensure!(
                [height as usize, width as usize] == [recipe.size; 2] && stored == *channels,
                "{}: {width} x {height} pixels of {stored} channel, but the network takes {} x {} of {channels}: use \
                 another --image-size or network",
                item.location,
                recipe.size,
                recipe.size
            ),
            ItemFormat::Tokens { .. } => return item.check_tokens(*classes).map(|()| 0),
        }
        item.class(*classes)
    }
}

fn timed<Value>(stage: ImageStage, stages: &mut Vec<StageSpan>, work: impl FnOnce() -> Value) -> Value {
    let begin = Instant::now();
    let value = work();
    stages.push(StageSpan { stage, begin, end: Instant::now() });
    value
}
