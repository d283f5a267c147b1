//! Reader for scoring runs.

use anyhow::Context;
use ringmark_core::benchmark::SweepRecord;
use ringmark_core::benchmark::score::{ScoreConfig, ScoreRecord};
use ringmark_core::dimension::{BatchShape, DeviceChoice, Model, SampleSize};
use ringmark_core::line::log::Log;
use ringmark_core::trace::TraceConfig;
use ringmark_core::validity;

use crate::read::load::device_rates::DeviceRates;
use crate::read::load::folder::FoundRun;
use crate::read::load::problem::Problem;
use crate::read::load::record;
use crate::read::load::run::{Measured, Readable, RecordedConditions};

/// Conditions that the runs of one table share. The axes of the table (network, precision, batch size) have their
/// default values.
pub type ScoreConditions = RecordedConditions<ScoreConfig>;

impl ScoreConditions {
    /// Returns the size of a sample of `model` in a batch of this shape.
    pub fn sample_size(&self, model: Model, batch: BatchShape) -> SampleSize {
        model.sample_size(self.config.image_size, batch.sequence_length)
    }
}

/// Times of a scoring run.
#[derive(Debug, Clone, PartialEq)]
pub struct PassTimes {
    /// Durations of all passes of all ranks, in seconds.
    pub seconds: Vec<f64>,
}

impl Readable for ScoreRecord {
    type Facts = ();
    type Figures = PassTimes;

    fn shared_config(&self, _: Option<u32>) -> ScoreConfig {
        let ScoreConfig { dtype, batch_size, seed, .. } = ScoreConfig::default();
        ScoreConfig {
            // The unit of work is a condition; the network is not.
            model: Model::of_unit(self.config.model.unit()),
            dtype,
            batch_size,
            device: DeviceChoice::Auto,
            seed,
            record: None,
            trace: TraceConfig::default(),
            // The default sizes of all networks count as the same condition.
            image_size: self.config.image_size.filter(|size| Some(*size) != self.config.model.image_size(None)),
            sequence_length: None,
            ..self.config.clone()
        }
    }

    fn facts(&self) {}

    /// Measures from the record alone: the log contains no times.
    fn measure(
        found: &FoundRun,
        _: Log,
        record: Option<ScoreRecord>,
        _: Option<u32>,
    ) -> Result<Measured<ScoreRecord>, Problem> {
        let missing = "record missing: repeat the run";
        let record = record.ok_or_else(|| Problem::in_file(&found.log, missing))?;
        figures(found, &record).map_err(|error| Problem::from_error(found.log.with_extension("jsonl"), &error))
    }
}

fn figures(found: &FoundRun, record: &ScoreRecord) -> anyhow::Result<Measured<ScoreRecord>> {
    record.check(&found.name)?;
    let speed = record.speed().context("no timed passes, or all of them took 0 s: repeat the run")?;
    record::check_speed(speed, record.config.model.unit())?;
    Ok(Measured {
        speed,
        peak_memory: record::peak_memory(&record.peak_memory),
        device_rates: DeviceRates::new(&record.ranks, &record.matrix_product, record.config.dtype),
        host_use: record.host_use.clone(),
        foreign_load: validity::foreign_load(record),
        warnings: validity::host_warnings(record),
        figures: PassTimes { seconds: record.seconds.iter().flatten().map(|pass| pass.0).collect() },
    })
}
