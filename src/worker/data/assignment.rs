//! How the images of a data set are dealt out: which rank has which in a step, and how many steps an epoch has, on every rank
//! the same.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ringmark_input::dataset::Dataset;
use ringmark_input::loader::order::{Order, Share};
use ringmark_input::loader::sequential_order::SequentialOrder;
use ringmark_input::loader::{Loader, LoaderConfig};
use ringmark_input::shard::Part;

use crate::measure::trace::recorder;

/// A data set, dealt out to the ranks.
#[derive(Debug, Clone)]
pub struct Assignment {
    /// What is read.
    pub dataset: Arc<Dataset>,
    /// Which rank has which images.
    pub access: Access,
    steps: u64,
    /// Steps that come again and again; `None` are all.
    repeated: Option<u64>,
}

/// How images come to ranks.
#[derive(Debug, Clone, Copy)]
pub enum Access {
    /// Every step's joined batch, a share of it to each rank.
    ByNumber {
        /// Of the data set.
        items: u64,
    },
    /// Each rank reads a part of its own.
    Sequential(SequentialOrder),
}

/// A rank among those that images are dealt out to.
#[derive(Debug, Clone, Copy)]
pub struct Receiver {
    /// From 0.
    pub rank: u32,
    /// All of them.
    pub ranks: u32,
    /// Images of a step, the same for each.
    pub images: u32,
}

impl Assignment {
    /// Of a data set that all ranks have; `longest` makes of this rank's steps the most of all ranks.
    ///
    /// # Errors
    ///
    /// Where a rank would have nothing.
    pub fn new(dataset: Dataset, receiver: Receiver, longest: impl FnOnce(u64) -> u64) -> Result<Assignment> {
        let Receiver { rank, ranks, images } = receiver;
        let (access, steps) = match dataset.length() {
            Some(items) => (Access::ByNumber { items }, items.div_ceil(u64::from(images) * u64::from(ranks))),
            None => {
                let order = SequentialOrder::new(&dataset, Part::new(rank, ranks)?, images.into())?;
                let steps = longest(order.steps());
                (Access::Sequential(order.with_steps(steps)?), steps)
            }
        };
        Ok(Assignment { dataset: Arc::new(dataset), access, steps, repeated: None })
    }

    /// The first `steps` again and again, the very same images.
    pub fn repeating(&self, steps: u64) -> Assignment {
        Assignment { repeated: Some(steps), ..self.clone() }
    }

    /// Of the data set, or of this rank's part of it.
    pub fn items(&self) -> u64 {
        match self.access {
            Access::ByNumber { items } => items,
            Access::Sequential(order) => order.records(),
        }
    }

    /// Steps of an epoch.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Refuses what needs a joined batch of all ranks.
    ///
    /// # Errors
    ///
    /// Where each rank reads a part of its own.
    pub fn check_joined(&self, option: &str) -> Result<()> {
        ensure!(
            matches!(self.access, Access::ByNumber { .. }),
            "{option} with {}: each rank reads a part of its own there, of the same size: make the .idx by `ringmark pack`",
            self.dataset.what()
        );
        Ok(())
    }

    /// Begins to make batches of a rank's `share` of the joined batch, from step `first` on, shuffled by a seed where they can
    /// be.
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
        loader.observe(recorder::take_image);
        Ok(loader)
    }
}
