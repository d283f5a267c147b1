//! A shard of the weights on a server: weights, the optimizer's states, the workers' pushes and the number of updates.
//! There are no weights and states if workers run the update.

use std::io::Read;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Error, Result};
use ringmark_core::benchmark::strategy::server_memory;
use ringmark_core::dimension::Bytes;
use tch::{Device, Kind, Tensor};

use crate::exchange::kv_store::formats::{AnswerFormat, Formats, PushFormat};
use crate::exchange::memory;
use crate::exchange::optimizer::UpdateArrays;
use crate::exchange::request::UpdateStep;
use crate::ffi::torch::host_array::{HostArray, bytes, bytes_mut, floats, floats_mut};
use crate::ffi::torch::update::Adjustment;
use crate::host::facts;

/// A shard of the weights. Shared by the readers, each of which writes its own worker's push, and the threads that
/// schedule and update.
pub struct ParameterShard {
    length: usize,
    formats: Formats,
    /// Empty if answers are sums.
    weights: HostArray,
    /// One array for each worker.
    pushes: Vec<HostArray>,
    /// Locked by one thread for a whole update.
    state: Mutex<ShardState>,
}

struct ShardState {
    /// States of the optimizer.
    states: Vec<HostArray>,
    sum: HostArray,
    /// True for each worker that has pushed in this round.
    has_pushed: Vec<bool>,
    /// Number of updates, and its value when each worker last received the weights.
    updates: u64,
    pulled_at: Vec<u64>,
}

impl ParameterShard {
    pub fn new(length: usize, formats: Formats, pushers: usize) -> Result<ParameterShard> {
        let held = if formats.answer.holds_weights() { length } else { 0 };
        let zeros = |length| HostArray::zeros(length, Kind::Float);
        Ok(ParameterShard {
            length,
            formats,
            weights: zeros(held)?,
            pushes: (0..pushers).map(|_| formats.push.allocate(length)).collect::<Result<_>>()?,
            state: Mutex::new(ShardState {
                states: formats.states.iter().map(|_| zeros(length)).collect::<Result<_>>()?,
                sum: zeros(length)?,
                has_pushed: vec![false; pushers],
                updates: 0,
                pulled_at: vec![0; pushers],
            }),
        })
    }

    /// Returns the minimum memory of a shard in bytes.
    pub fn needed_bytes(length: usize, Formats { push, answer, states }: Formats, pushers: usize) -> u64 {
        let pushes = Bytes((pushers * push.bytes(length)) as u64);
        match answer {
            AnswerFormat::Weights => server_memory(length as u64, states.len(), pushes).0,
            AnswerFormat::Sums(_) => (length * size_of::<f32>() + answer.bytes(length)) as u64 + pushes.0,
        }
    }

    pub fn answer_bytes(&self) -> usize {
        self.formats.answer.bytes(self.length)
    }

    pub fn pushed_bytes(&self) -> usize {
        self.pushes.first().map_or(0, |push| push.bytes_of(push.tensor().numel()))
    }

    /// Reads the initial weights, before any other use of the shard.
    pub fn receive_weights(&self, input: &mut impl Read) -> Result<()> {
        Ok(self.weights.receive(0..self.length, input)?)
    }

    /// Reads a push. The worker sends no other push to this shard before the answer.
    pub fn receive_push(&self, pusher: usize, input: &mut impl Read) -> Result<()> {
        let push = &self.pushes[pusher];
        Ok(push.receive(0..push.tensor().numel(), input)?)
    }

    /// Returns true if the worker has pushed in this round. Asynchronous updates have no rounds.
    pub fn has_pushed(&self, pusher: usize) -> bool {
        self.state().has_pushed[pusher]
    }

    /// Counts a worker's push of this round and returns the number of pushes.
    pub fn count(&self, pusher: usize) -> usize {
        let mut state = self.state();
        state.has_pushed[pusher] = true;
        state.has_pushed.iter().filter(|has_pushed| **has_pushed).count()
    }

    /// Sums the pushes of `pushers` in their order, applies the update and begins the next round. Returns the answer
    /// and its staleness: the number of updates by other workers since the oldest answer to one of `pushers`. Without a
    /// step the weights become the sum.
    pub fn update(&self, pushers: Range<usize>, step: Option<UpdateStep>) -> Result<(HostArray, u64)> {
        let state = &mut *self.state();
        let answer = self.compute_update(state, pushers.clone(), step)?;
        let last = state.pulled_at[pushers.clone()].iter().copied().min().unwrap_or(state.updates);
        let staleness = state.updates - last;
        state.updates += 1;
        state.pulled_at[pushers].fill(state.updates);
        Ok((answer, staleness))
    }

    fn compute_update(
        &self,
        state: &mut ShardState,
        pushers: Range<usize>,
        step: Option<UpdateStep>,
    ) -> Result<HostArray> {
        let pushes = &self.pushes[pushers];
        let sum = state.sum.tensor();
        match self.formats.push {
            PushFormat::Values(_) => run_on_cores(self.length, |values| {
                let mut sum = narrow(&state.sum, &values)?;
                let mut pushes = pushes.iter().map(|push| narrow(push, &values));
                pushes.next().map_or(Ok(()), |first| sum.f_copy_(&first?).map_err(Error::from))?;
                for push in pushes {
                    let _ = sum.f_add_(&push?)?;
                }
                Ok(())
            })?,
            PushFormat::Codes(codec) => {
                let codes = pushes.iter().map(|push| bytes(push.tensor(), &(0..push.tensor().numel())));
                let codes = codes.collect::<Result<Vec<_>>>()?;
                codec.sum(&codes, floats_mut(&mut sum.shallow_clone(), &(0..self.length))?);
            }
        }
        state.has_pushed.fill(false);
        if let AnswerFormat::Sums(sums) = self.formats.answer {
            let mut packed =
                Tensor::f_empty([(self.answer_bytes() / size_of::<f32>()) as i64], (Kind::Float, Device::Cpu))?;
            let words = 0..packed.numel();
            sums.pack(floats(sum, &(0..self.length))?, bytes_mut(&mut packed, &words)?);
            return HostArray::new(packed);
        }
        let answer = HostArray::new(self.weights.tensor().f_empty_like()?)?;
        run_on_cores(self.length, |values| {
            let (weights, gradients) = (narrow(&self.weights, &values)?, narrow(&state.sum, &values)?);
            let states = state.states.iter().map(|array| narrow(array, &values)).collect::<Result<_>>()?;
            let updates = Tensor::from_slice(&[(state.updates + 1) as f32]);
            let arrays = UpdateArrays { weights, gradients, states };
            arrays.update(step, &updates, Adjustment::default())?;
            Ok(narrow(&answer, &values)?.f_copy_(&arrays.weights).map(drop)?)
        })?;
        Ok(answer)
    }

    pub fn snapshot(&self) -> Result<HostArray> {
        let mut copy = self.weights.tensor().f_empty_like()?;
        copy.f_copy_(self.weights.tensor())?;
        HostArray::new(copy)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ShardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Values of one core in an update. The shards of an asynchronous server are whole arrays.
const MIN_ELEMENTS_PER_CORE: usize = 1 << 20;

/// Calls `body` with all values, on several cores if there are many. Shares are multiples of a vector register, because
/// the end of a range is rounded differently.
fn run_on_cores(length: usize, body: impl Fn(Range<usize>) -> Result<()> + Sync) -> Result<()> {
    // Most shards are short, and counting the cores reads files.
    if length < 2 * MIN_ELEMENTS_PER_CORE {
        return body(0..length);
    }
    let shares = (length / MIN_ELEMENTS_PER_CORE).min(facts::cores() as usize);
    let share = length.div_ceil(shares).next_multiple_of(MIN_ELEMENTS_PER_CORE);
    thread::scope(|scope| {
        let start = |first: usize| {
            let (body, values) = (&body, first..length.min(first + share));
            scope.spawn(move || body(values))
        };
        let threads: Vec<_> = (0..length).step_by(share).map(start).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

fn narrow(array: &HostArray, values: &Range<usize>) -> Result<Tensor> {
    memory::narrow(array.tensor(), values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::compression::Codec;
    use crate::exchange::compression::packed_sums::PackedSums;
    use crate::exchange::compression::two_bit::TwoBit;
    use crate::ffi::torch::update::{AdamStep, SgdStep};

    fn formats(push: PushFormat, answer: AnswerFormat) -> Formats {
        Formats { push, answer, states: &[] }
    }

    fn pushed(part: &ParameterShard, pusher: usize, values: [f32; 2]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        part.receive_push(pusher, &mut &bytes[..]).expect("as many");
    }

    const SGD: SgdStep = SgdStep { learning_rate: 0.5, momentum: 0.0, is_nesterov: false, weight_decay: 0.0 };
    const STEP: Option<UpdateStep> = Some(UpdateStep::Sgd(SGD));

    fn values(array: HostArray) -> Vec<f32> {
        Vec::try_from(array.tensor()).expect("fp32")
    }

    #[test]
    fn round_completes_when_all_have_pushed() {
        let part =
            ParameterShard::new(2, formats(PushFormat::Values(Kind::Float), AnswerFormat::Weights), 2).expect("memory");
        pushed(&part, 1, [1.0, 2.0]);
        assert_eq!(part.count(1), 1);
        pushed(&part, 0, [3.0, -2.0]);
        assert_eq!(part.count(0), 2);
        let updated = |pushers, step| values(part.update(pushers, step).expect("an update").0);
        assert_eq!(updated(0..2, STEP), [-2.0, 0.0]);
        assert_eq!(part.count(1), 1, "the next round");
        pushed(&part, 0, [3.0, 8.0]);
        assert_eq!(updated(0..2, None), [4.0, 10.0], "an assignment");
    }

    #[test]
    fn result_does_not_depend_on_core_count() {
        let length = 2 * MIN_ELEMENTS_PER_CORE + 7;
        let sgd = SgdStep { learning_rate: 0.1, momentum: 0.9, is_nesterov: true, weight_decay: 1e-4 };
        let (betas, epsilon) = ([0.9, 0.999], 1e-8);
        let adam = AdamStep { learning_rate: 0.1, betas, epsilon, weight_decay: 1e-4, is_decoupled: true };
        let zeros = || Tensor::zeros([length as i64], (Kind::Float, Device::Cpu));
        tch::manual_seed(1);
        for (step, names) in
            [(UpdateStep::Sgd(sgd), &["momenta"][..]), (UpdateStep::Adam(adam), &["first_moments", "second_moments"])]
        {
            let formats = Formats { states: names, ..formats(PushFormat::Values(Kind::Float), AnswerFormat::Weights) };
            let part = ParameterShard::new(length, formats, 2).expect("memory");
            let random = || zeros().normal_(0.0, 1.0);
            let states = names.iter().map(|_| zeros()).collect();
            let whole = UpdateArrays { weights: random(), gradients: zeros(), states };
            part.weights.tensor().shallow_clone().copy_(&whole.weights);
            for round in 1..=2 {
                let pushed = [random(), random()];
                for (push, values) in part.pushes.iter().zip(&pushed) {
                    push.tensor().shallow_clone().copy_(values);
                }
                let (answer, _) = part.update(0..2, Some(step)).expect("an update");
                whole.gradients.shallow_clone().copy_(&(&pushed[0] + &pushed[1]));
                whole
                    .update(Some(step), &Tensor::from_slice(&[round as f32]), Adjustment::default())
                    .expect("the same");
                assert!(answer.tensor().equal(&whole.weights), "{step:?}, round {round}");
            }
            part.update(0..1, None).expect("an assignment");
            assert!(part.weights.tensor().equal(part.pushes[0].tensor()));
        }
    }

    #[test]
    fn codes_are_decoded_and_added_in_fp32() {
        let codec = Codec::TwoBit(TwoBit { threshold: 0.25 });
        let formats = formats(PushFormat::Codes(codec), AnswerFormat::Weights);
        let part = ParameterShard::new(17, formats, 3).expect("memory");
        assert_eq!((part.pushed_bytes(), part.answer_bytes()), (8, 68), "a word for 16 values");
        assert_eq!(ParameterShard::needed_bytes(17, formats, 3), 3 * 68 + 3 * 8);
        assert_eq!(ParameterShard::needed_bytes(17, Formats { states: &["momenta"], ..formats }, 3), 4 * 68 + 3 * 8);
        // The sum of three workers' codes; the last value is in a separate word.
        for (pusher, [first, last]) in [[0.5, -0.25], [0.25, -1.0], [-0.25, 0.125]].into_iter().enumerate() {
            let (mut gradient, mut code) = ([0.0; 17], [0; 8]);
            (gradient[0], gradient[16]) = (first, last);
            codec.encode(&mut [0.0; 17], &gradient, &mut code).expect("finite");
            part.receive_push(pusher, &mut &code[..]).expect("as many");
        }
        let weights = values(part.update(0..3, STEP).expect("an update").0);
        assert_eq!((weights[0], weights[16]), (-0.5 * 0.25, 0.5 * 0.5));
        assert!(weights[1..16].iter().all(|weight| *weight == 0.0), "{weights:?}");
        // The next sum starts from zero.
        let weights = values(part.update(2..3, STEP).expect("an update").0);
        assert_eq!((weights[0], weights[16]), (0.0, 0.25));
    }

    #[test]
    fn answer_is_sum_of_codes_if_workers_update() {
        let (codec, packed) = (Codec::TwoBit(TwoBit { threshold: 0.25 }), PackedSums::new(0.25, 3));
        let formats = formats(PushFormat::Codes(codec.counting()), AnswerFormat::Sums(packed));
        let part = ParameterShard::new(30, formats, 3).expect("memory");
        assert_eq!((part.pushed_bytes(), part.answer_bytes()), (8, 12), "11 digits of base 7 in a word");
        assert_eq!(ParameterShard::needed_bytes(30, formats, 3), 4 * 30 + 12 + 3 * 8, "sums, and no weights");
        for round in 0..2 {
            for pusher in 0..3 {
                let mut gradient = [0.0; 30];
                gradient[0] = 0.25;
                gradient[29] = if pusher == round { 0.0 } else { -1.0 };
                let mut code = [0; 8];
                codec.encode(&mut [0.0; 30], &gradient, &mut code).expect("finite");
                part.receive_push(pusher, &mut &code[..]).expect("as many");
                assert_eq!(part.count(pusher), pusher + 1);
            }
            let (answer, _) = part.update(0..3, STEP).expect("sums");
            let mut sums = [f32::NAN; 30];
            packed.unpack(bytes(answer.tensor(), &(0..3)).expect("words"), &mut sums);
            assert_eq!((sums[0], sums[29]), (0.75, -0.5), "nothing of the round before");
            assert!(sums[1..29].iter().all(|sum| *sum == 0.0), "{sums:?}");
        }
    }

    #[test]
    fn staleness_counts_updates_by_others() {
        let part = ParameterShard::new(2, formats(PushFormat::Values(Kind::BFloat16), AnswerFormat::Weights), 2)
            .expect("memory");
        assert_eq!((part.pushed_bytes(), part.answer_bytes()), (4, 8));
        for pusher in [1, 1, 0] {
            part.receive_push(pusher, &mut &[0; 4][..]).expect("as many");
            let (_, staleness) = part.update(pusher..pusher + 1, STEP).expect("an update");
            assert_eq!(staleness, if pusher == 0 { 2 } else { 0 });
        }
        let (_, staleness) = part.update(0..2, STEP).expect("an update");
        assert_eq!(staleness, 1, "of the stalest");
    }
}
