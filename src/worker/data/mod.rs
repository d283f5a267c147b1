//! Batches of a rank. By default a batch is made once on the device, [`synthetic`] or from a [`mod@file`], and used in
//! every iteration, so that the input pipeline does not affect the measurement. Alternatively, a [`reader`] reads
//! images or tokens during training.

pub mod assignment;
pub mod batch;
mod device_copy;
mod file;
pub mod reader;
mod synthetic;

use anyhow::Result;
use ringmark_core::benchmark::data_input::DataSource;
use ringmark_core::dimension::SampleSize;
use tch::Device;

use crate::data::batch::{Batch, BatchRequest, ReadRequest, in_layout};
use crate::data::reader::{DataReader, ReadUse};

pub enum Batches {
    Fixed(Batch),
    Read(Box<DataReader>),
}

impl Batches {
    /// Creates the batches of rank `rank`, from `read` if given. Later random numbers of the rank, such as dropout's,
    /// depend on the same seed.
    pub fn new(request: &BatchRequest, read: Option<&ReadRequest>, rank: u32, device: Device) -> Result<Batches> {
        let Some(read) = read else {
            return batch(request, rank, device).map(Batches::Fixed);
        };
        seed(request, rank);
        Ok(Batches::Read(Box::new(DataReader::start(request, read, device)?)))
    }

    /// Advances to the next step's batch, waiting for it if necessary; it becomes [`current`](Batches::current).
    /// Returns false if there is only one batch.
    pub fn advance(&mut self) -> Result<bool> {
        match self {
            Batches::Fixed(_) => Ok(false),
            Batches::Read(reader) => reader.advance().map(|()| true),
        }
    }

    /// Returns the batch of the current step, or the first one.
    pub fn current(&mut self) -> Result<&Batch> {
        match self {
            Batches::Fixed(batch) => Ok(batch),
            Batches::Read(reader) => reader.current(),
        }
    }

    /// Returns the input statistics; `None` if nothing is read.
    pub fn used(&self) -> Option<ReadUse> {
        match self {
            Batches::Fixed(_) => None,
            Batches::Read(reader) => Some(reader.used()),
        }
    }
}

/// Returns the fixed batch of rank `rank`: from a file, or synthetic.
pub fn batch(request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    seed(request, rank);
    let batch = match request.source {
        DataSource::Batch(path) => file::batch(path, request, rank, device)?,
        DataSource::Synthetic | DataSource::Read(_) => synthetic::batch(request, device)?,
    };
    Ok(match request.size {
        SampleSize::Pixels(_) => Batch { inputs: in_layout(&batch.inputs, request.layout)?, ..batch },
        SampleSize::Tokens(_) => batch,
    })
}

fn seed(request: &BatchRequest, rank: u32) {
    tch::manual_seed(request.seed.wrapping_add(i64::from(rank)));
}
