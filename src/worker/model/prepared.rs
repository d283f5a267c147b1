//! A network ready to compute: weights in flat memory, in the layout and precision of the run. Shared by training and
//! inference.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use ringmark_core::benchmark::score::RectifiedConvolutions;
use ringmark_core::dimension::{Dtype, Layout, Model};
use tch::{Device, Kind, Tensor};

use crate::ffi::torch::shim::WeightProvider;
use crate::model::flat_parameters::{FlatParameters, WeightMemory};
use crate::model::layers;
use crate::model::network::{Mode, NamedTensors, Network};
use crate::model::networks::{self, NetworkOptions};
use crate::model::precision::Precision;
use crate::model::unit::Unit;
use crate::model::weights_file::{self, TrainingState};

pub struct ModelRequest<'a> {
    pub model: Model,
    pub options: NetworkOptions,
    pub seed: i64,
    /// File with initial weights (safetensors), instead of random ones.
    pub init: Option<&'a Path>,
    pub dtype: Dtype,
    pub layout: Layout,
    pub memory: WeightMemory,
}

pub struct PreparedModel {
    network: Box<dyn Network>,
    only_unit: Option<Unit>,
    pub tensors: NamedTensors,
    pub flat: FlatParameters,
    /// Further contents of the file with the initial weights.
    pub training_state: TrainingState,
    precision: Precision,
}

impl PreparedModel {
    pub fn new(request: &ModelRequest, device: Device) -> Result<PreparedModel> {
        tch::manual_seed(request.seed);
        let mut tensors = NamedTensors::new(request.model.facts().source, device);
        let network = networks::build(request.model, request.options, &mut tensors);
        let precision = Precision::new(request.dtype, device)?;
        let mut flat = FlatParameters::new(&mut tensors, request.layout, precision.compute(), request.memory)?;
        if request.memory == WeightMemory::Whole {
            let _no_gradient = tch::no_grad_guard();
            tensors.draw(|index, values| Ok(tensors.parameters[index].tensor.shallow_clone().f_copy_(&values)?))?;
        } else if request.init.is_some() {
            let whole = Tensor::f_zeros([tensors.elements() as i64], (Kind::Float, Device::Cpu))?;
            flat.replace(whole, &mut tensors)?;
        }
        let load = |path| weights_file::load(path, &tensors, request.model.facts().source_name);
        let training_state = request.init.map(load).transpose()?.unwrap_or_default();
        let only_unit = tensors.only_unit();
        Ok(PreparedModel { network, only_unit, tensors, flat, training_state, precision })
    }

    /// Calls `take` with one parameter after the other: its range of the flat weights, and its initial values there, in
    /// host memory. They are those of the file, or drawn for this call. Values are drawn in any case, so that the
    /// generators of all ranks continue alike.
    pub fn visit_initial_weights(&self, mut take: impl FnMut(&Range<usize>, &Tensor) -> Result<()>) -> Result<()> {
        let _no_gradient = tch::no_grad_guard();
        let is_loaded = self.flat.weights.numel() > 0;
        let mut end = self.tensors.elements();
        self.tensors.draw(|index, drawn| {
            let named = &self.tensors.parameters[index];
            let values = if is_loaded { &named.tensor } else { &drawn };
            let range = end - values.numel()..end;
            end = range.start;
            let flat = Tensor::f_empty([range.len() as i64], (Kind::Float, Device::Cpu))?;
            self.flat.view(values, &flat)?.f_copy_(values)?;
            take(&range, &flat)
        })
    }

    /// Frees the weights and lets `provider` provide those of each unit while it computes.
    pub fn use_provider(&mut self, provider: &'static dyn WeightProvider) -> Result<()> {
        self.free_weights()?;
        let set = self.tensors.provider.set(Box::leak(Box::new(provider)));
        set.map_err(|_| anyhow!("the network has a provider of weights"))
    }

    pub fn free_weights(&mut self) -> Result<()> {
        self.flat.free(&mut self.tensors)
    }

    /// Uses `weights`, a flat tensor of every weight, for files; the network uses those of the provider.
    pub fn use_weights(&mut self, weights: Tensor) -> Result<()> {
        self.flat.replace(weights, &mut self.tensors)
    }

    pub fn device(&self) -> Device {
        self.tensors.device()
    }

    pub fn statistics(&self) -> impl Iterator<Item = &Tensor> {
        self.tensors.buffers.iter().map(|named| &named.tensor)
    }

    /// Returns a copy of the running statistics, for steps that must not change them.
    pub fn copy_of_statistics(&self) -> Vec<Tensor> {
        self.statistics().map(Tensor::copy).collect()
    }

    /// Restores the running statistics from [`copy_of_statistics`](PreparedModel::copy_of_statistics).
    pub fn restore(&self, statistics: &[Tensor]) -> Result<()> {
        for (named, before) in self.tensors.buffers.iter().zip(statistics) {
            named.tensor.shallow_clone().f_copy_(before)?;
        }
        Ok(())
    }

    /// Rounds the weights if forward computes in another type than fp32. Call this after every update.
    pub fn round(&self) -> Result<()> {
        self.flat.round()
    }

    /// Counts the folded convolutions with ReLU that ran on CUDA.
    pub fn rectified_convolutions(&self) -> Option<RectifiedConvolutions> {
        layers::rectified_convolutions()
    }

    /// Returns the mean cross entropy of `labels`, computed in the precision of the run.
    pub fn loss(&self, inputs: &Tensor, labels: &Tensor, label_smoothing: f64, mode: Mode) -> Result<Tensor> {
        self.run(|| self.network.loss(inputs, labels, label_smoothing, mode))
    }

    /// Returns [sums of a validation](Network::validation_sums), computed in the precision of the run.
    pub fn validation_sums(&self, inputs: &Tensor, labels: &Tensor) -> Result<Tensor> {
        self.run(|| self.network.validation_sums(inputs, labels))
    }

    /// Returns [probabilities](Network::probabilities), computed in the precision of the run.
    pub fn probabilities(&self, inputs: &Tensor, targets: &Tensor, mode: Mode) -> Result<Tensor> {
        self.run(|| self.network.probabilities(inputs, targets, mode))
    }

    fn run(&self, body: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        self.precision.forward(|| match &self.only_unit {
            Some(unit) => unit.run(body),
            None => body(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    #[test]
    fn sharded_model_has_the_initial_weights_of_a_whole_one() {
        let _generator = seeded(1);
        for (dtype, layout) in [(Dtype::Fp32, Layout::Nhwc), (Dtype::Bf16, Layout::Nchw)] {
            let model = |memory, init| {
                let (model, options) = (Model::MxnetLenet, NetworkOptions::default());
                let request = ModelRequest { model, options, seed: 3, init, dtype, layout, memory };
                PreparedModel::new(&request, Device::Cpu).expect("a model")
            };
            let whole = model(WeightMemory::Whole, None);
            let folder = tempfile::tempdir().expect("a folder");
            let file = folder.path().join("weights.safetensors");
            weights_file::save(&file, &whole.tensors, &TrainingState::default()).expect("saved");
            for init in [None, Some(file.as_path())] {
                let sharded = model(WeightMemory::Sharded, init);
                let mut next = whole.flat.weights.numel();
                let take = |range: &Range<usize>, values: &Tensor| {
                    assert_eq!(range.end, next, "no gap");
                    next = range.start;
                    assert_eq!(*values, whole.flat.weights.narrow(0, next as i64, range.len() as i64));
                    Ok(())
                };
                sharded.visit_initial_weights(take).expect("visited");
                assert_eq!((next, sharded.flat.weights.numel() > 0), (0, init.is_some()));
                for (whole, sharded) in whole.flat.parameters.iter().zip(&sharded.flat.parameters) {
                    let facts = |tensor: &Tensor| (tensor.size(), tensor.stride(), tensor.kind());
                    assert_eq!(facts(whole), facts(sharded));
                }
            }
        }
    }
}
