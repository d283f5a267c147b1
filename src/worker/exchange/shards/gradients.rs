//! Sums of gradients on the ranks that own them. With shards in every host, the owners of a part then add their sums over
//! the hosts; on GPUs this runs while backward fills the next buckets.

use std::collections::VecDeque;

use anyhow::Result;
use tch::Tensor;

use crate::exchange::backend::Backend;
use crate::exchange::collective::Collective;
use crate::exchange::memory::narrow;
use crate::exchange::reducer::BackwardPass;
use crate::exchange::shards::collectives::Collectives;
use crate::exchange::shards::parts::ShardedBucket;
use crate::measure::trace::recorder;

pub struct ShardedGradients {
    /// First element of each bucket in the memory of the exchange.
    starts: Vec<usize>,
    /// Sums of this rank's parts: the sums of `between_hosts`, if there is one.
    pub own: Tensor,
    /// Ranks with the same parts on other hosts.
    between_hosts: Option<Box<dyn Backend>>,
    /// Number of the step's current pass, from 1: sums are added to those of earlier passes.
    pass: u64,
    is_last_pass: bool,
    /// Buckets in flight, at most two, and the numbers of their collectives.
    in_flight: VecDeque<(usize, usize)>,
    /// Numbers of the collectives that are not known to be complete, and how many are.
    unknown: VecDeque<usize>,
    completed: usize,
}

impl ShardedGradients {
    /// Buckets start at `starts` in the memory of the exchange. `own` has a place for each of this rank's parts.
    pub fn new(starts: Vec<usize>, own: Tensor, between_hosts: Option<Box<dyn Backend>>) -> ShardedGradients {
        ShardedGradients {
            starts,
            own,
            between_hosts,
            pass: 1,
            is_last_pass: true,
            in_flight: VecDeque::new(),
            unknown: VecDeque::new(),
            completed: 0,
        }
    }

    pub fn start_of(&self, bucket: usize) -> usize {
        self.starts[bucket]
    }

    pub fn begin(&mut self, BackwardPass { is_first, is_last }: BackwardPass) {
        self.pass = if is_first { 1 } else { self.pass + 1 };
        self.is_last_pass = is_last;
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

    /// Moves the sums of all buckets in flight to this rank's parts. In the last pass they are the sums over all ranks.
    pub fn finish(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.take_first(collectives, buckets)?;
        }
        match &mut self.between_hosts {
            Some(between_hosts) if self.is_last_pass => between_hosts.finish(),
            _ => Ok(()),
        }
    }

    /// Checks sums between hosts for errors, without waiting.
    pub fn check(&mut self) -> Result<()> {
        self.between_hosts.as_mut().map_or(Ok(()), |between_hosts| between_hosts.check().map(drop))
    }

    fn take_first(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        let Some((bucket, number)) = self.in_flight.pop_front() else { return Ok(()) };
        collectives.finish_first(number)?;
        if !collectives.backend.is_asynchronous() {
            self.completed(number);
        }
        let sums = narrow(&collectives.sums, &buckets[bucket].own_at(self.starts[bucket]))?;
        let place = &buckets[bucket].place;
        let mut own = narrow(&self.own, place)?;
        match self.pass > 1 {
            true => drop(own.f_add_(&sums)?),
            false => own.f_copy_(&sums)?,
        }
        match &mut self.between_hosts {
            Some(between_hosts) if self.is_last_pass && !place.is_empty() => {
                recorder::with_bucket(bucket as u32, || between_hosts.start(place.clone()))
            }
            _ => Ok(()),
        }
    }
}
