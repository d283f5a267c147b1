//! Where the batches of a rank come from. One that is made once on the device, [`synthetic`] by default or of a [`file`], is
//! used in every iteration, so that no input pipeline stands between the devices and the figure; or [`images`] are read,
//! decoded and augmented while the steps go on.

pub mod assignment;
pub mod batch;
mod device_copy;
mod file;
pub mod images;
mod synthetic;

use anyhow::Result;
use ringmark_core::benchmark::image_input::DataSource;
use tch::Device;

use crate::data::batch::{Batch, BatchRequest, ImageRequest, in_layout};
use crate::data::images::{Images, ImagesUsed};

/// The batches of a rank, one after the other.
pub enum Batches {
    /// The same for every step.
    Fixed(Batch),
    /// Another for every step.
    Read(Box<Images>),
}

impl Batches {
    /// Those of rank `rank`, of `images` where they are read. What the rank draws after it, dropout, follows from the same
    /// seed.
    pub fn new(request: &BatchRequest, images: Option<&ImageRequest>, rank: u32, device: Device) -> Result<Batches> {
        let Some(images) = images else {
            return batch(request, rank, device).map(Batches::Fixed);
        };
        seed(request, rank);
        Ok(Batches::Read(Box::new(Images::start(request, images, device)?)))
    }

    /// Goes on to the next step's batch, which is [`current`](Batches::current) then; waits for it where it is not there yet.
    /// Whether there was anything to do.
    pub fn advance(&mut self) -> Result<bool> {
        match self {
            Batches::Fixed(_) => Ok(false),
            Batches::Read(images) => images.advance().map(|()| true),
        }
    }

    /// Of the step that goes on, or of the first where none did.
    pub fn current(&mut self) -> Result<&Batch> {
        match self {
            Batches::Fixed(batch) => Ok(batch),
            Batches::Read(images) => images.current(),
        }
    }

    /// What was read; `None` where nothing is.
    pub fn used(&self) -> Option<ImagesUsed> {
        match self {
            Batches::Fixed(_) => None,
            Batches::Read(images) => Some(images.used()),
        }
    }
}

/// Rank `rank`'s batch that is made once: of a file, or a synthetic one.
pub fn batch(request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    seed(request, rank);
    let batch = match request.source {
        DataSource::Batch(path) => file::batch(path, request, rank, device)?,
        DataSource::Synthetic | DataSource::Images(_) => synthetic::batch(request, device)?,
    };
    Ok(Batch { images: in_layout(&batch.images, request.layout)?, ..batch })
}

fn seed(request: &BatchRequest, rank: u32) {
    tch::manual_seed(request.seed.wrapping_add(i64::from(rank)));
}
