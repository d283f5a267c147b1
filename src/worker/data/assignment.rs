//! Assignment of a data set's images to ranks and steps, computed identically on every rank.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_input::dataset::Dataset;
use ringmark_input::loader::order::{Order, Share};
use ringmark_input::loader::sequential_order::SequentialOrder;
use ringmark_input::loader::{Loader, LoaderConfig};
use ringmark_input::shard::Shard;

use crate::measure::trace::recorder;

#[derive(Debug, Clone)]
pub struct Assignment {
    pub dataset: Arc<Dataset>,
    pub access: Access,
    steps: u64,
    /// Number of steps to repeat; `None` repeats no subset.
    repeated: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// Each rank takes its share of the global batch of every step.
    ByNumber {
        /// Number of images of the data set.
        items: u64,
    },
    /// Each rank reads a separate part of the data set.
    Sequential(SequentialOrder),
}

#[derive(Debug, Clone, Copy)]
pub struct Receiver {
    pub rank: u32,
    pub ranks: u32,
    /// Images of one rank in a step, the same for each rank.
    pub samples: u32,
}

impl Assignment {
    /// Assigns a data set that all ranks can read. `longest` returns the maximum over all ranks of this rank's number
    /// of steps.
    ///
    /// # Errors
    ///
    /// Fails if a rank would have no images.
    pub fn new(dataset: Dataset, receiver: Receiver, longest: impl FnOnce(u64) -> u64) -> Result<Assignment> {
        let Receiver { rank, ranks, samples } = receiver;
        let (access, steps) = match dataset.length() {
            Some(items) => (Access::ByNumber { items }, items.div_ceil(u64::from(samples) * u64::from(ranks))),
            None => {
                let order = SequentialOrder::new(&dataset, Shard::new(rank, ranks)?, samples.into())?;
                let steps = longest(order.steps());
                (Access::Sequential(order.with_steps(steps)?), steps)
            }
        };
        Ok(Assignment { dataset: Arc::new(dataset), access, steps, repeated: None })
    }

    /// Returns an assignment that repeats the images of the first `steps` steps.
    pub fn repeating(&self, steps: u64) -> Assignment {
        Assignment { repeated: Some(steps), ..self.clone() }
    }

    /// Returns the number of images of the data set, or of this rank's part if it reads a separate one.
    pub fn items(&self) -> u64 {
        match self.access {
            Access::ByNumber { items } => items,
            Access::Sequential(order) => order.records(),
        }
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Checks that the images form a global batch of all ranks, which `option` requires.
    ///
    /// # Errors
    ///
    /// Fails if each rank reads a separate part of the data set.
    pub fn check_joined(&self, option: &str) -> Result<()> {
        ensure!(
            matches!(self.access, Access::ByNumber { .. }),
            "{option} is not possible with {}, because each rank reads a separate part: create the .idx file with \
             `ringmark pack`",
            self.dataset.description()
        );
        Ok(())
    }

    /// Starts a loader of a rank's `share` of the global batch, from step `first`. `shuffle` is the seed of the order;
    /// a data set that is read in sequence is not shuffled.
    pub fn start(&self, share: Share, shuffle: Option<u64>, config: LoaderConfig, first: u64) -> Result<Loader> {
        let loader = match self.access {
            Access::ByNumber { items } => {
                let order = Order::new(items, shuffle, share)?;
                let order = match self.repeated {
                    Some(steps) => order.repeating(steps),
                    None => order,
                };
                Loader::start(self.dataset.clone(), order, config, first)?
            }
            Access::Sequential(order) => {
                let order = self.repeated.map_or(order, |steps| order.repeating(steps));
                Loader::start_sequential(&self.dataset, order, config, first)?
            }
        };
        loader.observe(recorder::record_image);
        Ok(loader)
    }
}
