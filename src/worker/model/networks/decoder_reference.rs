//! Comparison of the decoders with `tests/golden/decoders.json`, computed by `decoders.py` in the same folder from
//! independent definitions.

use std::process::Command;

use serde::Deserialize;
use tch::{Device, Kind, Reduction, Tensor};

use ringmark_core::benchmark::optimizer::{AdamConfig, DecayedWeights, Optimizer};
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{DecoderShape, Layout, Model, Source};

use crate::exchange::optimizer::{FusedOptimizer, decay_ranges};
use crate::exchange::request::{RankCounts, UpdateRule};
use crate::ffi::memory::element::Element;
use crate::ffi::torch::shim;
use crate::ffi::torch::transformer::head_loss;
use crate::model::flat_parameters::FlatParameters;
use crate::model::network::{Mode, NamedTensor, NamedTensors, Network};
use crate::model::networks::decoder::Decoder;
use crate::testing::seeded;

#[derive(Deserialize)]
struct Golden {
    tokens: i64,
    adamw: AdamW,
    clip_norm: f64,
    networks: std::collections::BTreeMap<String, Reference>,
}

#[derive(Deserialize)]
struct AdamW {
    lr: f64,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
}

#[derive(Deserialize)]
struct Reference {
    /// Name, shape, standard deviation and mean.
    parameters: Vec<(String, Vec<i64>, f64, f64)>,
    loss: f64,
    /// Norm and projection.
    gradients: Vec<[f64; 2]>,
    updates: Vec<[f64; 2]>,
    next_loss: f64,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../../tests/golden/decoders.json")).expect("JSON")
}

/// A network with drawn weights, and a batch.
struct Drawn {
    network: Box<dyn Network>,
    tensors: NamedTensors,
    tokens: Tensor,
    targets: Tensor,
}

impl Drawn {
    /// Draws weights and tokens by the rule of the file.
    fn new(keyword: &str, reference: &Reference, length: i64, kind: Kind, recompute: bool) -> Drawn {
        let _generator = seeded(8);
        let shape = shape(keyword);
        let mut tensors = NamedTensors::new(Source::HuggingFace, Device::Cpu);
        let network = Decoder::new(&mut tensors, shape, recompute);
        tch::manual_seed(8);
        for (named, (_, shape, deviation, mean)) in tensors.parameters.iter_mut().zip(&reference.parameters) {
            let value = Tensor::randn(&shape[..], (Kind::Float, Device::Cpu)) * *deviation + *mean;
            named.tensor.set_data(&value.to_kind(kind));
        }
        let all = Tensor::randint(i64::from(shape.vocabulary), [2, length + 1], (Kind::Int64, Device::Cpu));
        Drawn {
            network: Box::new(network),
            tensors,
            tokens: all.narrow(1, 0, length),
            targets: all.narrow(1, 1, length),
        }
    }

    fn loss(&self) -> Tensor {
        self.network.loss(&self.tokens, &self.targets, 0.0, Mode::Training).expect("a loss")
    }

    fn gradients(&self) -> Vec<Tensor> {
        self.tensors.parameters.iter().map(|named| named.tensor.grad()).collect()
    }
}

/// Returns the shape of a network, with `-tied` after its name that with a tied head.
fn shape(keyword: &str) -> &'static DecoderShape {
    let of = |keyword: &str| keyword.parse::<Model>().expect("a network").facts().decoder_shape().expect("a decoder");
    match keyword.strip_suffix("-tied") {
        Some(untied) => Box::leak(Box::new(DecoderShape { has_tied_head: true, ..*of(untied) })),
        None => of(keyword),
    }
}

fn assert_near(what: &str, built: f64, expected: f64, tolerance: f64) {
    let difference = (built / expected - 1.0).abs();
    assert!(difference <= tolerance, "{what}: {built}, not {expected}: {difference:.1e}");
}

/// Compares norm and projection of each tensor, relative to its norm.
fn assert_all_near(what: &str, named: &[NamedTensor], values: &[Tensor], expected: &[[f64; 2]], tolerance: f64) {
    assert_eq!((named.len(), values.len()), (expected.len(), expected.len()));
    for ((named, values), [norm, projection]) in named.iter().zip(values).zip(expected) {
        let values = values.to_dense(None, false).to_kind(Kind::Double).contiguous().flatten(0, -1);
        let count = values.numel() as i64;
        let wave = Tensor::arange(count, (Kind::Double, Device::Cpu)).cos();
        let root = (count as f64).sqrt();
        let built = [values.norm().double_value(&[]), values.dot(&wave).double_value(&[]) / root];
        let difference = (built[0] - norm).abs().max((built[1] - projection).abs() * root) / norm;
        assert!(
            difference <= tolerance,
            "{what} of {}: {built:?}, not {norm}, {projection}: {difference:.1e}",
            named.name
        );
    }
}

#[test]
fn decoders_have_the_source_parameters() {
    for (keyword, reference) in &golden().networks {
        let mut tensors = NamedTensors::new(Source::HuggingFace, Device::Cpu);
        Decoder::new(&mut tensors, shape(keyword), false);
        let built: Vec<_> = tensors.parameters.iter().map(|named| (named.name.as_str(), named.tensor.size())).collect();
        let expected: Vec<_> =
            reference.parameters.iter().map(|(name, shape, ..)| (name.as_str(), shape.clone())).collect();
        assert_eq!(built, expected, "{keyword}");
    }
}

#[test]
fn loss_and_gradients_match_the_source() {
    let golden = golden();
    for (keyword, reference) in &golden.networks {
        for (kind, tolerance) in [(Kind::Double, 1e-10), (Kind::Float, 1e-5)] {
            let drawn = Drawn::new(keyword, reference, golden.tokens, kind, false);
            let loss = drawn.loss();
            loss.backward();
            let what = format!("{keyword} in {kind:?}");
            assert_near(&what, loss.double_value(&[]), reference.loss, tolerance);
            assert_all_near(&what, &drawn.tensors.parameters, &drawn.gradients(), &reference.gradients, tolerance);

            let scores = drawn.network.forward(&drawn.tokens, Mode::Inference).expect("scores").flatten(0, 1);
            let targets = drawn.targets.flatten(0, 1);
            let loss = scores.cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0);
            assert_near(&format!("{what}, scores"), loss.double_value(&[]), reference.loss, tolerance);
        }
    }
}

/// Each of two sequences alone, with half of its loss, adds to the gradients of both.
#[test]
fn gradients_of_parts_are_those_of_the_batch() {
    let golden = golden();
    for (keyword, reference) in &golden.networks {
        let drawn = Drawn::new(keyword, reference, golden.tokens, Kind::Double, false);
        for sequence in 0..2 {
            let [tokens, targets] = [&drawn.tokens, &drawn.targets].map(|all| all.narrow(0, sequence, 1));
            let loss = drawn.network.loss(&tokens, &targets, 0.0, Mode::Training).expect("a loss");
            (loss * 0.5).backward();
        }
        let gradients = drawn.gradients();
        assert_all_near(keyword, &drawn.tensors.parameters, &gradients, &reference.gradients, 1e-10);
    }
}

#[test]
fn adamw_step_matches_the_source() {
    let golden = golden();
    let AdamW { lr, betas: [beta1, beta2], eps, weight_decay } = golden.adamw;
    let rule = UpdateRule::Training(Box::new(TrainConfig {
        optimizer: Optimizer::AdamW,
        learning_rate: lr,
        learning_rate_warmup: Some(0),
        adam: AdamConfig { beta1, beta2, epsilon: eps },
        weight_decay,
        decayed_weights: DecayedWeights::Matrices,
        clip_norm: Some(golden.clip_norm),
        ..TrainConfig::default()
    }));
    for (keyword, reference) in &golden.networks {
        let mut drawn = Drawn::new(keyword, reference, golden.tokens, Kind::Float, false);
        let flat = FlatParameters::with_values(&mut drawn.tensors, Layout::Nhwc, None);
        let before: Vec<Tensor> = drawn.tensors.parameters.iter().map(|named| named.tensor.copy()).collect();
        drawn.loss().backward();
        let gradients: Vec<Tensor> = flat.parameters.iter().map(|parameter| parameter.grad().flatten(0, -1)).collect();
        let gradients = Tensor::cat(&gradients, 0);
        assert!(gradients.norm().double_value(&[]) > golden.clip_norm, "{keyword}: nothing to clip");
        let optimizer = FusedOptimizer::new(&rule, RankCounts::UNDIVIDED, flat.weights.shallow_clone(), gradients);
        let decay = decay_ranges(&rule, &flat.parameters);
        optimizer.and_then(|it| it.with_decay(&decay, 0)?.step(1)).expect("a step");
        let after = drawn.tensors.parameters.iter().zip(&before);
        let changes: Vec<Tensor> = after.map(|(named, before)| &named.tensor - before).collect();
        // The change is a difference of fp32 weights a thousand times as large.
        assert_all_near(&format!("update, {keyword}"), &drawn.tensors.parameters, &changes, &reference.updates, 2e-4);
        assert_near(&format!("{keyword} after a step"), drawn.loss().double_value(&[]), reference.next_loss, 1e-5);
    }
}

#[test]
fn recomputation_does_not_change_gradients() {
    let golden = golden();
    for (keyword, reference) in &golden.networks {
        for (kind, autocast) in [(Kind::Double, None), (Kind::Float, None), (Kind::Float, Some(Element::BFloat16))] {
            let [kept, recomputed] = [false, true].map(|recompute| {
                let mut drawn = Drawn::new(keyword, reference, golden.tokens, kind, recompute);
                let flat = autocast
                    .map(|element| FlatParameters::with_values(&mut drawn.tensors, Layout::Nhwc, Some(element.kind())));
                if let Some(flat) = &flat {
                    flat.round().expect("a copy");
                }
                let loss = shim::with_autocast(false, autocast, || Ok(drawn.loss())).expect("a loss");
                loss.backward();
                let gradients = match &flat {
                    Some(flat) => flat.parameters.iter().rev().map(|parameter| parameter.grad()).collect(),
                    None => drawn.gradients(),
                };
                (loss.double_value(&[]), gradients)
            });
            assert_eq!(kept.0, recomputed.0, "{keyword} in {kind:?}, {autocast:?}");
            assert_near(keyword, kept.0, reference.loss, if autocast.is_some() { 1e-2 } else { 1e-5 });
            for (((name, shape, ..), kept), recomputed) in reference.parameters.iter().zip(&kept.1).zip(&recomputed.1) {
                assert_eq!(kept, recomputed, "{name} in {kind:?}, {autocast:?}");
                let is_embedding = ["embed", "wte", "wpe"].iter().any(|part| name.contains(part));
                let is_rounded = autocast.is_some() && shape.len() == 2 && !is_embedding;
                assert_eq!(kept.kind(), if is_rounded { Kind::BFloat16 } else { kind }, "{name}");
            }
        }
    }
}

#[test]
fn chunked_loss_equals_the_whole() {
    let _generator = seeded(3);
    let (rows, width, vocabulary) = (23, 5, 11);
    let random = |shape: [i64; 2]| Tensor::randn(shape, (Kind::Double, Device::Cpu)).set_requires_grad(true);
    let (features, weight) = (random([rows, width]), random([vocabulary, width]));
    let targets = Tensor::randint(vocabulary, [rows], (Kind::Int64, Device::Cpu));
    let results = |loss: Tensor| {
        let gradients = Tensor::run_backward(&[&loss * 3.0], &[&features, &weight], false, false);
        [loss.detach(), gradients[0].copy(), gradients[1].copy()]
    };
    let scores = features.matmul(&weight.tr());
    let whole = results(scores.cross_entropy_loss(&targets, None::<&Tensor>, Reduction::Mean, -100, 0.0));
    // Less than a row, one row, several, with a shorter last chunk, and all rows.
    for chunk_rows in [0, 1, 4, 7, rows] {
        let chunked = head_loss(&features, &weight, &targets, 8 * vocabulary * chunk_rows).expect("a loss");
        for (chunked, whole) in results(chunked).iter().zip(&whole) {
            let difference = (chunked - whole).abs().max().double_value(&[]);
            assert!(difference < 1e-12, "{chunk_rows} rows: {difference}");
        }
    }
    let inferred = tch::no_grad(|| head_loss(&features, &weight, &targets, 1)).expect("a loss");
    assert!(!inferred.requires_grad());
    assert!((inferred - &whole[0]).abs().double_value(&[]) < 1e-12);
    let twice = head_loss(&features, &weight, &targets, 1).expect("a loss");
    shim::backward(&twice, None).expect("the first time");
    let error = shim::backward(&twice, None).expect_err("the second time");
    assert!(error.to_string().contains("once per forward"), "{error}");
}

/// Prints the memory that the loss added at its peak. The peak is that of a process, so this runs in its own.
#[test]
#[ignore = "chunked_loss_bounds_memory runs it"]
fn peak_of_chunked_loss() {
    let status = |field: &str| -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find(|line| line.starts_with(field)).expect("a field");
        line.split_whitespace().nth(1).expect("a value").parse().expect("kB")
    };
    let loss = |rows: i64| {
        let random = |rows: i64| Tensor::randn([rows, 8], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let (features, weight) = (random(rows), random(1 << 15));
        let targets = Tensor::zeros([rows], (Kind::Int64, Device::Cpu));
        let loss = head_loss(&features, &weight, &targets, 8 << 20).expect("a loss");
        shim::backward(&loss, None).expect("gradients");
    };
    loss(1);
    let before = status("VmRSS:");
    loss(1 << 11);
    println!("added {} kB", status("VmHWM:") - before);
}

#[test]
fn chunked_loss_bounds_memory() {
    let own = "model::networks::decoder_reference::peak_of_chunked_loss";
    let output = Command::new("/proc/self/exe").args(["--ignored", "--exact", own, "--nocapture"]).output();
    let output = String::from_utf8(output.expect("this program").stdout).expect("text");
    let added = output.split("added ").nth(1).and_then(|text| text.split(' ').next()).expect("the peak");
    let added: u64 = added.parse().expect("kB");
    // The scores of all rows have 256 MiB, and of a chunk 8 MiB; two tensors of that size exist at a time.
    assert!(added < 64 << 10, "{added} kB");
}

#[test]
fn failure_in_a_recomputed_block_is_reported() {
    use crate::ffi::torch::transformer::recomputed;
    let features = Tensor::ones([2], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let error = recomputed(&features, |_| anyhow::bail!("no memory")).expect_err("a failure");
    assert_eq!(error.to_string(), "libtorch: no memory");
}

#[test]
fn initial_values_follow_the_source() {
    let _generator = seeded(1);
    for (keyword, residual) in [("gpt2-tiny", 0.01), ("llama-tiny", 0.02)] {
        let mut tensors = NamedTensors::new(Source::HuggingFace, Device::Cpu);
        Decoder::new(&mut tensors, shape(keyword), false);
        tensors.initialize();
        for NamedTensor { name, tensor, .. } in &tensors.parameters {
            let (mean, deviation) = (tensor.mean(Kind::Float), tensor.std(false));
            let expected = match (tensor.dim(), name.ends_with("bias")) {
                (1, is_bias) => [if is_bias { 0.0 } else { 1.0 }, 0.0],
                _ if name.ends_with("c_proj.weight") => [0.0, residual],
                _ => [0.0, 0.02],
            };
            let near = |value: Tensor, expected: f64| (value.double_value(&[]) - expected).abs() < 1e-3;
            assert!(near(mean, expected[0]) && near(deviation, expected[1]), "{name}");
        }
    }
}
