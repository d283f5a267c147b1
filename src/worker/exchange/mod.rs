//! How the ranks' gradients become one update of the parameters. A strategy lies behind [`GradientExchange`]; the step
//! knows nothing but that. Knows nothing of models; shapes are static, so there is no negotiation and no coordinator.
//!
//! [`all_reduce`] is the default: every rank gets the sum and does the same update. In [`kv_store`] an owner or a server updates,
//! and the weights come back. The [`backend`]s do the sums between ranks. With
//! [`compression`] they move codes, and every rank adds up what these say.

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
pub mod strategy;

use anyhow::Result;
use ringmark_core::benchmark::exchange::ExchangeConfig;
use ringmark_core::benchmark::kv_store::KvStoreUse;
use ringmark_core::dimension::{BackendName, Wire};
use tch::Tensor;

use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::reducer::{GradientReducer, ReadyFrom};
use crate::job::session::Session;

/// What is trained, as an exchange sees it.
pub struct Parameters {
    /// Every weight in one flat fp32 tensor, in the order in which backward finishes their gradients.
    pub weights: Tensor,
    /// Copy of them in the type of convolutions and products, if that is not fp32.
    pub rounded: Option<Tensor>,
    /// The model's own tensors in that order: leaves of autograd, one after the other in flat memory of their own type.
    pub tensors: Vec<Tensor>,
    /// Who says that a gradient is ready.
    pub ready_from: ReadyFrom,
}

/// Where a strategy's values lie, for one who hands over gradients without backward.
pub struct ExchangeArrays {
    /// Every gradient one after the other, in the wire's type.
    pub wire: Tensor,
    /// What the update leaves, fp32: the weights, or the sum where there is no optimizer.
    pub result: Tensor,
    /// Whether what is summed lies where the sums go.
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
    pub is_in_step: bool,
}

/// Sums the ranks' gradients and updates the parameters in each step: [`GradientReducer::begin`], then backward, whose hooks
/// hand gradients to the [reducer](GradientExchange::reducer) as they become ready, then [`finish`] and [`update`].
///
/// The strategy decides what runs when: sums beside backward and the same update on every rank; a sum to the owner of a
/// bucket, which sends its updated weights to the others; gradients to a server, which sends weights back.
///
/// [`finish`]: GradientExchange::finish
/// [`update`]: GradientExchange::update
pub trait GradientExchange {
    /// Takes the gradients of each step.
    fn reducer(&self) -> &'static GradientReducer;

    /// Describes the strategy.
    fn facts(&self) -> ExchangeFacts;

    /// Returns where the values lie.
    fn arrays(&self) -> ExchangeArrays;

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

    /// Returns the scaler of the loss, if its factor is not 1.
    fn loss_scaler(&self) -> Option<&LossScaler> {
        None
    }

    /// Returns the bytes that this rank sends and receives in a step, by the operations that the backend runs, counted as in
    /// [`Collective::bytes`](collective::Collective::bytes); `None` if connections count them.
    fn asked_bytes(&self) -> Option<[u64; 2]>;

    /// Uses bucket, tail and chunk size of `sizes` from the next step on, if they can change; no step is under way.
    fn set_sizes(&mut self, _sizes: &ExchangeConfig) -> Result<()> {
        Ok(())
    }

    /// Returns what determines an update beside weights and gradients, by name: momenta, the loss scale. `None` if more state
    /// is kept, or some on other ranks.
    fn state(&self) -> Option<Vec<(&'static str, Tensor)>> {
        None
    }

    /// After the last step: brings the weights of one moment to every rank and reports the use of servers or owners. All ranks
    /// call it together.
    fn end(&mut self, _session: &Session) -> Result<Option<KvStoreUse>> {
        Ok(None)
    }

    /// Disconnects, once the ranks' results are gathered.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }
}
