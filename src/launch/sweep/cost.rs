//! Predicts the arithmetic and memory of a job's ranks from its configuration alone. Pure;
//! [`estimate`](crate::launch::sweep::estimate) compares it with a machine.

use ringmark_core::benchmark::exchange::BackendChoice;
use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::train::{Recompute, TrainConfig};
use ringmark_core::dimension::{
    BatchMemory, Bytes, Case, DeviceKind, Dtype, PASSES_OF_TRAINING, RankMemory, ShardCollectives, Strategy, Wire,
};
use ringmark_core::stats::allreduce_model::Algorithm;

/// Predicted cost of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobCost {
    /// Work of a rank in units of 1e9 multiply-accumulates. With equal devices, the times of jobs are proportional to
    /// it.
    pub work: f64,
    /// Precision of that arithmetic, if the work is known.
    pub dtype: Option<Dtype>,
    /// Memory figures if the ranks use the CPU.
    pub on_cpu: Option<MemoryCost>,
    /// Upper bounds of the memory of a GPU, if the ranks use GPUs and it is known.
    pub on_gpu: Option<MemoryCost>,
    /// Upper bound of what a host sends to other hosts.
    pub between_hosts: Bytes,
}

/// Images of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSamples {
    /// Images trained with in an epoch.
    pub trained: u64,
    /// Images predicted at its end.
    pub predicted: u64,
}

/// Cost of validation at the ends of epochs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValidationCost {
    /// Iterations of an epoch.
    epoch: u32,
    /// Cost of the predictions at its end, in training iterations.
    iterations: f64,
}

impl ValidationCost {
    /// Computes the cost for a run of `ranks` ranks. A prediction is the forward pass alone, one of training's
    /// [`PASSES_OF_TRAINING`].
    ///
    /// 600 images on 2 ranks of batch size 16 are 19 steps a rank, which take as long as 6.33 iterations of training.
    pub fn new(train: &TrainConfig, ranks: u32, images: EpochSamples) -> ValidationCost {
        let steps = |images: u64| train.epoch_steps(images, ranks);
        ValidationCost {
            epoch: u32::try_from(steps(images.trained)).unwrap_or(u32::MAX).max(1),
            iterations: steps(images.predicted) as f64 / PASSES_OF_TRAINING,
        }
    }

    /// Returns the cost of `iterations` and of the validation that follows them, in iterations.
    pub fn including_validation(&self, iterations: u32) -> f64 {
        f64::from(iterations) + f64::from(iterations / self.epoch) * self.iterations
    }

    /// Returns the cost up to the end of the last of these iterations, before the validation that follows it.
    pub fn at(&self, iterations: u32) -> f64 {
        self.including_validation(iterations.saturating_sub(1)) + f64::from(iterations.min(1))
    }
}

/// Options that reduce the memory of a rank.
pub const ALTERNATIVES: [&str; 3] = ["--strategy fsdp", "--recompute block", "--strategy fsdp --recompute block"];

/// Memory figures of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryCost {
    /// Images or sequences that a rank computes at a time.
    pub batch_size: u32,
    /// Number of such parts in the batch of a rank.
    pub parts: u32,
    /// Memory of a rank.
    pub memory: BatchMemory,
    /// Memory with these [`ALTERNATIVES`].
    pub alternatives: [Option<(&'static str, BatchMemory)>; 3],
}

impl MemoryCost {
    /// Returns the memory of a rank.
    pub fn bytes(&self) -> Bytes {
        self.memory.for_batch(self.batch_size)
    }

    /// Returns the largest batch of a rank that fits into `available`; 0 if not even one image does.
    pub fn largest_batch(&self, available: Bytes) -> u32 {
        self.memory.largest_batch(available).saturating_mul(self.parts)
    }

    /// Returns the options with which a rank fits into `available`.
    pub fn options_that_fit(&self, available: Bytes) -> impl Iterator<Item = &'static str> {
        let fits = move |memory: &BatchMemory| memory.for_batch(self.batch_size).0 <= available.0;
        self.alternatives.into_iter().flatten().filter(move |(_, memory)| fits(memory)).map(|(option, _)| option)
    }

    /// Returns the same figures without the memory of the program.
    fn without_program(self) -> MemoryCost {
        let without = |memory: BatchMemory| BatchMemory {
            fixed: Bytes(memory.fixed.0.saturating_sub(RankMemory::PROGRAM.0)),
            ..memory
        };
        let alternatives = self.alternatives.map(|it| it.map(|(option, memory)| (option, without(memory))));
        MemoryCost { memory: without(self.memory), alternatives, ..self }
    }
}

/// Returns the memory of a rank that trains with this strategy and recomputation instead of those of `train`.
fn memory_of_training(train: &TrainConfig, strategy: Strategy, recompute: Recompute, case: Case) -> BatchMemory {
    let TrainConfig { dtype, layout, .. } = *train;
    let facts = train.model.facts();
    let ratio = facts.size_ratio(train.sample_size());
    let mut memory = facts.training_memory.at(dtype, layout.resolve(dtype, DeviceKind::Cpu), ratio);
    if let (Recompute::Block, Some(shape)) = (recompute, facts.decoder_shape()) {
        memory.of_sample.0 = (memory.of_sample.0 as f64 * shape.recomputed_share()) as u64;
    }
    // One state of the optimizer is part of it.
    let more_states = train.optimizer.state_names(train.momentum).len().saturating_sub(1) as u64;
    memory.fixed.0 += more_states * Wire::Fp32.bytes() * facts.parameters;
    memory.fixed.0 -= facts.memory_of_others(strategy, more_states, case).0;
    memory
}

/// Returns the bytes that a host sends to other hosts in an iteration, at most. `predict` scales a measured exchange by the
/// same volumes.
fn sent_between_hosts(train: &TrainConfig, case: Case) -> f64 {
    if case.nodes == 1 || train.exchange.backend == BackendChoice::None {
        return 0.0;
    }
    let weights = train.model.facts().gradient_bytes();
    let gradients = train.exchange.wire.size_of(weights).0 as f64;
    let weights = weights.0 as f64;
    let strategy = train.strategy.strategy;
    // The ranks of a host hold all weights together, and add them with the other hosts in fp32.
    if strategy == Strategy::Hsdp {
        return Algorithm::Hosts.volume(case) * weights;
    }
    let bytes = match strategy.shard_collectives(train.accumulate) {
        Some(ShardCollectives { sums, gathers }) => f64::from(sums) * gradients + f64::from(gathers.max(1)) * weights,
        None if strategy.is_all_reduce() => 2.0 * gradients,
        None => gradients + weights,
    };
    0.5 * Algorithm::Ring.volume(case) * bytes
}

impl JobCost {
    /// Placeholder for jobs of equal but unknown cost.
    pub const EQUAL: JobCost = JobCost { work: 1.0, dtype: None, on_cpu: None, on_gpu: None, between_hosts: Bytes(0) };

    /// Returns the cost of a training run of `case` on CPUs.
    pub fn for_training(train: &TrainConfig, case: Case) -> JobCost {
        let TrainConfig { model, dtype, batch_size, accumulate, iterations, recompute, .. } = *train;
        let facts = model.facts();
        let samples = f64::from(batch_size) * f64::from(iterations);
        let strategy = train.strategy.strategy;
        let with = |option, strategy, recompute| (option, memory_of_training(train, strategy, recompute, case));
        let can_recompute = facts.decoder_shape().is_some() && recompute != Recompute::Block;
        let alternatives = [
            Some(with(ALTERNATIVES[0], Strategy::Fsdp, recompute)),
            can_recompute.then(|| with(ALTERNATIVES[1], strategy, Recompute::Block)),
            can_recompute.then(|| with(ALTERNATIVES[2], Strategy::Fsdp, Recompute::Block)),
        ];
        let memory = memory_of_training(train, strategy, recompute, case);
        JobCost {
            work: PASSES_OF_TRAINING * samples * facts.gmacs_at(train.sample_size()),
            dtype: Some(dtype),
            on_cpu: Some(MemoryCost {
                batch_size: batch_size.div_ceil(accumulate),
                parts: accumulate,
                memory,
                alternatives,
            }),
            on_gpu: None,
            between_hosts: Bytes((f64::from(iterations) * sent_between_hosts(train, case)) as u64),
        }
    }

    /// Returns the cost of the same run on GPUs, whose tensors take at most the memory of those on the CPU: 6.19 GB of a
    /// bound of 8.1 GB for ResNet50-v1b in fp16 with batch size 128 (results/h200).
    pub fn on_gpus(self) -> JobCost {
        JobCost { on_cpu: None, on_gpu: self.on_cpu.map(MemoryCost::without_program), ..self }
    }

    /// Adds the validation at the ends of epochs to the cost of a training run of `iterations`.
    pub fn with_validation(self, iterations: u32, validation: ValidationCost) -> JobCost {
        JobCost { work: self.work * validation.including_validation(iterations) / f64::from(iterations), ..self }
    }

    /// Returns the cost of a scoring run on the CPU.
    pub fn for_scoring(score: &ScoreConfig) -> JobCost {
        let ScoreConfig { model, dtype, layout, batch_size, iterations, warmup, .. } = *score;
        let size = score.sample_size();
        let facts = model.facts();
        let samples = f64::from(batch_size) * f64::from(iterations.saturating_add(warmup));
        let memory = facts.scoring_memory.at(dtype, layout.resolve(dtype, DeviceKind::Cpu), facts.size_ratio(size));
        JobCost {
            work: samples * facts.gmacs_at(size),
            dtype: Some(dtype),
            on_cpu: Some(MemoryCost { batch_size, parts: 1, memory, alternatives: [None; 3] }),
            on_gpu: None,
            between_hosts: Bytes(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::benchmark::exchange::ExchangeConfig;
    use ringmark_core::benchmark::optimizer::Optimizer;
    use ringmark_core::benchmark::strategy::StrategyConfig;
    use ringmark_core::dimension::{Model, Strategy};
    use ringmark_core::options::keyword_enum::KeywordEnum;

    use super::*;

    fn train(batch_size: u32) -> TrainConfig {
        TrainConfig { batch_size, iterations: 25, ..TrainConfig::default() }
    }

    #[test]
    fn work_scales_with_images_and_pixels() {
        let work = |train: TrainConfig| JobCost::for_training(&train, Case::SINGLE).work;
        assert!((work(train(8)) - 3.0 * 4.089 * 200.0).abs() < 1e-9);
        assert!((work(train(16)) / work(train(8)) - 2.0).abs() < 1e-9);
        assert!((work(TrainConfig { image_size: Some(112), ..train(8) }) / work(train(8)) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn validation_costs_a_third_of_training_per_image() {
        let train = TrainConfig { iterations: 150, ..train(16) };
        let images = EpochSamples { trained: 1600, predicted: 600 };
        // Two ranks have 50 iterations an epoch and predict 19 batches after each; one has 100, and predicts 38 after
        // the first epoch alone.
        let work = |ranks: u32| {
            let cost = JobCost::for_training(&train, Case { nodes: 1, gpus_per_node: ranks });
            let with = cost.with_validation(train.iterations, ValidationCost::new(&train, ranks, images));
            assert_eq!(with.on_cpu, cost.on_cpu);
            with.work / cost.work
        };
        assert!((work(2) - (150.0 + 3.0 * 19.0 / 3.0) / 150.0).abs() < 1e-12);
        assert!((work(1) - (150.0 + 38.0 / 3.0) / 150.0).abs() < 1e-12);
        let two_ranks = ValidationCost::new(&train, 2, images);
        assert_eq!([0, 1, 50, 51].map(|iteration| two_ranks.at(iteration)), [0.0, 1.0, 50.0, 51.0 + 19.0 / 3.0]);
    }

    #[test]
    fn divided_state_reduces_the_memory_of_a_rank() {
        let fixed = |model, strategy, case| {
            let strategy = StrategyConfig { strategy, ..StrategyConfig::default() };
            let optimizer = Optimizer::AdamW;
            let train = TrainConfig { model, strategy, optimizer, ..train(1) };
            JobCost::for_training(&train, case).on_cpu.expect("memory").memory.fixed.0 as f64 / 1e9
        };
        let table = |case: &str| {
            let case: Case = case.parse().expect("a case");
            Strategy::ALL[..5].iter().map(move |strategy| {
                let [small, large] = [Model::Gpt2Small, Model::Llama8b].map(|model| fixed(model, *strategy, case));
                format!("{case} {strategy}: {small:.2}, {large:.1} GB\n")
            })
        };
        expect![[r#"
            1n1g all-reduce: 3.69, 193.4 GB
            1n1g zero1: 3.69, 193.4 GB
            1n1g zero2: 3.69, 193.4 GB
            1n1g fsdp: 3.69, 193.4 GB
            1n1g hsdp: 3.69, 193.4 GB
            1n2g all-reduce: 3.69, 193.4 GB
            1n2g zero1: 3.44, 177.4 GB
            1n2g zero2: 3.06, 153.3 GB
            1n2g fsdp: 2.47, 104.4 GB
            1n2g hsdp: 2.47, 104.4 GB
            2n4g all-reduce: 3.69, 193.4 GB
            2n4g zero1: 3.25, 165.3 GB
            2n4g zero2: 2.60, 123.2 GB
            2n4g fsdp: 1.56, 37.7 GB
            2n4g hsdp: 1.86, 59.9 GB
        "#]]
        .assert_eq(&["1n1g", "1n2g", "2n4g"].into_iter().flat_map(table).collect::<String>());
    }

    /// A host sends less with `hsdp`, which adds copies between hosts, than with `fsdp`, which also gathers the weights twice.
    #[test]
    fn volume_between_hosts_depends_on_the_strategy() {
        let weights = 4.0 * Model::Resnet50V1b.facts().parameters as f64;
        let sent = |strategy, case: &str| {
            let strategy = StrategyConfig { strategy, ..StrategyConfig::default() };
            let train = TrainConfig { strategy, iterations: 1, ..train(1) };
            JobCost::for_training(&train, case.parse().expect("a case")).between_hosts.0 as f64 / weights
        };
        let table = Strategy::ALL[..5].iter().map(|strategy| {
            let [one, two, four] = ["1n8g", "2n8g", "4n8g"].map(|case| sent(*strategy, case));
            format!("{strategy}: {one:.3}, {two:.3}, {four:.3} x the weights\n")
        });
        expect![[r#"
            all-reduce: 0.000, 1.875, 1.938 x the weights
            zero1: 0.000, 1.875, 1.938 x the weights
            zero2: 0.000, 1.875, 1.938 x the weights
            fsdp: 0.000, 2.812, 2.906 x the weights
            hsdp: 0.000, 1.000, 1.500 x the weights
        "#]]
        .assert_eq(&table.collect::<String>());
        let baseline = |backend| {
            let exchange = ExchangeConfig { backend, ..ExchangeConfig::default() };
            JobCost::for_training(&TrainConfig { exchange, ..train(1) }, Case { nodes: 2, gpus_per_node: 1 })
                .between_hosts
        };
        assert_eq!((baseline(BackendChoice::None).0, baseline(BackendChoice::Auto).0 > 0), (0, true));
    }

    #[test]
    fn scoring_costs_less_than_training() {
        let score = ScoreConfig { batch_size: 8, ..ScoreConfig::default() };
        let (score, train) = (JobCost::for_scoring(&score), JobCost::for_training(&train(8), Case::SINGLE));
        let memory = |cost: JobCost| cost.on_cpu.map(|cpu| cpu.memory.for_batch(cpu.batch_size).0);
        assert!(score.work < train.work && memory(score) < memory(train));
    }
}
