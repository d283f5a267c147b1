//! The networks of ringmark_record's table, built. A network is a line of that table, a file beside this one over the
//! shared [`layers`](crate::model::layers), and a line here.

use ringmark_record::dimension::model::Model;

use crate::model::named_tensors::NamedTensors;
use crate::model::network::Network;
use crate::model::resnet::ResNet;

/// Makes the weights of `model`, drawn from the device's generator, and leaves each in `tensors` under its name.
pub fn build(model: Model, tensors: &mut NamedTensors) -> Box<dyn Network> {
    let classes = i64::from(model.facts().classes);
    match model {
        Model::Resnet50V1b => Box::new(ResNet::resnet50(tensors, classes)),
        Model::Resnet18 => Box::new(ResNet::resnet18(tensors, classes)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringmark_record::options::keyword_enum::KeywordEnum;
    use serde_json::Value;
    use tch::Device;

    use super::*;
    use crate::testing::seeded;

    #[test]
    fn every_network_has_the_parameters_that_the_table_says() {
        let _generator = seeded(0);
        for model in Model::ALL {
            let mut tensors = NamedTensors::new(Device::Cpu);
            build(*model, &mut tensors);
            let facts = model.facts();
            let built = (tensors.elements() as u64, tensors.parameters.len() as u32);
            assert_eq!(built, (facts.parameters, facts.arrays), "{model}");
        }
    }

    /// As `tests/golden/model_reference.py` wrote them down.
    #[test]
    fn names_and_shapes_are_torchvision_s() {
        let golden: Value =
            serde_json::from_str(include_str!("../../../tests/golden/model_reference.json")).expect("JSON");
        let _generator = seeded(0);
        for (model, names) in [(Model::Resnet50V1b, &golden["names"]), (Model::Resnet18, &golden["resnet18"]["names"])]
        {
            let expected: Vec<(String, Vec<i64>)> = serde_json::from_value(names.clone()).expect("names and shapes");
            let mut tensors = NamedTensors::new(Device::Cpu);
            build(model, &mut tensors);
            let all = tensors.parameters.iter().chain(&tensors.buffers);
            let built: BTreeSet<_> = all.map(|named| (named.name.clone(), named.tensor.size())).collect();
            let counts = |name: &String| name.ends_with("num_batches_tracked");
            assert_eq!(built, expected.into_iter().filter(|(name, _)| !counts(name)).collect(), "{model}");
        }
    }
}
