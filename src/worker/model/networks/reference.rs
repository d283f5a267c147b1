//! Comparison of every network with its source: names, shapes, and one step. The numbers in
//! `tests/golden/networks.json` were computed by `networks.py` in the same folder, with torchvision's networks and with
//! independent definitions of MXNet's.

use std::sync::{LazyLock, Mutex, PoisonError};

use ringmark_core::dimension::{Layout, Model};
use serde::Deserialize;
use serde_json::Value;
use tch::{Device, Kind, Reduction, Tensor};

use crate::model::network::{Mode, NamedTensors, Role};
use crate::model::networks::{self, NetworkOptions};
use crate::testing::seeded;

/// Maximum relative deviations.
#[derive(Debug, Clone, Copy)]
struct Tolerance {
    /// Deviation of scores, loss and running statistics.
    forward: f64,
    /// Deviation of gradients, relative to the norm of each.
    gradient: f64,
}

/// Expected properties of a network.
#[derive(Debug, Deserialize)]
struct Reference {
    /// Channels and size of the step's images.
    image: [i64; 2],
    classes: u32,
    /// Arrays and values that measure.py counts.
    counted: [usize; 2],
    /// 1e9 multiply-adds at the network's own image size.
    gmacs: f64,
    parameters: Vec<ExpectedTensor>,
    buffers: Vec<ExpectedTensor>,
    step: Step,
}

/// Name and shape of a tensor, and the standard deviation and mean of its values.
#[derive(Debug, Deserialize)]
struct ExpectedTensor(String, Vec<i64>, f64, f64);

/// Results of one step from those values.
#[derive(Debug, Deserialize)]
struct Step {
    loss: f64,
    scores: Vec<Vec<f64>>,
    /// Scores with the running statistics after the step.
    evaluated: Vec<Vec<f64>>,
    /// Norm of each gradient, and its projection on one direction.
    gradients: Vec<[f64; 2]>,
    /// Norms of the buffers after the step.
    running: Vec<f64>,
}

impl Reference {
    fn for_model(model: Model) -> Reference {
        static GOLDEN: LazyLock<Value> = LazyLock::new(|| {
            serde_json::from_str(include_str!("../../../../tests/golden/networks.json")).expect("JSON")
        });
        serde_json::from_value(GOLDEN["networks"][model.to_string()].clone()).expect("a network of the file")
    }

    fn labels(&self) -> [i64; 2] {
        if self.classes == 10 { [3, 7] } else { [3, 977] }
    }

    /// Returns the direction of the projections, cos(0), cos(1), .., as long as the largest gradient.
    fn wave(&self) -> Tensor {
        let longest = self.parameters.iter().map(|ExpectedTensor(_, shape, ..)| shape.iter().product()).max();
        Tensor::arange::<i64>(longest.expect("parameters"), (Kind::Double, Device::Cpu)).cos()
    }

    /// Returns the classes whose scores are in the file.
    fn recorded_classes(&self) -> [i64; 5] {
        if self.classes == 10 { [0, 3, 5, 7, 9] } else { [0, 3, 500, 977, 999] }
    }
}

/// Checks `model` in fp64, to the precision of the file, and in fp32 on the fastest training path. In fp32 a ReLU with
/// an input near 0 may be on the other side, so gradients deviate more.
fn check(model: Model) {
    // VGG needs 5 GB in fp64: the number of locks limits how many run at once, whatever the number of test threads.
    static ROOM: [Mutex<()>; 2] = [const { Mutex::new(()) }; 2];
    let _room = ROOM[model as usize % ROOM.len()].lock().unwrap_or_else(PoisonError::into_inner);
    let reference = Reference::for_model(model);
    check_names(model, &reference);
    let exact = Tolerance { forward: 1e-7, gradient: 1e-7 };
    let wave = reference.wave();
    check_step(model, Kind::Double, Layout::Nchw, exact, &reference, &wave);
    check_step(model, Kind::Float, Layout::Nhwc, Tolerance { forward: 1e-4, gradient: 1e-2 }, &reference, &wave);
}

fn check_names(model: Model, reference: &Reference) {
    let tensors = networks::tensors(model);
    for (built, expected) in [(&tensors.parameters, &reference.parameters), (&tensors.buffers, &reference.buffers)] {
        let built: Vec<_> = built.iter().map(|named| (named.name.as_str(), named.tensor.size())).collect();
        let expected: Vec<_> =
            expected.iter().map(|ExpectedTensor(name, shape, ..)| (name.as_str(), shape.clone())).collect();
        assert_eq!(built, expected, "{model}");
    }
    let counted = tensors.parameters.iter().filter(|named| matches!(named.role, Role::Weight | Role::Bias));
    let counted: Vec<usize> = counted.map(|named| named.tensor.numel()).collect();
    assert_eq!([counted.len(), counted.iter().sum()], reference.counted, "{model}");
    let facts = model.facts();
    assert!((facts.gmacs - reference.gmacs).abs() < 6e-4, "{model}: {}, not {}", facts.gmacs, reference.gmacs);
    assert_eq!(facts.images().map(|rule| rule.classes), Some(reference.classes), "{model}");
}

fn check_step(model: Model, kind: Kind, layout: Layout, tolerance: Tolerance, reference: &Reference, wave: &Tensor) {
    let generator = seeded(8);
    let mut tensors = NamedTensors::new(model.facts().source, Device::Cpu);
    let network =
        networks::build(model, NetworkOptions { dropout: Some(0.0), ..NetworkOptions::default() }, &mut tensors);
    tch::manual_seed(8);
    let drawn = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu));
    let in_layout = |tensor: Tensor| match layout {
        Layout::Nhwc => tensor.to_kind(kind).permute([0, 2, 3, 1]).contiguous().permute([0, 3, 1, 2]),
        Layout::Nchw => tensor.to_kind(kind),
    };
    let lists = [(&mut tensors.parameters, &reference.parameters), (&mut tensors.buffers, &reference.buffers)];
    for (list, rules) in lists {
        for (named, ExpectedTensor(_, shape, deviation, mean)) in list.iter_mut().zip(rules) {
            let value = drawn(shape) * *deviation + *mean;
            named.tensor.set_data(&if shape.len() == 4 { in_layout(value) } else { value.to_kind(kind) });
        }
    }
    let [channels, size] = reference.image;
    let images = in_layout(drawn(&[2, channels, size, size]));
    // All values are drawn: other tests need not wait.
    drop(generator);
    let near = |what: &str, actual: f64, expected: f64| {
        let difference = (actual - expected).abs() / expected.abs();
        assert!(difference <= tolerance.forward, "{model} in {kind:?}, {what}: {actual}, not {expected}");
    };
    let check_scores = |what: &str, scores: &Tensor, expected: &[Vec<f64>]| {
        for (image, expected) in expected.iter().enumerate() {
            for (class, expected) in reference.recorded_classes().into_iter().zip(expected) {
                near(&format!("{what} {class} of {image}"), scores.double_value(&[image as i64, class]), *expected);
            }
        }
    };

    let Step { loss, scores, evaluated, gradients, running } = &reference.step;
    let built = network.forward(&images, Mode::Training).expect("scores");
    let labels = Tensor::from_slice(&reference.labels());
    let built_loss = built.cross_entropy_loss(&labels, None::<&Tensor>, Reduction::Mean, -100, 0.0);
    built_loss.backward();
    near("loss", built_loss.double_value(&[]), *loss);
    check_scores("score", &built, scores);
    for (named, expected) in tensors.buffers.iter().zip(running) {
        near(&named.name, named.tensor.to_kind(Kind::Double).norm().double_value(&[]), *expected);
    }
    check_gradients(model, &tensors, gradients, wave, tolerance.gradient);
    let inferred = tch::no_grad(|| network.forward(&images, Mode::Inference)).expect("scores");
    check_scores("score of inference", &inferred, evaluated);
    if kind == Kind::Float {
        let folded = tch::no_grad(|| network.forward(&images, Mode::Folded)).expect("scores");
        check_scores("score with folded normalization", &folded, evaluated);
    }
}

/// Compares gradients. One that is 0 except for rounding is compared relative to the norm of the previous one.
fn check_gradients(model: Model, tensors: &NamedTensors, gradients: &[[f64; 2]], wave: &Tensor, tolerance: f64) {
    let mut scale = 1.0;
    for (named, [norm, projection]) in tensors.parameters.iter().zip(gradients) {
        let values = named.tensor.grad().to_kind(Kind::Double).contiguous().flatten(0, -1);
        let count = values.numel() as i64;
        let direction = wave.narrow(0, 0, count);
        let built_norm = values.norm().double_value(&[]);
        let built_projection = values.dot(&direction).double_value(&[]) / (count as f64).sqrt();
        if *norm > 0.0 {
            scale = *norm;
        }
        let difference = (built_norm - norm).abs().max((built_projection - projection).abs() * (count as f64).sqrt());
        assert!(
            difference <= tolerance * scale,
            "{model}, {}: norm {built_norm}, not {norm}; projection {built_projection}, not {projection}",
            named.name
        );
    }
}

macro_rules! references {
    ($($name:ident: $model:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            check(Model::$model);
        })+
    };
}

references!(
    alexnet: Alexnet,
    inception_v3: InceptionV3,
    mxnet_alexnet: MxnetAlexnet,
    mxnet_inception_bn: MxnetInceptionBn,
    mxnet_inception_v3: MxnetInceptionV3,
    mxnet_lenet: MxnetLenet,
    mxnet_mlp: MxnetMlp,
    mxnet_resnet_50: MxnetResnet50,
    mxnet_resnet_101: MxnetResnet101,
    mxnet_resnet_152: MxnetResnet152,
    mxnet_resnet_200: MxnetResnet200,
    resnet18: Resnet18,
    resnet34: Resnet34,
    resnet50_v1b: Resnet50V1b,
    resnet101: Resnet101,
    resnet152: Resnet152,
    resnext50_32x4d: Resnext50,
    resnext101_32x8d: Resnext101,
    vgg11: Vgg11,
    vgg11_bn: Vgg11Bn,
    vgg16: Vgg16,
    vgg16_bn: Vgg16Bn,
    vit_b_16: VitB16,
);
