//! Sums of gradients on the ranks that own them.

use std::collections::VecDeque;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::exchange::collective::Collective;
use crate::exchange::memory::narrow;
use crate::exchange::shards::collectives::Collectives;
use crate::exchange::shards::parts::ShardedBucket;

pub struct ShardedGradients {
    /// First element of each bucket in the memory of the exchange.
    starts: Vec<usize>,
    /// Sums of this rank's parts.
    pub own: Tensor,
    /// Number of the step's current pass, from 1: sums are added to those of earlier passes.
    pass: u64,
    /// Buckets in flight, at most two, and the numbers of their collectives.
    in_flight: VecDeque<(usize, usize)>,
    /// Numbers of the collectives that are not known to be complete, and how many are.
    unknown: VecDeque<usize>,
    completed: usize,
}

impl ShardedGradients {
    pub fn new(starts: Vec<usize>, buckets: &[ShardedBucket], device: Device) -> Result<ShardedGradients> {
        let elements = buckets.last().map_or(0, |last| last.place.end);
        let own = Tensor::f_zeros([elements as i64], (Kind::Float, device))?;
        Ok(ShardedGradients {
            starts,
            own,
            pass: 1,
            in_flight: VecDeque::new(),
            unknown: VecDeque::new(),
            completed: 0,
        })
    }

    pub fn start_of(&self, bucket: usize) -> usize {
        self.starts[bucket]
    }

    pub fn begin(&mut self, is_first_pass: bool) {
        self.pass = if is_first_pass { 1 } else { self.pass + 1 };
    }

    /// Returns the number of passes of the last step, each of which sums all buckets.
    pub fn passes(&self) -> u64 {
        self.pass
    }

    /// Frees the place of the next bucket, which the last but one has; returns true if that one was in flight.
    pub fn prepare(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<bool> {
        let waits = self.in_flight.len() > 1;
        while self.in_flight.len() > 1 {
            self.take_first(collectives, buckets)?;
        }
        Ok(waits)
    }

    /// Starts the sum of a bucket.
    pub fn start(&mut self, bucket: usize, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        let parts = buckets[bucket].parts_at(self.starts[bucket]);
        let number = collectives.start(&Collective::ReduceScatter { parts })?;
        self.in_flight.push_back((bucket, number));
        self.unknown.push_back(number);
        Ok(())
    }

    /// Returns the number of completed sums if the collectives up to number `last` are complete.
    pub fn completed(&mut self, last: usize) -> usize {
        while self.unknown.front().is_some_and(|number| *number <= last) {
            self.unknown.pop_front();
            self.completed += 1;
        }
        self.completed
    }

    /// Moves the sums of all buckets in flight to this rank's parts.
    pub fn finish(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.take_first(collectives, buckets)?;
        }
        Ok(())
    }

    fn take_first(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        let Some((bucket, number)) = self.in_flight.pop_front() else { return Ok(()) };
        collectives.finish_first(number)?;
        if !collectives.backend.is_asynchronous() {
            self.completed(number);
        }
        let sums = narrow(&collectives.sums, &buckets[bucket].own_at(self.starts[bucket]))?;
        let mut own = narrow(&self.own, &buckets[bucket].place)?;
        match self.pass > 1 {
            true => drop(own.f_add_(&sums)?),
            false => own.f_copy_(&sums)?,
        }
        Ok(())
    }
}
