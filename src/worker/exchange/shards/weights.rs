//! Weights of a bucket on every rank while the network computes it.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ringmark_core::dimension::{Operation, Phase};
use ringmark_core::host::Stage;
use ringmark_core::trace::Lane;
use ringmark_core::trace::span::WAIT_FOR_WEIGHTS;
use tch::{Device, Kind, Tensor};

use crate::exchange::bucket::{Bucket, BucketPlan};
use crate::exchange::collective::{Collective, Target};
use crate::exchange::memory::narrow;
use crate::exchange::reducer;
use crate::exchange::shards::collectives::Collectives;
use crate::exchange::shards::parts::{ShardedBucket, alternating};
use crate::ffi::group::GroupRank;
use crate::job::heartbeat;
use crate::measure::mark::Mark;
use crate::measure::step_timer::{Blocked, WeightWait};
use crate::measure::trace::recorder::{self, OpenSpan};

/// State of a bucket's weights in its place, which other buckets may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Absent,
    /// Collective with this number gathers them.
    Requested(usize),
    Present,
}

pub struct GatheredWeights {
    /// This rank's parts, fp32.
    own: Tensor,
    /// Place of each bucket in the memory of the exchange, in the order of backward.
    places: Vec<Range<usize>>,
    states: Vec<State>,
    /// True while the network computes with the bucket.
    in_use: Vec<bool>,
    /// Bucket of each unit, in the order of forward.
    bucket_of: Vec<usize>,
    /// Bytes that this rank receives when a bucket is gathered.
    received: Vec<u64>,
    /// Copy of the places in the type of matrix products, if that is not fp32.
    rounded: Option<Tensor>,
    /// Number of times that each bucket was gathered since the last update, and between the two updates before.
    gathers: Vec<u64>,
    gathers_of_step: Vec<u64>,
    /// Last request of each bucket, until computation needs the weights, with the span of a trace.
    requests: Vec<Option<(Mark, Option<OpenSpan>)>>,
    /// Waits since the last [`take_waits`](GatheredWeights::take_waits).
    waits: Vec<WeightWait>,
    device: Device,
}

/// First elements of the buckets in the memory of the exchange, and the bucket of each unit, in the order of forward.
pub struct Places {
    pub starts: Vec<usize>,
    pub bucket_of: Vec<usize>,
}

/// Returns the first elements of buckets of these lengths, and the size of the memory: consecutive buckets are apart, and
/// the last one has a place of its own if `keeps_last`.
pub fn places(lengths: &[usize], keeps_last: bool) -> (Vec<usize>, usize) {
    let (shared, kept) = lengths.split_at(lengths.len() - usize::from(keeps_last));
    let (mut starts, mut size) = alternating(shared);
    for length in kept {
        starts.push(size);
        size += length;
    }
    (starts, size)
}

impl GatheredWeights {
    /// Creates this rank's parts of the weights, which are zero until [`take`](GatheredWeights::take).
    pub fn new(
        buckets: &[ShardedBucket],
        Places { starts, bucket_of }: Places,
        rank: GroupRank,
        rounded: Option<Kind>,
        device: Device,
    ) -> Result<GatheredWeights> {
        let length = buckets.last().map_or(0, |last| last.place.end);
        let own = Tensor::f_zeros([length as i64], (Kind::Float, device))?;
        let places: Vec<Range<usize>> =
            starts.into_iter().zip(buckets).map(|(start, bucket)| start..start + bucket.length()).collect();
        let size = places.iter().map(|place| place.end).max().unwrap_or(0);
        let zeros = |kind| Tensor::f_zeros([size as i64], (kind, device));
        Ok(GatheredWeights {
            own,
            states: vec![State::Absent; places.len()],
            in_use: vec![false; places.len()],
            gathers: vec![0; places.len()],
            gathers_of_step: vec![0; places.len()],
            requests: places.iter().map(|_| None).collect(),
            places,
            bucket_of,
            received: buckets.iter().map(|bucket| bucket.bytes_of_gather(rank)[1]).collect(),
            rounded: rounded.map(zeros).transpose()?,
            waits: Vec::new(),
            device,
        })
    }

    /// Copies this rank's parts of the weights in `range`.
    pub fn take(&mut self, buckets: &[ShardedBucket], range: &Range<usize>, values: &Tensor) -> Result<()> {
        for bucket in buckets {
            let own = bucket.own_at(bucket.elements.start);
            let (first, end) = (own.start.max(range.start), own.end.min(range.end));
            if first < end {
                let place = bucket.place.start + first - own.start..bucket.place.start + end - own.start;
                narrow(&self.own, &place)?.f_copy_(&narrow(values, &(first - range.start..end - range.start))?)?;
            }
        }
        Ok(())
    }

    /// Makes the network's tensors views of the places in `sums`, the memory of the exchange, or in the rounded copy.
    pub fn place(&self, plan: &BucketPlan, tensors: &[Tensor], sums: &Tensor) -> Result<()> {
        for (Bucket { parameters, .. }, place) in plan.buckets.iter().zip(&self.places) {
            let tensors = &tensors[parameters.clone()];
            let exact = reducer::views(tensors, sums, place.start)?;
            let rounded = self.rounded.as_ref().unwrap_or(sums);
            let rounded = reducer::views(tensors, rounded, place.start)?;
            for (tensor, (exact, rounded)) in tensors.iter().zip(exact.iter().zip(&rounded)) {
                let is_exact = tensor.kind() == Kind::Float;
                tensor.shallow_clone().set_data(if is_exact { exact } else { rounded });
            }
        }
        Ok(())
    }

    /// Returns this rank's part of a bucket.
    pub fn part(&self, bucket: &ShardedBucket) -> Result<Tensor> {
        narrow(&self.own, &bucket.place)
    }

    /// Provides the weights of a unit, and requests those of the bucket that follows in `phase`.
    pub fn need(
        &mut self,
        unit: usize,
        phase: Phase,
        collectives: &mut Collectives,
        buckets: &[ShardedBucket],
    ) -> Result<()> {
        let bucket = self.bucket_of[unit];
        if self.in_use[bucket] {
            return Ok(());
        }
        heartbeat::enter(Stage::Exchange { operation: Operation::AllGather, bucket: Some(bucket as u32) });
        let span = recorder::begin(Lane::Layers, WAIT_FOR_WEIGHTS, Some(bucket as u32));
        let (start, begin) = (Instant::now(), Mark::set(self.device)?);
        self.request(bucket, collectives, buckets)?;
        let before_wait = if collectives.backend.is_asynchronous() { None } else { Some(Mark::set(self.device)?) };
        let waited = self.wait(bucket, collectives)?;
        self.in_use[bucket] = true;
        // Buckets are in the order of backward.
        let next = if phase == Phase::Forward { bucket.checked_sub(1) } else { Some(bucket + 1) };
        if let Some(next) = next.filter(|next| *next < self.places.len() && self.is_free(*next)) {
            self.request(next, collectives, buckets)?;
        }
        let blocked = Blocked { phase, begin, end: Mark::set(self.device)? };
        let (requested, gather) = self.requests[bucket].take().unzip();
        span.into_iter().chain(gather.flatten()).for_each(OpenSpan::end);
        self.waits.push(WeightWait {
            bucket,
            blocked,
            // Without concurrency, the gather itself begins with the wait.
            requested: requested.map(|requested| before_wait.unwrap_or(requested)),
            received: self.received[bucket],
            host: start.elapsed().saturating_sub(waited),
        });
        heartbeat::enter(if phase == Phase::Forward { Stage::Forward } else { Stage::Backward });
        Ok(())
    }

    /// Ends the use of a unit's weights in forward.
    pub fn leave(&mut self, unit: usize) {
        let bucket = self.bucket_of[unit];
        if self.bucket_of.get(unit + 1) != Some(&bucket) {
            self.in_use[bucket] = false;
        }
    }

    /// Ends the use of a bucket's weights in backward.
    pub fn leave_bucket(&mut self, bucket: usize) -> Result<()> {
        ensure!(self.in_use[bucket], "backward computed bucket {bucket} without its weights");
        self.in_use[bucket] = false;
        Ok(())
    }

    /// Requests the weights that the next forward needs first, after an update.
    pub fn renew(&mut self, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        for bucket in 0..self.places.len() {
            self.drop_bucket(bucket, collectives)?;
        }
        self.gathers_of_step = std::mem::replace(&mut self.gathers, vec![0; self.places.len()]);
        match self.bucket_of.first() {
            Some(first) => self.request(*first, collectives, buckets),
            None => Ok(()),
        }
    }

    pub fn take_waits(&mut self) -> Vec<WeightWait> {
        std::mem::take(&mut self.waits)
    }

    /// Returns the number of times that a bucket was gathered in the last step.
    pub fn gathers_of(&self, bucket: usize) -> u64 {
        self.gathers_of_step[bucket]
    }

    /// Returns the other buckets whose places overlap that of `bucket`.
    fn sharing(&self, bucket: usize) -> Vec<usize> {
        let place = &self.places[bucket];
        let shares = |other: &Range<usize>| other.start < place.end && place.start < other.end;
        (0..self.places.len()).filter(|other| *other != bucket && shares(&self.places[*other])).collect()
    }

    fn is_free(&self, bucket: usize) -> bool {
        self.sharing(bucket).into_iter().all(|other| !self.in_use[other])
    }

    /// Starts the gathering of a bucket's weights, unless they are present or requested.
    fn request(&mut self, bucket: usize, collectives: &mut Collectives, buckets: &[ShardedBucket]) -> Result<()> {
        if self.states[bucket] != State::Absent {
            return Ok(());
        }
        for other in self.sharing(bucket) {
            ensure!(!self.in_use[other], "weights of bucket {bucket} are needed while bucket {other} has their place");
            self.drop_bucket(other, collectives)?;
        }
        let span = recorder::begin(Lane::Bucket(bucket as u32), "gather weights", Some(bucket as u32));
        self.requests[bucket] = Some((Mark::set(self.device)?, span));
        let start = self.places[bucket].start;
        narrow(&collectives.sums, &buckets[bucket].own_at(start))?.f_copy_(&self.part(&buckets[bucket])?)?;
        let sums = collectives.sums.shallow_clone();
        let parts = buckets[bucket].parts_at(start);
        let number = collectives.start(&Collective::AllGather { parts, target: Target::Tensor(&sums) })?;
        self.states[bucket] = State::Requested(number);
        self.gathers[bucket] += 1;
        Ok(())
    }

    /// Returns the time that the host waited.
    fn wait(&mut self, bucket: usize, collectives: &mut Collectives) -> Result<Duration> {
        let mut waited = Duration::ZERO;
        if let State::Requested(number) = self.states[bucket] {
            let start = Instant::now();
            collectives.finish_first(number)?;
            waited = start.elapsed();
            if let Some(rounded) = &self.rounded {
                let place = &self.places[bucket];
                narrow(rounded, place)?.f_copy_(&narrow(&collectives.sums, place)?)?;
            }
            self.states[bucket] = State::Present;
        }
        Ok(waited)
    }

    /// Gives up a bucket's weights; those in flight must arrive first.
    fn drop_bucket(&mut self, bucket: usize, collectives: &mut Collectives) -> Result<()> {
        if let State::Requested(number) = self.states[bucket] {
            collectives.finish_first(number)?;
        }
        self.states[bucket] = State::Absent;
        Ok(())
    }
}
