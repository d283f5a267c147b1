//! How the ranks' gradients become one update of the parameters. A strategy lies behind [`GradientExchange`]; the step
//! knows nothing but that. Knows nothing of models; shapes are static, so there is no negotiation and no coordinator.
//!
//! [`all_reduce`] is the default: every rank gets the sum and does the same update. In [`kv_store`] an owner or a server updates,
//! and the weights come back. The [`backend`]s do the sums between ranks. With a
//! [`codec`] they move codes, and every rank adds up what these say.

pub mod all_reduce;
pub mod backend;
pub mod bucket;
pub mod codec;
pub mod coded;
mod coded_sums;
pub mod collective;
pub mod kv_store;
pub mod loss_scaler;
pub mod memory;
pub mod optimizer;
pub mod reducer;
pub mod request;
pub mod strategy;

use std::ops::Range;

use anyhow::Result;
use ringmark_record::benchmark::exchange::{ExchangeConfig, Wire};
use ringmark_record::benchmark::kv_store::KvStoreUse;
use ringmark_record::dimension::units::Bytes;
use ringmark_record::host::heartbeat::Stage;
use tch::Tensor;

use crate::exchange::coded::Coded;
use crate::exchange::loss_scaler::LossScaler;
use crate::exchange::reducer::{GradientReducer, ReadyFrom};
use crate::ffi::shim::GradientObserver;
use crate::job::session::Session;
use crate::measure::step_timer::InBackward;

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

/// Brings the ranks' gradients together and updates the parameters with them, in each step: [`begin`], backward, whose
/// hooks hand the gradients over one by one as they are ready, [`finish`], [`update`].
///
/// What of the exchange is done when is the strategy's choice: sums while backward goes on and the same update on every
/// rank; a sum to the owner of a bucket, whose update sends the weights to the others; gradients to a server, whose
/// weights come back.
///
/// [`begin`]: GradientExchange::begin
/// [`finish`]: GradientExchange::finish
/// [`update`]: GradientExchange::update
pub trait GradientExchange {
    /// What takes the gradients.
    fn reducer(&self) -> &'static GradientReducer;

    /// Before backward.
    fn begin(&mut self) {
        self.reducer().begin();
    }

    /// The caller has put this gradient, counted in the order of backward, on the [wire](ExchangeArrays::wire):
    /// [`ReadyFrom::Caller`].
    fn gradient_ready(&mut self, parameter: usize) {
        self.reducer().gradient_ready(parameter);
    }

    /// Where the values lie.
    fn arrays(&self) -> ExchangeArrays;

    /// After backward, before [`finish`](GradientExchange::finish): what the exchange did in the meantime.
    fn in_backward(&mut self) -> InBackward {
        self.reducer().in_backward()
    }

    /// Announces that the work of the next step is captured, or that the capture is over: nothing is asked of the device
    /// and nothing of the step is timed.
    fn set_capturing(&mut self, is_capturing: bool) {
        self.reducer().set_capturing(is_capturing);
    }

    /// Stands in for [`begin`](GradientExchange::begin), backward and [`finish`](GradientExchange::finish) if the step's
    /// backward was a replay, during which no hook runs.
    fn replayed(&mut self) -> InBackward {
        self.reducer().replayed()
    }

    /// Orders what [`update`](GradientExchange::update) needs before it: on the CPU it is there when this returns, on
    /// CUDA the stream waits for it and the host does not. Where `next`, the number of the update that follows, is known, a
    /// strategy may begin with it while it waits. Fails with what failed inside backward.
    fn finish(&mut self, _next: Option<u32>) -> Result<()> {
        self.reducer().finish()
    }

    /// Update number `update`, from 1; skipped where the loss scaler found an overflow.
    fn update(&mut self, update: u32) -> Result<()>;

    /// Returns true if [`update`](GradientExchange::update) leaves the rounded copy of the weights current.
    fn rounds_weights(&self) -> bool {
        false
    }

    /// What the loss is multiplied by before backward, where that is not 1.
    fn loss_scaler(&self) -> Option<&LossScaler> {
        None
    }

    /// Looks for errors of what is under way, without waiting; what is waited for.
    fn check(&self) -> Result<Stage> {
        self.reducer().check()
    }

    /// What exchanges, as in the record.
    fn name(&self) -> &'static str;

    /// Type in which the gradients of several ranks are added; `None` where nothing is exchanged.
    fn sum_dtype(&self) -> Option<Wire>;

    /// Number of ranks whose gradients come together; 1 where nothing is exchanged.
    fn summed_ranks(&self) -> u32;

    /// Sizes of the buckets as fp32, in the order of backward.
    fn bucket_sizes(&self) -> Vec<Bytes> {
        self.reducer().bucket_sizes()
    }

    /// Every bucket's elements, in the order of backward.
    fn buckets(&self) -> Vec<Range<usize>> {
        self.reducer().buckets()
    }

    /// Whether a bucket is sent in chunks, so that their size matters.
    fn has_chunks(&self) -> bool {
        self.reducer().has_chunks()
    }

    /// Whether the exchange goes on beside backward, so that the length of its last bucket matters.
    fn is_asynchronous(&self) -> bool {
        self.reducer().is_asynchronous()
    }

    /// What a code did, where gradients are exchanged by one.
    fn coded(&self) -> Option<Coded> {
        self.reducer().coded()
    }

    /// Bytes that this rank sends and receives in a step by what the backend is asked to do, as
    /// [`Collective::bytes`](collective::Collective::bytes) counts them; `None` where connections count them.
    fn asked_bytes(&self) -> Option<[u64; 2]>;

    /// Whether [`update`](GradientExchange::update) leaves every rank with weights that hold all of this step, and only that.
    fn is_in_step(&self) -> bool {
        true
    }

    /// Takes bucket, tail and chunk size of `sizes` from the next step on, where they are free to change; no step is under
    /// way.
    fn set_sizes(&mut self, _sizes: &ExchangeConfig) -> Result<()> {
        Ok(())
    }

    /// What an update follows from beside weights and gradients, each tensor by name: momenta, the loss scale. `None` where more
    /// than that is kept, or on other ranks too.
    fn state(&self) -> Option<Vec<(&'static str, Tensor)>> {
        None
    }

    /// After the last step: brings weights of one moment to every rank, where ranks may have others, and says what was done
    /// where; all ranks call it together.
    fn end(&mut self, _session: &Session) -> Result<Option<KvStoreUse>> {
        Ok(None)
    }

    /// When the ranks' results have come together: this rank needs nothing more of the others.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }
}
