//! A part of the weights as a server holds it: weights, momenta, what each worker pushed, and how often it was updated.

use std::io::Read;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::ffi::host_array::HostArray;
use crate::ffi::shim::{self, SgdStep};

/// Shared by the readers, each of which writes into its own worker's place, and the thread that updates.
pub struct HeldPart {
    length: usize,
    weights: HostArray,
    /// Of each worker, in the wire's type.
    pushes: Vec<HostArray>,
    /// Only the thread that updates takes it.
    own: Mutex<Own>,
}

struct Own {
    momenta: Tensor,
    sum: Tensor,
    /// Workers whose push of this round is there.
    is_there: Vec<bool>,
    /// Updates so far, and when each worker got the weights.
    updates: u64,
    pulled: Vec<u64>,
}

impl HeldPart {
    /// Of `length` weights, for so many workers whose gradients are of the type `wire`.
    pub fn new(length: usize, wire: Kind, pushers: usize) -> Result<HeldPart> {
        let zeros = || Tensor::f_zeros([length as i64], (Kind::Float, Device::Cpu));
        Ok(HeldPart {
            length,
            weights: HostArray::zeros(length, Kind::Float)?,
            pushes: (0..pushers).map(|_| HostArray::zeros(length, wire)).collect::<Result<_>>()?,
            own: Mutex::new(Own {
                momenta: zeros()?,
                sum: zeros()?,
                is_there: vec![false; pushers],
                updates: 0,
                pulled: vec![0; pushers],
            }),
        })
    }

    /// Bytes of its weights on the wire.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes_of(self.length)
    }

    /// Bytes of a push.
    pub fn pushed_bytes(&self) -> usize {
        self.pushes.first().map_or(0, |push| push.bytes_of(self.length))
    }

    /// Reads its first values, before anything else is done with it.
    pub fn receive_weights(&self, input: &mut impl Read) -> Result<()> {
        Ok(self.weights.receive(0..self.length, input)?)
    }

    /// Reads what a worker pushes, who pushes nothing more to it before it has got the weights back.
    pub fn receive_push(&self, pusher: usize, input: &mut impl Read) -> Result<()> {
        Ok(self.pushes[pusher].receive(0..self.length, input)?)
    }

    /// Counts a worker's push of this round; how many are there.
    pub fn count(&self, pusher: usize) -> usize {
        let mut own = self.own();
        own.is_there[pusher] = true;
        own.is_there.iter().filter(|is_there| **is_there).count()
    }

    /// Updates by others since this worker got the weights.
    pub fn staleness(&self, pusher: usize) -> u64 {
        let own = self.own();
        own.updates - own.pulled[pusher]
    }

    /// This worker gets the weights as they are now.
    pub fn pulled(&self, pusher: usize) {
        let own = &mut *self.own();
        own.pulled[pusher] = own.updates;
    }

    /// Sums the pushes of these workers in their order, updates by the sum, and begins the next round; the weights after it.
    /// Without a step they become the sum.
    pub fn update(&self, pushers: Range<usize>, step: Option<SgdStep>) -> Result<HostArray> {
        let own = &mut *self.own();
        let mut pushes = self.pushes[pushers].iter().map(HostArray::tensor);
        let Some(first) = pushes.next() else { return self.snapshot() };
        own.sum.f_copy_(first)?;
        for push in pushes {
            let _ = own.sum.f_add_(push)?;
        }
        match step {
            Some(step) => shim::sgd(self.weights.tensor(), &own.sum, &own.momenta, step, None)?,
            None => self.weights.tensor().shallow_clone().f_copy_(&own.sum).map(drop)?,
        }
        own.updates += 1;
        own.is_there.fill(false);
        self.snapshot()
    }

    /// Its weights now.
    pub fn snapshot(&self) -> Result<HostArray> {
        let mut copy = Tensor::f_empty([self.length as i64], (Kind::Float, Device::Cpu))?;
        copy.f_copy_(self.weights.tensor())?;
        HostArray::of(copy)
    }

    fn own(&self) -> std::sync::MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(part: &HeldPart, pusher: usize, values: [f32; 2]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        part.receive_push(pusher, &mut &bytes[..]).expect("as many");
    }

    const STEP: Option<SgdStep> = Some(SgdStep { learning_rate: 0.5, momentum: 0.0, weight_decay: 0.0 });

    fn values(array: HostArray) -> Vec<f32> {
        Vec::try_from(array.tensor()).expect("fp32")
    }

    #[test]
    fn a_round_is_whole_when_all_have_pushed() {
        let part = HeldPart::new(2, Kind::Float, 2).expect("memory");
        pushed(&part, 1, [1.0, 2.0]);
        assert_eq!(part.count(1), 1);
        pushed(&part, 0, [3.0, -2.0]);
        assert_eq!(part.count(0), 2);
        assert_eq!(values(part.update(0..2, STEP).expect("an update")), [-2.0, 0.0]);
        assert_eq!(part.count(1), 1, "the next round");
        pushed(&part, 0, [3.0, 8.0]);
        assert_eq!(values(part.update(0..2, None).expect("an assignment")), [4.0, 10.0]);
    }

    #[test]
    fn staleness_counts_the_updates_of_others() {
        let part = HeldPart::new(2, Kind::BFloat16, 2).expect("memory");
        assert_eq!((part.pushed_bytes(), part.weight_bytes()), (4, 8));
        for pusher in [1, 1, 0] {
            part.receive_push(pusher, &mut &[0; 4][..]).expect("as many");
            let stale = part.staleness(pusher);
            assert_eq!(stale, if pusher == 0 { 2 } else { 0 });
            part.update(pusher..pusher + 1, STEP).expect("an update");
            part.pulled(pusher);
        }
        assert_eq!((part.staleness(0), part.staleness(1)), (0, 1));
    }
}
