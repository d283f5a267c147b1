//! The networks of ringmark_record's table, built. A network is a line of that table, a file beside this one over the
//! shared [`layers`](crate::model::layers), and a line here.

use anyhow::{Result, bail};
use ringmark_record::model::Model;

use crate::model::named_tensors::NamedTensors;
use crate::model::network::Network;
use crate::model::resnet::ResNet;

/// Makes the weights of `model`, drawn from the device's generator, and leaves each in `tensors` under its name.
pub fn build(model: Model, tensors: &mut NamedTensors) -> Result<Box<dyn Network>> {
    let facts = model.facts();
    let classes = i64::from(facts.classes);
    Ok(match model {
        Model::Resnet50V1b => Box::new(ResNet::resnet50(tensors, classes)),
        Model::Resnet18 => bail!("{} cannot be built yet: choose --model resnet50_v1b", facts.title),
    })
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::testing::seeded;

    #[test]
    fn every_network_has_the_parameters_that_the_table_says() {
        let _generator = seeded(0);
        for model in [Model::Resnet50V1b] {
            let mut tensors = NamedTensors::new(Device::Cpu);
            build(model, &mut tensors).expect("a network");
            let facts = model.facts();
            let built = (tensors.elements() as u64, tensors.parameters.len() as u32);
            assert_eq!(built, (facts.parameters, facts.arrays), "{model}");
        }
    }

    #[test]
    fn names_are_torchvision_s() {
        let _generator = seeded(0);
        let mut tensors = NamedTensors::new(Device::Cpu);
        build(Model::Resnet50V1b, &mut tensors).expect("a network");
        assert_eq!((tensors.elements(), tensors.buffers.len()), (25_557_032, 2 * 53));
        assert_eq!(tensors.parameters[3].name, "layer1.0.conv1.weight");
    }
}
