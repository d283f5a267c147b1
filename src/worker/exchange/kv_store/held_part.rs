//! A part of the weights as a server holds it: weights, momenta, what each worker pushed, and how often it was updated.

use std::io::Read;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;

use anyhow::Result;
use ringmark_record::benchmark::kv_store::server_memory;
use ringmark_record::dimension::units::Bytes;
use tch::{Device, Kind, Tensor};

use crate::exchange::codec::Codec;
use crate::exchange::memory;
use crate::exchange::request::ExchangeRequest;
use crate::ffi::host_array::HostArray;
use crate::ffi::host_values::{bytes, floats_mut};
use crate::ffi::shim::{self, SgdStep};

/// In what form workers push gradients.
#[derive(Debug, Clone, Copy)]
pub enum PushForm {
    /// All of them, in this type.
    Values(Kind),
    /// Codes, each of one part.
    Codes(Codec),
}

impl PushForm {
    /// What `request` asks for.
    pub fn of(request: &ExchangeRequest) -> Result<PushForm> {
        let codec = Codec::new(request.compression, true)?;
        Ok(codec.map_or(PushForm::Values(memory::kind(request.exchange.wire)), PushForm::Codes))
    }

    /// Room for a push of so many gradients.
    fn room(&self, gradients: usize) -> Result<HostArray> {
        match self {
            PushForm::Values(wire) => HostArray::zeros(gradients, *wire),
            PushForm::Codes(codec) => HostArray::zeros(codec.code_bytes(gradients) / size_of::<f32>(), Kind::Float),
        }
    }

    /// Bytes of a push of so many gradients.
    fn bytes(&self, gradients: usize) -> usize {
        match self {
            PushForm::Values(wire) => gradients * wire.elt_size_in_bytes(),
            PushForm::Codes(codec) => codec.code_bytes(gradients),
        }
    }
}

/// Shared by the readers, each of which writes into its own worker's place, and the thread that updates.
pub struct HeldPart {
    length: usize,
    form: PushForm,
    weights: HostArray,
    /// Of each worker.
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
    /// Of `length` weights, for so many workers who push in this form.
    pub fn new(length: usize, form: PushForm, pushers: usize) -> Result<HeldPart> {
        let zeros = || Tensor::f_zeros([length as i64], (Kind::Float, Device::Cpu));
        Ok(HeldPart {
            length,
            form,
            weights: HostArray::zeros(length, Kind::Float)?,
            pushes: (0..pushers).map(|_| form.room(length)).collect::<Result<_>>()?,
            own: Mutex::new(Own {
                momenta: zeros()?,
                sum: zeros()?,
                is_there: vec![false; pushers],
                updates: 0,
                pulled: vec![0; pushers],
            }),
        })
    }

    /// Memory in bytes that one takes, at least.
    pub fn needed_bytes(length: usize, form: PushForm, pushers: usize) -> u64 {
        server_memory(length as u64, Bytes((pushers * form.bytes(length)) as u64)).0
    }

    /// Bytes of its weights on the wire.
    pub fn weight_bytes(&self) -> usize {
        self.weights.bytes_of(self.length)
    }

    /// Bytes of a push.
    pub fn pushed_bytes(&self) -> usize {
        self.pushes.first().map_or(0, |push| push.bytes_of(push.tensor().numel()))
    }

    /// Reads its first values, before anything else is done with it.
    pub fn receive_weights(&self, input: &mut impl Read) -> Result<()> {
        Ok(self.weights.receive(0..self.length, input)?)
    }

    /// Reads what a worker pushes, who pushes nothing more to it before it has got the weights back.
    pub fn receive_push(&self, pusher: usize, input: &mut impl Read) -> Result<()> {
        let push = &self.pushes[pusher];
        Ok(push.receive(0..push.tensor().numel(), input)?)
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
        match self.form {
            PushForm::Values(_) => {
                let Some(first) = pushes.next() else { return self.snapshot() };
                own.sum.f_copy_(first)?;
                for push in pushes {
                    let _ = own.sum.f_add_(push)?;
                }
            }
            PushForm::Codes(codec) => {
                let sum = floats_mut(&mut own.sum, &(0..self.length))?;
                sum.fill(0.0);
                for push in pushes {
                    codec.decode_and_add(bytes(push, &(0..push.numel()))?, sum);
                }
            }
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
    use crate::exchange::codec::two_bit::TwoBit;

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
        let part = HeldPart::new(2, PushForm::Values(Kind::Float), 2).expect("memory");
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
    fn codes_are_decoded_and_added_in_fp32() {
        let codec = Codec::TwoBit(TwoBit { threshold: 0.25 });
        let part = HeldPart::new(17, PushForm::Codes(codec), 3).expect("memory");
        assert_eq!((part.pushed_bytes(), part.weight_bytes()), (8, 68), "a word for 16 values");
        assert_eq!(HeldPart::needed_bytes(17, PushForm::Codes(codec), 3), 4 * 68 + 3 * 8);
        // The sum of what three workers' codes say; the last value has a word of its own.
        for (pusher, [first, last]) in [[0.5, -0.25], [0.25, -1.0], [-0.25, 0.125]].into_iter().enumerate() {
            let (mut gradient, mut code) = ([0.0; 17], [0; 8]);
            (gradient[0], gradient[16]) = (first, last);
            codec.encode(&mut [0.0; 17], &gradient, &mut code).expect("finite");
            part.receive_push(pusher, &mut &code[..]).expect("as many");
        }
        let weights = values(part.update(0..3, STEP).expect("an update"));
        assert_eq!((weights[0], weights[16]), (-0.5 * 0.25, 0.5 * 0.5));
        assert!(weights[1..16].iter().all(|weight| *weight == 0.0), "{weights:?}");
        // The next sum begins at zero.
        let weights = values(part.update(2..3, STEP).expect("an update"));
        assert_eq!((weights[0], weights[16]), (0.0, 0.25));
    }

    #[test]
    fn staleness_counts_the_updates_of_others() {
        let part = HeldPart::new(2, PushForm::Values(Kind::BFloat16), 2).expect("memory");
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
