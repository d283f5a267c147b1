//! What a job will take of each of its ranks, by its configuration alone: arithmetic and memory. Pure. Not for what that
//! means for a machine: that is [`estimate`](crate::launch::sweep::estimate)'s.

use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{BatchMemory, DeviceKind, Dtype, PASSES_OF_TRAINING};

/// What a job will take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobCost {
    /// What the times of jobs are in proportion to, with equal devices: 1e9 multiply-accumulates of a rank.
    pub work: f64,
    /// Precision of that arithmetic, where the work is known.
    pub dtype: Option<Dtype>,
    /// What is known where its ranks use the CPU.
    pub on_cpu: Option<CpuCost>,
}

/// Images that a run goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochImages {
    /// Trained with in an epoch.
    pub trained: u64,
    /// Predicted at its end.
    pub predicted: u64,
}

/// What the ends of epochs take of a training run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValidationCost {
    /// Iterations of an epoch.
    epoch: u32,
    /// What the predictions at its end take, in iterations.
    iterations: f64,
}

impl ValidationCost {
    /// Of a run of so many `ranks`. A prediction is the forward pass alone, one of training's [`PASSES_OF_TRAINING`].
    ///
    /// 600 images on 2 ranks of batch size 16 are 19 steps a rank, as long as 6.33 iterations of training.
    pub fn of(train: &TrainConfig, ranks: u32, images: EpochImages) -> ValidationCost {
        let steps = |images: u64| train.epoch_steps(images, ranks);
        ValidationCost {
            epoch: u32::try_from(steps(images.trained)).unwrap_or(u32::MAX).max(1),
            iterations: steps(images.predicted) as f64 / PASSES_OF_TRAINING,
        }
    }

    /// `iterations`, and what follows them.
    pub fn behind(&self, iterations: u32) -> f64 {
        f64::from(iterations) + f64::from(iterations / self.epoch) * self.iterations
    }

    /// The same when the last of these iterations has just ended: what follows that one is still to come.
    pub fn at(&self, iterations: u32) -> f64 {
        self.behind(iterations.saturating_sub(1)) + f64::from(iterations.min(1))
    }
}

/// What is known of a job on the CPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuCost {
    /// Images of a rank's batch.
    pub batch_size: u32,
    /// Memory of a rank.
    pub memory: BatchMemory,
}

impl JobCost {
    /// Of jobs of which nothing is known but that they are alike.
    pub const EQUAL: JobCost = JobCost { work: 1.0, dtype: None, on_cpu: None };

    /// Of a training run on the CPU.
    pub fn of_training(train: &TrainConfig) -> JobCost {
        let TrainConfig { model, dtype, layout, batch_size, iterations, .. } = *train;
        let image_size = train.image_size();
        let facts = model.facts();
        let images = f64::from(batch_size) * f64::from(iterations);
        let memory = facts.training_memory.at(dtype, layout.of(dtype, DeviceKind::Cpu), facts.pixels_ratio(image_size));
        JobCost {
            work: PASSES_OF_TRAINING * images * facts.gmacs_at(image_size),
            dtype: Some(dtype),
            on_cpu: Some(CpuCost { batch_size, memory }),
        }
    }

    /// Of a training run of so many `iterations` that predicts at the ends of its epochs as well.
    pub fn with_validation(self, iterations: u32, validation: ValidationCost) -> JobCost {
        JobCost { work: self.work * validation.behind(iterations) / f64::from(iterations), ..self }
    }

    /// Of a scoring run on the CPU.
    pub fn of_scoring(score: &ScoreConfig) -> JobCost {
        let ScoreConfig { model, dtype, layout, batch_size, iterations, warmup, .. } = *score;
        let image_size = score.image_size();
        let facts = model.facts();
        let images = f64::from(batch_size) * f64::from(iterations.saturating_add(warmup));
        let memory = facts.scoring_memory.at(dtype, layout.of(dtype, DeviceKind::Cpu), facts.pixels_ratio(image_size));
        JobCost {
            work: images * facts.gmacs_at(image_size),
            dtype: Some(dtype),
            on_cpu: Some(CpuCost { batch_size, memory }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn train(batch_size: u32) -> TrainConfig {
        TrainConfig { batch_size, iterations: 25, ..TrainConfig::default() }
    }

    #[test]
    fn work_grows_with_images_and_pixels() {
        let work = |train: TrainConfig| JobCost::of_training(&train).work;
        assert!((work(train(8)) - 3.0 * 4.089 * 200.0).abs() < 1e-9);
        assert!((work(train(16)) / work(train(8)) - 2.0).abs() < 1e-9);
        assert!((work(TrainConfig { image_size: Some(112), ..train(8) }) / work(train(8)) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn predictions_at_the_ends_of_epochs_take_a_third_of_training() {
        let train = TrainConfig { iterations: 150, ..train(16) };
        let images = EpochImages { trained: 1600, predicted: 600 };
        // Two ranks have 50 iterations an epoch and predict 19 batches behind each; one has 100, and 38 behind the first alone.
        let work = |ranks: u32| {
            let cost = JobCost::of_training(&train);
            let with = cost.with_validation(train.iterations, ValidationCost::of(&train, ranks, images));
            assert_eq!(with.on_cpu, cost.on_cpu);
            with.work / cost.work
        };
        assert!((work(2) - (150.0 + 3.0 * 19.0 / 3.0) / 150.0).abs() < 1e-12);
        assert!((work(1) - (150.0 + 38.0 / 3.0) / 150.0).abs() < 1e-12);
        let of_two = ValidationCost::of(&train, 2, images);
        assert_eq!([0, 1, 50, 51].map(|iteration| of_two.at(iteration)), [0.0, 1.0, 50.0, 51.0 + 19.0 / 3.0]);
    }

    #[test]
    fn scoring_takes_less_than_training() {
        let score = ScoreConfig { batch_size: 8, ..ScoreConfig::default() };
        let (score, train) = (JobCost::of_scoring(&score), JobCost::of_training(&train(8)));
        let memory = |cost: JobCost| cost.on_cpu.map(|cpu| cpu.memory.of_batch(cpu.batch_size).0);
        assert!(score.work < train.work && memory(score) < memory(train));
    }
}
