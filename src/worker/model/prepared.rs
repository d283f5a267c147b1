//! A network ready to compute: its weights in flat memory, in the layout and the rounding of the run. What training and
//! inference have in common; not for what is done with the scores.

use std::path::Path;

use anyhow::Result;
use ringmark_core::benchmark::score::RectifiedConvolutions;
use ringmark_core::dimension::{Dtype, Layout, Model};
use tch::{Device, Tensor};

use crate::model::flat_parameters::FlatParameters;
use crate::model::layers;
use crate::model::named_tensors::NamedTensors;
use crate::model::network::{Mode, Network};
use crate::model::networks;
use crate::model::precision::Precision;
use crate::model::weights_file::{self, Beside};

/// What a network is made by.
pub struct ModelRequest<'a> {
    /// Which one.
    pub model: Model,
    /// Probability of dropout; the network's own without.
    pub dropout: Option<f64>,
    /// Of the weights.
    pub seed: i64,
    /// Weights to start from instead (safetensors).
    pub init: Option<&'a Path>,
    /// Precision.
    pub dtype: Dtype,
    /// Memory layout.
    pub layout: Layout,
}

/// The network.
pub struct PreparedModel {
    network: Box<dyn Network>,
    /// Its tensors by name.
    pub tensors: NamedTensors,
    /// Its parameters in flat memory.
    pub flat: FlatParameters,
    /// What the file that it starts from holds beside it.
    pub beside: Beside,
    precision: Precision,
}

impl PreparedModel {
    /// Makes it on `device`.
    pub fn new(request: &ModelRequest, device: Device) -> Result<PreparedModel> {
        tch::manual_seed(request.seed);
        let mut tensors = NamedTensors::new(request.model.facts().source, device);
        let network = networks::build(request.model, request.dropout, &mut tensors);
        let load = |path| weights_file::load(path, &tensors, request.model.facts());
        let beside = request.init.map(load).transpose()?.unwrap_or_default();
        let precision = Precision::new(request.dtype, device)?;
        let flat = FlatParameters::new(&mut tensors, request.layout, precision.compute())?;
        Ok(PreparedModel { network, tensors, flat, beside, precision })
    }

    /// Where it computes.
    pub fn device(&self) -> Device {
        self.tensors.device()
    }

    /// The running statistics.
    pub fn statistics(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.buffers.iter().map(|named| &named.tensor)
    }

    /// A copy of them, for steps that must leave them as they are.
    pub fn copy_of_statistics(&self) -> Vec<Tensor> {
        self.statistics().map(Tensor::copy).collect()
    }

    /// Takes the running statistics back to what [`copy_of_statistics`](PreparedModel::copy_of_statistics) has.
    pub fn restore(&self, statistics: &[Tensor]) -> Result<()> {
        for (named, before) in self.tensors.buffers.iter().zip(statistics) {
            named.tensor.shallow_clone().f_copy_(before)?;
        }
        Ok(())
    }

    /// Rounds the weights for the next forward passes, where they compute in another type than fp32: after every update.
    pub fn round(&self) -> Result<()> {
        self.flat.round()
    }

    /// Counts the folded convolutions with ReLU that ran on CUDA.
    pub fn rectified_convolutions(&self) -> Option<RectifiedConvolutions> {
        layers::rectified_convolutions()
    }

    /// What `head` makes of the scores of every class for `images`, all of it in the precision of the run.
    pub fn forward(&self, images: &Tensor, mode: Mode, head: impl FnOnce(Tensor) -> Result<Tensor>) -> Result<Tensor> {
        self.precision.forward(|| head(self.network.forward(images, mode)?))
    }
}
