//! All weights in one flat tensor, in the order in which backward finishes their gradients: a bucket of gradients is a
//! range of this tensor, and the update is one call.
//!
//! The model's parameters become views of the flat weights, with the strides of the run's memory layout.

use std::cell::Cell;

use anyhow::Result;
use ringmark_core::dimension::Layout;
use tch::{Device, Kind, Tensor};

use crate::model::network::{NamedTensors, Role};

pub struct FlatParameters {
    /// Every weight, fp32.
    pub weights: Tensor,
    /// Parameter tensors of the model in backward order.
    pub parameters: Vec<Tensor>,
    /// Copy of every weight in the compute type, unless that is fp32.
    pub rounded: Option<Tensor>,
    /// True if the copy is current.
    is_current: Cell<bool>,
    layout: Layout,
}

/// Memory of the flat weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightMemory {
    /// All of them.
    Whole,
    /// None: the parameters have shapes and types only, until the exchange places them.
    Sharded,
}

impl FlatParameters {
    /// Makes the parameters of `tensors` views of flat memory, which is zero; the model keeps using them.
    ///
    /// With `compute`, the type of an autocast, the model's convolutions and products use a rounded copy: one call
    /// instead of autocast's rounding of each weight, and gradients are not kept in both types. `tensors` always refers
    /// to the fp32 values.
    pub fn new(
        tensors: &mut NamedTensors,
        layout: Layout,
        compute: Option<Kind>,
        memory: WeightMemory,
    ) -> Result<FlatParameters> {
        let _no_gradient = tch::no_grad_guard();
        // Backward traverses the model from its end to its beginning.
        let parameters: Vec<Tensor> =
            tensors.parameters.iter().rev().map(|named| named.tensor.shallow_clone()).collect();
        let length = match memory {
            WeightMemory::Whole => tensors.elements(),
            WeightMemory::Sharded => 0,
        };
        let zeros = |kind| Tensor::f_zeros([length as i64], (kind, tensors.device()));
        let mut flat = FlatParameters {
            weights: zeros(Kind::Float)?,
            rounded: compute.map(zeros).transpose()?,
            is_current: Cell::new(false),
            parameters,
            layout,
        };
        let views = |weights: &Tensor| match memory {
            WeightMemory::Whole => flat.views(weights),
            WeightMemory::Sharded => flat.shapes(weights.kind()),
        };
        let exact = views(&flat.weights)?;
        let rounded = flat.rounded.as_ref().map(views).transpose()?;
        for (index, (named, view)) in tensors.parameters.iter_mut().rev().zip(exact).enumerate() {
            // Autocast keeps tensors fp32 that no convolution or product uses: vectors, and a transformer's embeddings.
            let is_rounded = matches!(view.dim(), 2 | 4) && named.role != Role::Embedding;
            let used = rounded.as_ref().filter(|_| is_rounded).map_or(&view, |rounded| &rounded[index]);
            flat.parameters[index].set_data(used);
            named.tensor = view;
        }
        Ok(flat)
    }

    /// Moves the parameters of `tensors` with their values into flat memory.
    #[cfg(test)]
    pub fn with_values(tensors: &mut NamedTensors, layout: Layout, compute: Option<Kind>) -> FlatParameters {
        let values: Vec<Tensor> = tensors.parameters.iter().map(|named| named.tensor.detach().copy()).collect();
        let flat = FlatParameters::new(tensors, layout, compute, WeightMemory::Whole).expect("memory");
        for (named, values) in tensors.parameters.iter().zip(&values) {
            named.tensor.detach().copy_(values);
        }
        flat
    }

    /// Rounds the weights for the next forward pass, unless the compute type is fp32.
    pub fn round(&self) -> Result<()> {
        if let Some(rounded) = self.rounded.as_ref().filter(|_| !self.is_current.take()) {
            rounded.shallow_clone().f_copy_(&self.weights)?;
        }
        Ok(())
    }

    /// Skips the next [`round`](FlatParameters::round), because the update has written the copy.
    pub fn skip_next_rounding(&self) {
        self.is_current.set(true);
    }

    /// Frees the weights, which the exchange provides while the network computes. `tensors` keeps names and shapes.
    pub fn free(&mut self, tensors: &mut NamedTensors) -> Result<()> {
        (self.weights, self.rounded) = (Tensor::f_empty([0], (Kind::Float, self.weights.device()))?, None);
        for named in &mut tensors.parameters {
            let one = Tensor::f_empty([] as [i64; 0], (Kind::Float, Device::Cpu))?;
            named.tensor = one.f_expand(named.tensor.size(), false)?;
        }
        Ok(())
    }

    /// Uses `weights`, a flat tensor of every weight, in `tensors`; the network does not.
    pub fn replace(&mut self, weights: Tensor, tensors: &mut NamedTensors) -> Result<()> {
        for (named, view) in tensors.parameters.iter_mut().rev().zip(self.views(&weights)?) {
            named.tensor = view;
        }
        self.weights = weights;
        Ok(())
    }

    /// Returns the view of every parameter in `flat`, strided for the layout.
    fn views(&self, flat: &Tensor) -> Result<Vec<Tensor>> {
        let mut offset = 0;
        let view = |parameter: &Tensor| {
            let length = parameter.numel() as i64;
            let range = flat.f_narrow(0, offset, length)?;
            offset += length;
            self.view(parameter, &range)
        };
        self.parameters.iter().map(view).collect()
    }

    /// Returns a tensor of this type with the shape and the strides of each parameter. They share memory, which is never
    /// accessed.
    fn shapes(&self, kind: Kind) -> Result<Vec<Tensor>> {
        let largest = self.parameters.iter().map(Tensor::numel).max().unwrap_or(0);
        let shared = Tensor::f_empty([largest as i64], (kind, self.weights.device()))?;
        let shape = |parameter: &Tensor| self.view(parameter, &shared.f_narrow(0, 0, parameter.numel() as i64)?);
        self.parameters.iter().map(shape).collect()
    }

    /// Returns the view of `parameter` in `range`, its elements in flat memory.
    pub fn view(&self, parameter: &Tensor, range: &Tensor) -> Result<Tensor> {
        let shape = parameter.size();
        Ok(match (self.layout, &shape[..]) {
            (Layout::Nhwc, &[output, input, height, width]) => {
                range.f_view([output, height, width, input])?.f_permute([0, 3, 1, 2])?
            }
            _ => range.f_view(&shape[..])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::data::batch::in_layout;
    use ringmark_core::dimension::{Model, Source};

    use crate::model::network::Network;
    use crate::model::networks::{self, NetworkOptions};
    use crate::testing::seeded;

    fn flat_model(
        layout: Layout,
        compute: Option<Kind>,
    ) -> (NamedTensors, Box<dyn Network>, FlatParameters, Vec<Tensor>) {
        let _generator = seeded(1);
        let mut tensors = NamedTensors::new(Source::Torchvision, Device::Cpu);
        let model = networks::build(Model::Resnet50V1b, NetworkOptions::default(), &mut tensors);
        tensors.initialize();
        let before = tensors.parameters.iter().map(|named| named.tensor.detach().copy()).collect();
        let flat = FlatParameters::with_values(&mut tensors, layout, compute);
        (tensors, model, flat, before)
    }

    #[test]
    fn parameters_are_views_of_flat_memory_in_both_layouts() {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            let (tensors, _model, flat, before) = flat_model(layout, None);
            for ((named, before), used) in tensors.parameters.iter().zip(&before).zip(flat.parameters.iter().rev()) {
                assert_eq!(&named.tensor, before, "{}", named.name);
                assert!(used.requires_grad() && used.is_leaf(), "{}", named.name);
                assert_eq!(used.data_ptr(), named.tensor.data_ptr(), "{}", named.name);
            }
            let _ = flat.weights.shallow_clone().fill_(0.5);
            assert!(flat.parameters.iter().all(|used| used.mean(Kind::Float).double_value(&[]) == 0.5));
            let conv1 = &tensors.parameters[0].tensor;
            assert_eq!(in_layout(conv1, layout).expect("a view").stride(), conv1.stride());
        }
    }

    #[test]
    fn rounding_applies_to_matrices_only() {
        let (tensors, _model, flat, before) = flat_model(Layout::Nhwc, Some(Kind::BFloat16));
        flat.round().expect("a copy");
        for ((named, before), used) in tensors.parameters.iter().zip(&before).zip(flat.parameters.iter().rev()) {
            assert_eq!(&named.tensor, before, "{}", named.name);
            let kind = if before.dim() > 1 { Kind::BFloat16 } else { Kind::Float };
            assert_eq!(used.kind(), kind, "{}", named.name);
            assert_eq!(used, &before.to_kind(kind), "{}", named.name);
        }
    }
}
