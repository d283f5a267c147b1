//! All weights, all gradients and all momenta: one flat tensor each, in the order in which backward finishes them.
//!
//! A bucket is a stretch of the flat gradients and the optimizer is one call. The model's parameters become views of
//! the flat weights, with the strides of the run's memory layout.

use anyhow::Result;
use ringmark_record::config::{Layout, Wire};
use tch::{Device, Kind, Tensor};

use crate::model::named_tensors::NamedTensors;

/// The three flat tensors, fp32 of equal length, and the parameters in them.
pub struct FlatParameters {
    /// Every weight.
    pub weights: Tensor,
    /// Every gradient: after the all-reduce, summed over the ranks.
    pub gradients: Tensor,
    /// Every momentum, zero at first.
    pub momenta: Tensor,
    /// The model's own tensors in backward order.
    pub parameters: Vec<Tensor>,
    layout: Layout,
}

impl FlatParameters {
    /// Moves the parameters of `tensors` into flat memory; the model goes on using them.
    pub fn new(tensors: &NamedTensors, layout: Layout, device: Device) -> Result<FlatParameters> {
        let _no_gradient = tch::no_grad_guard();
        // Backward walks the model from its end to its beginning.
        let parameters: Vec<Tensor> =
            tensors.parameters.iter().rev().map(|named| named.tensor.shallow_clone()).collect();
        let length: usize = parameters.iter().map(Tensor::numel).sum();
        let zeros = || Tensor::f_zeros([length as i64], (Kind::Float, device));
        let mut flat =
            FlatParameters { weights: zeros()?, gradients: zeros()?, momenta: zeros()?, parameters, layout };
        let views = flat.views(&flat.weights)?;
        for (parameter, view) in flat.parameters.iter_mut().zip(views) {
            view.shallow_clone().f_copy_(parameter)?;
            parameter.set_data(&view);
        }
        Ok(flat)
    }

    /// Numbers of elements in backward order.
    pub fn lengths(&self) -> Vec<usize> {
        self.parameters.iter().map(Tensor::numel).collect()
    }

    /// What is exchanged: the gradients themselves, or a half-precision copy's memory.
    pub fn wire(&self, wire: Wire) -> Result<Tensor> {
        Ok(match wire {
            Wire::Fp32 => self.gradients.shallow_clone(),
            Wire::Fp16 => self.gradients.f_zeros_like()?.f_to_kind(Kind::Half)?,
        })
    }

    /// Every parameter's place in `flat`, shaped and strided like the parameter.
    pub fn views(&self, flat: &Tensor) -> Result<Vec<Tensor>> {
        let mut offset = 0;
        let view = |parameter: &Tensor| {
            let stretch = flat.f_narrow(0, offset, parameter.numel() as i64)?;
            offset += parameter.numel() as i64;
            let shape = parameter.size();
            Ok(match (self.layout, &shape[..]) {
                (Layout::Nhwc, &[output, input, height, width]) => {
                    stretch.f_view([output, height, width, input])?.f_permute([0, 3, 1, 2])?
                }
                _ => stretch.f_view(&shape[..])?,
            })
        };
        self.parameters.iter().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::in_layout;
    use crate::model::resnet::ResNet50;

    #[test]
    fn the_model_lives_in_flat_memory_in_both_layouts() {
        for layout in [Layout::Nhwc, Layout::Nchw] {
            tch::manual_seed(1);
            let mut tensors = NamedTensors::new(Device::Cpu);
            ResNet50::new(&mut tensors);
            let before: Vec<Tensor> = tensors.parameters.iter().map(|named| named.tensor.detach().copy()).collect();
            let flat = FlatParameters::new(&tensors, layout, Device::Cpu).expect("memory");
            for (named, before) in tensors.parameters.iter().zip(&before) {
                assert_eq!(&named.tensor, before, "{}", named.name);
                assert!(named.tensor.requires_grad() && named.tensor.is_leaf(), "{}", named.name);
            }
            let _ = flat.weights.shallow_clone().fill_(0.5);
            assert!(tensors.parameters.iter().all(|named| named.tensor.mean(Kind::Float).double_value(&[]) == 0.5));
            let conv1 = &tensors.parameters[0].tensor;
            assert_eq!(in_layout(conv1, layout).expect("a view").stride(), conv1.stride());
        }
    }
}
