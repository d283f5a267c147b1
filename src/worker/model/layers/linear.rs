//! Linear layers.

use std::cell::OnceCell;

use anyhow::Result;
use ringmark_core::trace::LayerKind;
use tch::Tensor;

use crate::ffi::torch::packed::Epilogue;
use crate::measure::trace::layers::{self, LayerLabel, LayerWork};
use crate::model::layers::packed::PackedLinear;
use crate::model::network::{Initializers, Mode, NamedTensors};

pub struct Linear {
    /// `[output, input]`, or its transpose.
    weight: Tensor,
    is_input_first: bool,
    bias: Option<Tensor>,
    packed: OnceCell<PackedLinear>,
    label: LayerLabel,
}

impl Linear {
    /// Creates the tensors under `name`.
    pub fn new(
        tensors: &mut NamedTensors,
        name: &str,
        [input, output]: [i64; 2],
        initializers: Initializers,
    ) -> Linear {
        let tensors = tensors.weight_and_bias(name, &[output, input], initializers);
        Linear::from_tensors(tensors, name, false)
    }

    /// Creates the tensors under `name`, with a weight of shape `[input, output]`.
    pub fn input_first(
        tensors: &mut NamedTensors,
        name: &str,
        [input, output]: [i64; 2],
        initializers: Initializers,
    ) -> Linear {
        let names = [&*format!("{name}.weight"), &format!("{name}.bias")];
        let tensors = tensors.weight_and_bias_as(names, &[input, output], output, initializers);
        Linear::from_tensors(tensors, name, true)
    }

    /// Creates the tensors under separate names for weight and bias.
    pub fn under_names(
        tensors: &mut NamedTensors,
        names: [&str; 2],
        [input, output]: [i64; 2],
        initializers: Initializers,
    ) -> Linear {
        let tensors = tensors.weight_and_bias_as(names, &[output, input], output, initializers);
        Linear::from_tensors(tensors, names[0], false)
    }

    fn from_tensors((weight, bias): (Tensor, Option<Tensor>), name: &str, is_input_first: bool) -> Linear {
        let label = LayerLabel::new(LayerKind::Linear, name);
        Linear { weight, is_input_first, bias, packed: OnceCell::new(), label }
    }

    /// Returns the weight as `[output, input]`.
    fn matrix(&self) -> Result<Tensor> {
        Ok(if self.is_input_first { self.weight.f_tr()? } else { self.weight.shallow_clone() })
    }

    /// Applies the layer to features `[.., input]`.
    pub fn forward(&self, features: &Tensor, mode: Mode) -> Result<Tensor> {
        self.followed(features, Epilogue::Nothing, mode)
    }

    /// Applies the layer and the operation `epilogue`.
    pub fn followed(&self, features: &Tensor, epilogue: Epilogue, mode: Mode) -> Result<Tensor> {
        let added = match epilogue {
            Epilogue::Add(sum) => Some(sum),
            _ => None,
        };
        let work =
            LayerWork::product(features, &self.weight, features.size().last().copied().unwrap_or(0)).adding(added);
        layers::pass(&self.label, work, || match mode {
            Mode::Folded => self.packed(features)?.forward(features, epilogue),
            _ => epilogue.apply(features.f_linear(&self.matrix()?, self.bias.as_ref())?),
        })
    }

    /// Returns weights packed for features of this shape. Packs them once.
    fn packed(&self, features: &Tensor) -> Result<&PackedLinear> {
        if let Some(packed) = self.packed.get() {
            return Ok(packed);
        }
        let _no_gradient = tch::no_grad_guard();
        let packed = PackedLinear::new(&self.matrix()?.f_contiguous()?, self.bias.as_ref(), features)?;
        Ok(self.packed.get_or_init(|| packed))
    }
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Source;
    use tch::{Device, Kind};

    use super::*;
    use crate::ffi::torch::packed::Gelu;
    use crate::testing::seeded;

    #[test]
    fn packed_linear_matches_plain() {
        let _generator = seeded(4);
        let mut tensors = NamedTensors::new(Source::Torchvision, Device::Cpu);
        let _no_gradient = tch::no_grad_guard();
        for (kind, most) in [(Kind::Float, 1e-5), (Kind::BFloat16, 0.05)] {
            let random = |shape: &[i64]| Tensor::randn(shape, (kind, Device::Cpu));
            let mut linear = Linear::new(&mut tensors, "linear", [48, 32], Initializers::PYTORCH);
            (linear.weight, linear.bias) = (random(&[32, 48]) / 7.0, Some(random(&[32])));
            let mut input_first = Linear::input_first(&mut tensors, "input_first", [48, 32], Initializers::PYTORCH);
            (input_first.weight, input_first.bias) =
                (linear.weight.tr().contiguous(), linear.bias.as_ref().map(Tensor::shallow_clone));
            let features = random(&[3, 5, 48]);
            // Adds a tensor of the kernel's type and one of another type.
            let (sum, wider) = (random(&[3, 5, 32]), Tensor::randn([3, 5, 32], (Kind::Float, Device::Cpu)));
            let gelu = [Gelu::Exact, Gelu::Tanh].map(Epilogue::Gelu);
            for epilogue in [Epilogue::Nothing, gelu[0], gelu[1], Epilogue::Add(&sum), Epilogue::Add(&wider)] {
                let plain = linear.followed(&features, epilogue, Mode::Inference).expect("a result");
                for (layer, mode) in
                    [(&linear, Mode::Folded), (&input_first, Mode::Inference), (&input_first, Mode::Folded)]
                {
                    let other = layer.followed(&features, epilogue, mode).expect("a result");
                    assert_eq!((other.kind(), other.size()), (plain.kind(), plain.size()), "{epilogue:?} in {kind:?}");
                    let difference = (&plain - other).abs().max().double_value(&[]);
                    assert!(difference < most, "{epilogue:?} in {kind:?}: {difference}");
                }
            }
        }
    }
}
