//! Units of a network: consecutive layers whose weights are needed together. A strategy that divides the weights among
//! the ranks provides those of a unit while it computes.

use std::sync::{Arc, OnceLock};

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::norm::Fork;
use crate::ffi::torch::shim::{self, WeightProvider};

/// Provider of the weights of all units; empty if every rank holds all weights.
pub type Provider = Arc<OnceLock<&'static &'static dyn WeightProvider>>;

pub struct Unit {
    /// Number in the order of forward.
    pub number: usize,
    pub provider: Provider,
}

impl Unit {
    /// Runs `body`, the unit's forward pass. Backward enters the unit only through the functions that computed the
    /// output.
    pub fn run<T: Output>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(provider) = self.provider.get() else { return body() };
        provider.before_forward(self.number)?;
        let output = body()?;
        provider.after_forward(self.number);
        output.tensors().iter().try_for_each(|tensor| shim::observe_backward(tensor, self.number, provider))?;
        Ok(output)
    }
}

pub trait Output {
    fn tensors(&self) -> Vec<&Tensor>;
}

impl Output for Tensor {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![self]
    }
}

impl Output for Fork {
    fn tensors(&self) -> Vec<&Tensor> {
        vec![&self.first, &self.second]
    }
}
