//! Training for accuracy rather than for timing alone: epochs, validation, learning-rate schedule and checkpoints.
//! Configuration, options and recorded results.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::data_input::DataFiles;
use crate::benchmark::is_default;
use crate::benchmark::strategy::StrategyConfig;
use crate::benchmark::train::checkpoint_write::CheckpointMode;
use crate::dimension::Seconds;
use crate::options::value::OptionValue;
use crate::{config_options, keyword_enum};

keyword_enum!(
    /// Learning-rate schedule after warm-up.
    LearningRateSchedule {
        /// Constant, except for the steps of `--lr-step-epochs`.
        Constant = "constant",
        /// Decreases to 0 at the end of the run along half a cosine (Loshchilov and Hutter, SGDR, 2016).
        Cosine = "cosine",
    }
);

/// Epoch numbers in ascending order; an action is taken at the end of each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct EpochList(Vec<u32>);

impl OptionValue for EpochList {
    fn text(&self) -> String {
        self.0.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }

    fn parse(text: &str) -> Result<EpochList> {
        text.parse()
    }
}

impl FromStr for EpochList {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<EpochList> {
        let numbers = text.split(',').map(|number| number.trim().parse().ok().filter(|number| *number > 0));
        let epochs: Vec<u32> =
            numbers.collect::<Option<_>>().context("epochs must be whole numbers of at least 1, such as 30,60,80")?;
        ensure!(epochs.is_sorted_by(|one, next| one < next), "epochs must increase");
        Ok(EpochList(epochs))
    }
}

config_options! {
    /// Configuration of epochs, validation, learning-rate schedule and checkpoints.
    LearningConfig {
        /// Number of epochs; `None` if the run length is given in iterations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epochs: Option<u32> = None => option("epochs", "N",
            "Epochs to train on --data, instead of --iters")
            .range(1u32..=100_000).aliases(&["num-epochs"]).free_on_resume_if(|learning| !learning.ends_with_run()),
        /// Validation images, classified at the end of every epoch, or tokens, predicted there.
        #[serde(default)]
        validate: DataFiles = DataFiles::default() => option("validate", "FILES",
            "Data to validate on after every epoch, as --data: loss, and top-1 and top-5 of images or \
             perplexity of tokens")
            .default_is("none").free_on_resume().set_in_baseline(),
        /// Learning-rate schedule after warm-up.
        course: LearningRateSchedule = LearningRateSchedule::Constant => option("lr-schedule", "SCHEDULE",
            "Learning-rate schedule after warm-up; cosine ends at 0"),
        /// Epochs at whose end the learning rate is multiplied by `factor`.
        #[serde(default)]
        step_epochs: EpochList = EpochList::default() => option("lr-step-epochs", "EPOCHS",
            "Multiply the learning rate by --lr-factor at the end of these epochs, such as 30,60,80").default_is("none"),
        /// Multiplier of the learning rate at each of these epochs.
        factor: f64 = 0.1 => option("lr-factor", "FACTOR", "Learning-rate factor at each of --lr-step-epochs")
            .range(0.0..=1.0),
        /// Share of each label that is distributed evenly over all classes (Szegedy et al., Rethinking the Inception
        /// Architecture, 2015).
        label_smoothing: f64 = 0.0 => option("label-smoothing", "SHARE",
            "Label smoothing in the training loss: share of each label spread evenly over all \
             classes").range(0.0..=0.99),
        /// File to which rank 0 writes checkpoints.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint: Option<PathBuf> = None => option("checkpoint", "FILE",
            "File for checkpoints of weights and all other training state (safetensors), written by rank 0; each \
             replaces the previous one").requires("checkpoint-every").for_worker().free_on_resume(),
        /// Iterations between checkpoints.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkpoint_every: Option<u32> = None => option("checkpoint-every", "N",
            "Iterations between checkpoints; in a sweep, --resume continues a run from its last \
             one").range(1u32..=10_000_000).default_is("no checkpoint").set_in_baseline(),
        /// Relation of the writes to the steps.
        #[serde(default, skip_serializing_if = "is_default")]
        checkpoint_mode: CheckpointMode = CheckpointMode::Sync => option("checkpoint-mode", "MODE",
            "sync: training stops until a checkpoint is on disk; async: only until it is copied to host memory, from \
             which a thread of rank 0 writes it").free_on_resume().set_in_baseline(),
        /// Checkpoint from which training resumes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_checkpoint: Option<PathBuf> = None => option("from-checkpoint", "FILE",
            "Resume from this checkpoint, bit for bit, with the options of the run that wrote it; overrides \
             --init").for_worker().free_on_resume(),
        /// Iterations per epoch; present in records of runs that read data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        epoch_iterations: Option<u32> = None,
    }
}

impl LearningConfig {
    /// Returns true if the learning-rate schedule depends on the length of the run.
    pub(super) fn ends_with_run(&self) -> bool {
        self.course == LearningRateSchedule::Cosine
    }

    /// Refuses options that depend on epochs if there are none, or if servers would need the length of an epoch. The
    /// error names the option.
    pub fn check(&self, data: &DataFiles, strategy: &StrategyConfig) -> Result<()> {
        let by_epochs = [
            ("epochs", self.epochs.text()),
            ("validate", self.validate.text()),
            ("lr-step-epochs", self.step_epochs.text()),
        ];
        let typed = by_epochs.iter().find(|(_, value)| !value.is_empty());
        if let Some((name, value)) = typed.filter(|_| !data.are_read()) {
            bail!("--{name} {value} needs a data set: add --data FILE");
        }
        let is_default = |factor: f64| factor == LearningConfig::default().factor;
        ensure!(
            is_default(self.factor) || !self.step_epochs.0.is_empty(),
            "--lr-factor {} needs epochs: add --lr-step-epochs",
            self.factor
        );
        ensure!(
            self.checkpoint_mode == CheckpointMode::Sync || self.checkpoint_every.is_some(),
            "--checkpoint-mode {} needs checkpoints: add --checkpoint-every N",
            self.checkpoint_mode
        );
        // Servers update weights but have no access to the data.
        let of_rate = by_epochs.iter().find(|(name, value)| *name != "validate" && !value.is_empty());
        if let Some((name, value)) = of_rate.filter(|_| strategy.server_ranks() > 0) {
            bail!(
                "--{name} {value} is not supported with servers, which do not know the epoch length: use --iters \
                 instead, or omit --strategy"
            );
        }
        Ok(())
    }

    /// Returns the option that requires all ranks to hold the same model: validation or checkpoints.
    pub fn option_for_one_model(&self) -> Option<&'static str> {
        let validates = !self.validate.text().is_empty();
        validates.then_some("validate").or(self.option_for_checkpoints())
    }

    /// Returns the first checkpoint option that is given.
    pub fn option_for_checkpoints(&self) -> Option<&'static str> {
        let options = [
            ("checkpoint", self.checkpoint.is_some()),
            ("from-checkpoint", self.from_checkpoint.is_some()),
            ("checkpoint-every", self.checkpoint_every.is_some()),
        ];
        options.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// Returns a copy without checkpoint options.
    pub fn without_checkpoints(&self) -> LearningConfig {
        LearningConfig {
            checkpoint: None,
            checkpoint_every: None,
            checkpoint_mode: CheckpointMode::Sync,
            from_checkpoint: None,
            ..self.clone()
        }
    }

    /// Refuses `--checkpoint-every` without a file. The error names the missing option.
    pub fn check_checkpoint(&self) -> Result<()> {
        match (self.checkpoint_every, &self.checkpoint) {
            (Some(every), None) => bail!("--checkpoint-every {every} needs a file: add --checkpoint FILE"),
            _ => Ok(()),
        }
    }

    /// Returns the multiplier of the learning rate in update `update` (from 1) of a run of `iterations`, of which the
    /// first `warmup` are warm-up.
    ///
    /// With steps at epochs 2 and 3 of 10 iterations and factor 0.1, the multiplier is 0.1 in update 21 and 0.01 in
    /// update 31. A cosine over 110 iterations with 10 of warm-up gives 0.5 in update 61:
    /// `(1 + cos(pi x (61 - 11) / 100)) / 2`.
    pub fn rate_factor(&self, update: u32, iterations: u32, warmup: u64) -> f64 {
        let epochs_over = self.epoch_iterations.map_or(0, |epoch| (update - 1) / epoch);
        let steps = self.step_epochs.0.iter().filter(|epoch| **epoch <= epochs_over).count();
        let stepped = self.factor.powi(steps as i32);
        match self.course {
            LearningRateSchedule::Constant => stepped,
            LearningRateSchedule::Cosine => {
                let length = u64::from(iterations).saturating_sub(warmup).max(1) as f64;
                let done = u64::from(update).saturating_sub(warmup + 1) as f64;
                stepped * 0.5 * (1.0 + (std::f64::consts::PI * (done / length).min(1.0)).cos())
            }
        }
    }
}

/// Results of a completed epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EpochEnd {
    /// Epoch number, from 1.
    pub epoch: u32,
    /// Last iteration of the epoch.
    pub iteration: u32,
    /// Mean loss of the epoch's global batches; `null` if not finite.
    pub loss: Option<f64>,
    /// Validation results at the end of the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
}

/// Results on images, or sequences of tokens, that were not used for training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Validation {
    /// Number of images or sequences, over all ranks.
    #[serde(rename = "images")]
    pub samples: u64,
    /// Mean cross entropy of an image or token; `null` if not finite.
    pub loss: Option<f64>,
    /// Top-1 accuracy: share of images whose class is the most likely one. Absent for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_1: Option<f64>,
    /// Top-5 accuracy: share of images whose class is among the five most likely ones. Absent for language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_5: Option<f64>,
    /// Images that could not be decoded; for each of them another one was classified twice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skipped: u64,
    /// Duration of the validation.
    pub time: Seconds,
}

impl Validation {
    /// Returns the perplexity of a token, `exp(loss)`; `None` for images, and if the loss is not finite.
    pub fn perplexity(&self) -> Option<f64> {
        self.loss.filter(|_| self.top_1.is_none()).map(f64::exp)
    }
}

impl EpochEnd {
    /// Formats one line, such as
    /// `epoch 3: loss 0.4120; validation of 10000 images: loss 0.3900, top-1 0.8612, top-5 0.9971, in 1.9 s`. For language
    /// models, the perplexity `exp(loss)` replaces the accuracy.
    pub fn text(&self) -> String {
        let number = |loss: Option<f64>| loss.map_or_else(|| "NaN".to_owned(), |loss| format!("{loss:.4}"));
        let validation = self.validation.map(|validation| {
            let Validation { samples, loss, top_1, top_5, skipped, time } = validation;
            let skipped = if skipped == 0 { String::new() } else { format!(", {skipped} of them skipped") };
            let (name, quality) = match (top_1, top_5) {
                (Some(top_1), Some(top_5)) => ("images", format!("top-1 {top_1:.4}, top-5 {top_5:.4}")),
                _ => ("sequences", format!("perplexity {}", number(validation.perplexity()))),
            };
            format!("; validation of {samples} {name}{skipped}: loss {}, {quality}, in {time:.1}", number(loss))
        });
        format!("epoch {}: loss {}{}", self.epoch, number(self.loss), validation.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_follows_steps_and_cosine() {
        let stepped = LearningConfig {
            step_epochs: "2,3".parse().expect("epochs"),
            epoch_iterations: Some(10),
            ..LearningConfig::default()
        };
        for (update, expected) in [(1, 1.0), (20, 1.0), (21, 0.1), (30, 0.1), (31, 0.1 * 0.1), (99, 0.1 * 0.1)] {
            assert!((stepped.rate_factor(update, 100, 0) - expected).abs() < 1e-15, "update {update}");
        }
        let cosine = LearningConfig { course: LearningRateSchedule::Cosine, ..LearningConfig::default() };
        for (update, expected) in [(1, 1.0), (11, 1.0), (61, 0.5), (111, 0.0), (200, 0.0)] {
            assert!((cosine.rate_factor(update, 110, 10) - expected).abs() < 1e-15, "update {update}");
        }
    }

    #[test]
    fn epochs_need_data_and_no_servers() {
        let data = DataFiles::parse("a.rec").expect("data");
        let ring = StrategyConfig::default();
        let epochs = LearningConfig { epochs: Some(3), ..LearningConfig::default() };
        epochs.check(&data, &ring).expect("data are read");
        let error = epochs.check(&DataFiles::default(), &ring).expect_err("synthetic").to_string();
        assert_eq!(error, "--epochs 3 needs a data set: add --data FILE");
        let servers = StrategyConfig { strategy: "dist_sync".parse().expect("a strategy"), servers: Some(1), ..ring };
        assert!(epochs.check(&data, &servers).expect_err("servers").to_string().starts_with(
            "--epochs 3 is not \
             supported with servers"
        ));
        let asynchronous = LearningConfig { checkpoint_mode: CheckpointMode::Async, ..LearningConfig::default() };
        let error = asynchronous.check(&data, &ring).expect_err("no checkpoints").to_string();
        assert_eq!(error, "--checkpoint-mode async needs checkpoints: add --checkpoint-every N");
        LearningConfig { checkpoint_every: Some(5), ..asynchronous }.check(&data, &ring).expect("checkpoints");
        for text in ["30,30", "0", "a", ""] {
            assert!(text.parse::<EpochList>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn epoch_is_one_line() {
        let validation = Validation {
            samples: 10_000,
            loss: Some(0.39),
            top_1: Some(0.8612),
            top_5: Some(0.9971),
            skipped: 0,
            time: Seconds(1.94),
        };
        let end = EpochEnd { epoch: 3, iteration: 30, loss: Some(0.412), validation: Some(validation) };
        let expected =
            "epoch 3: loss 0.4120; validation of 10000 images: loss 0.3900, top-1 0.8612, top-5 0.9971, in 1.9 s";
        assert_eq!(end.text(), expected);
        let tokens = Validation { loss: Some(2.0), top_1: None, top_5: None, ..validation };
        let expected = "epoch 3: loss 0.4120; validation of 10000 sequences: loss 2.0000, perplexity 7.3891, in 1.9 s";
        assert_eq!(EpochEnd { validation: Some(tokens), ..end.clone() }.text(), expected);
        assert_eq!(EpochEnd { loss: None, validation: None, ..end }.text(), "epoch 3: loss NaN");
    }
}
