//! Exchange of gradients: turns the gradients of all ranks into one update of the parameters. The training step uses a
//! strategy only through [`GradientExchange`]. Strategies do not depend on models; shapes are static, so there is no
//! negotiation and no coordinator.
//!
//! [`all_reduce`] is the default: every rank gets the sum and applies the same update. In [`strategy`] an owner or a
//! server updates and sends the weights back. The [`backend`]s sum between ranks. With [`compression`] they transfer
//! codes, and every rank decodes and sums them. In [`shards`] no rank holds all gradients, or all weights.

pub mod all_reduce;
pub mod backend;
pub mod bucket;
pub mod collective;
mod compressed_all_reduce;
pub mod compression;
pub mod kv_store;
pub mod loss_scaler;
pub mod memory;
pub mod optimizer;
pub mod reducer;
pub mod request;
mod shards;
pub mod strategy;

use std::ops::Range;

use anyhow::Result;
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::benchmark::strategy::StrategyUse;
use ringmark_core::dimension::{BackendName, Bytes, Wire};
use tch::Tensor;

use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::reducer::{GradientReducer, ReadyFrom};
use crate::ffi::torch::shim::WeightProvider;
use crate::job::session::Session;
use crate::job::world::World;
use crate::measure::step_timer::WeightWait;

/// Function that takes a range of the flat weights, and their values.
pub type WeightTaker<'a> = dyn FnMut(&Range<usize>, &Tensor) -> Result<()> + 'a;

/// Function that passes all initial weights to a taker, range after range, from the last to the first.
pub type InitialWeights<'a> = dyn Fn(&mut WeightTaker) -> Result<()> + 'a;

/// Trained parameters.
pub struct Parameters<'a> {
    /// Every weight in one flat fp32 tensor, in the order in which backward finishes their gradients; unused
    /// with `initial`.
    pub weights: Tensor,
    /// Initial weights for a strategy whose ranks hold parts of them. All ranks call it together.
    pub initial: Option<&'a InitialWeights<'a>>,
    /// Copy of them in the type of convolutions and products, if that is not fp32.
    pub rounded: Option<Tensor>,
    /// Tensors of the model in that order: leaves of autograd, contiguous in flat memory of their type.
    pub tensors: Vec<Tensor>,
    /// Source of the notification that a gradient is ready.
    pub ready_from: ReadyFrom,
    /// Unit of the network that contains each tensor: those of one unit are consecutive and are needed together.
    pub units: Vec<usize>,
    /// Unit whose weights are needed from the start of forward to the end of backward.
    pub kept_unit: Option<usize>,
}

/// Named tensors that determine the next update.
pub type UpdateState = Vec<(&'static str, Tensor)>;

/// Arrays of a strategy, for callers that pass gradients without backward.
pub struct ExchangeArrays {
    /// All gradients in one tensor, in the wire's type.
    pub wire: Tensor,
    /// Result of the update, fp32: the weights, or the sum if there is no optimizer.
    pub result: Tensor,
    /// True if input and sums share memory.
    pub in_place: bool,
}

/// Properties of a strategy, for the record and for decisions of callers.
#[derive(Debug, Clone, Copy)]
pub struct ExchangeFacts {
    /// Name of the backend in the record.
    pub backend: BackendName,
    /// Type in which the gradients of several ranks are added; `None` if nothing is exchanged.
    pub sum_dtype: Option<Wire>,
    /// Ranks whose gradients are summed; 1 if nothing is exchanged.
    pub summed_ranks: u32,
    /// True if an update leaves every rank with weights that contain all of this step, and nothing else.
    pub is_synchronous: bool,
}

/// Strategy that sums the ranks' gradients and updates the parameters in each step: [`GradientReducer::begin`], then
/// backward, whose hooks pass gradients to the [reducer](GradientExchange::reducer) as they become ready, then
/// [`finish`] and [`update`].
///
/// The strategy determines the order of work: sums that overlap with backward and the same update on every rank; a sum
/// to the owner of a bucket, which sends its updated weights to the others; gradients to a server, which sends weights
/// back.
///
/// [`finish`]: GradientExchange::finish
/// [`update`]: GradientExchange::update
pub trait GradientExchange {
    /// Returns the reducer, which takes the gradients of each step.
    fn reducer(&self) -> &'static GradientReducer;

    fn facts(&self) -> ExchangeFacts;

    /// Returns the arrays that hold the values; `None` if no rank holds all of them.
    fn arrays(&self) -> Option<ExchangeArrays> {
        None
    }

    /// Orders the sums before [`update`](GradientExchange::update): on the CPU they are complete on return, on CUDA the
    /// stream waits for them and the host does not. A strategy may begin the update `next`, if given, while it waits.
    ///
    /// # Errors
    ///
    /// Fails with the first failure inside backward.
    fn finish(&mut self, _next: Option<u32>) -> Result<()> {
        self.reducer().finish()
    }

    /// Runs update number `update`, from 1, unless the loss scaler found an overflow.
    fn update(&mut self, update: u32) -> Result<()>;

    /// Returns true if [`update`](GradientExchange::update) leaves the rounded copy of the weights current.
    fn rounds_weights(&self) -> bool {
        false
    }

    /// Returns the provider of the network's weights if the ranks hold parts of them. The caller must free the weights
    /// that it passed to the strategy.
    fn weight_provider(&self) -> Option<&'static dyn WeightProvider> {
        None
    }

    /// Returns the waits for weights since the last call.
    fn take_weight_waits(&mut self) -> Vec<WeightWait> {
        Vec::new()
    }

    /// Calls `visit` on every rank with all weights, range after range of the flat weights, if the ranks hold parts of them;
    /// returns false otherwise. All ranks call this together, between two steps.
    fn visit_weights(&mut self, _visit: &mut WeightTaker) -> Result<bool> {
        Ok(false)
    }

    /// Returns the scaler of the loss, if its factor is not 1.
    fn loss_scaler(&self) -> Option<&LossScaler> {
        None
    }

    /// Returns the bytes that this rank sends and receives in a step, from the operations that the backend runs,
    /// counted as in [`Collective::bytes`](collective::Collective::bytes); `None` if connections count them.
    fn requested_bytes(&self) -> Option<[u64; 2]>;

    /// Gathers what each rank owns, and the bytes that it sends and receives. All ranks call this together.
    fn use_of_owners(&self, owned: Bytes, world: &World) -> StrategyUse {
        let [sent, received] = self.requested_bytes().unwrap_or_default();
        let by_rank = world.gather(&[owned.0, sent, received].map(|bytes| bytes as f64));
        let [owned, sent_by_rank, received_by_rank] =
            [0, 1, 2].map(|number| by_rank.iter().map(|rank| Bytes(rank[number] as u64)).collect());
        StrategyUse { owned, sent_by_rank, received_by_rank, ..StrategyUse::default() }
    }

    /// Uses bucket, tail and chunk size of `sizes` from the next step on, if they can change; no step is under way.
    fn set_sizes(&mut self, _sizes: &ExchangeConfig) -> Result<()> {
        Ok(())
    }

    /// Returns the state that determines an update in addition to weights and gradients, by name: momenta, the loss
    /// scale, those of all ranks. `None` if there is more state, or state on servers. All ranks call this together.
    fn state(&mut self) -> Result<Option<UpdateState>> {
        Ok(None)
    }

    /// Continues with `state`, from [`state`](GradientExchange::state) and the same on all ranks.
    fn set_state(&mut self, _state: &UpdateState) -> Result<()> {
        Ok(())
    }

    /// Finishes after the last step: brings the weights of one moment to every rank and reports the use of servers or
    /// owners. All ranks call this together.
    fn end(&mut self, _session: &Session) -> Result<Option<StrategyUse>> {
        Ok(None)
    }

    /// Disconnects, once the ranks' results are gathered.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }
}
