//! One scoring run: its log, the record beside it, and whether it counts. Not for comparing runs.

use std::path::Path;

use ringmark_record::benchmark::score::config::ScoreConfig;
use ringmark_record::benchmark::score::record::ScoreRecord;
use ringmark_record::benchmark::warning::Warning;
use ringmark_record::benchmark::{Profile, SweepRecord};
use ringmark_record::dimension::device::{DeviceChoice, DeviceKind};
use ringmark_record::dimension::model::Model;
use ringmark_record::dimension::units::{Bytes, ImagesPerSecond, Seconds};
use ringmark_record::host::environment::{Environment, RankPlace};
use ringmark_record::host::resource_use::HostUse;
use ringmark_record::line::log::Log;
use ringmark_record::trace::config::TraceConfig;
use ringmark_record::validity::observed::Observed;
use ringmark_record::validity::{self, ForeignLoad};

use crate::read::load::every_record::{self, DeviceRates};
use crate::read::load::folder::FoundRun;
use crate::read::load::log;
use crate::read::load::problem::Problem;

/// A run that was found, counted or not.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRun {
    /// Which run, and where its log is.
    pub found: FoundRun,
    /// What its record says of the conditions; `None` without a readable record.
    pub recorded: Option<ScoreRecorded>,
    /// Its figures, or why it has none.
    pub outcome: Result<ScoreMeasured, Problem>,
}

/// What a record says of the conditions.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreRecorded {
    /// What has to be equal for two runs to stand in one table.
    pub conditions: ScoreConditions,
    /// Where its ranks ran.
    pub ranks: Vec<RankPlace>,
    /// Versions of what ran.
    pub software: String,
    /// What rank 0 found.
    pub environment: Environment,
    /// Start, seconds since 1970 UTC.
    pub started: Seconds,
}

/// What the runs of one table share.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreConditions {
    /// Kind of every rank's device.
    pub device: DeviceKind,
    /// How the run was meant.
    pub profile: Profile,
    /// What was asked; at their defaults the axes of a table (network, precision, batch size), and what may differ (seed,
    /// record, choice of device, a size of images that is the network's own).
    pub config: ScoreConfig,
}

impl ScoreConditions {
    /// Height and width of the images of `model` in pixels.
    pub fn image_size(&self, model: Model) -> u32 {
        model.image_size(self.config.image_size)
    }
}

/// Figures of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoreMeasured {
    /// Of all ranks, over the time of the slowest: [`ScoreRecord::speed`].
    pub speed: ImagesPerSecond,
    /// `ranks x batch size / speed`: a pass of the slowest rank.
    pub mean_pass: Seconds,
    /// Times of all passes of all ranks, in seconds.
    pub passes: Vec<f64>,
    /// Memory of the rank that held most; `None` where the record does not tell.
    pub peak_memory: Option<Bytes>,
    /// What its devices can do, as far as the record tells.
    pub device_rates: DeviceRates,
    /// What every host did meanwhile.
    pub host_use: Vec<HostUse>,
    /// Worked out again from the record.
    pub warnings: Vec<Warning>,
    /// What others took of the hosts' core time; `None` where the record does not tell.
    pub foreign_load: Option<ForeignLoad>,
}

/// Reads the run at `root`/`found.log`.
pub fn read(root: &Path, found: &FoundRun) -> ScoreRun {
    judge(found, log::read(root, &found.log), every_record::beside(root, &found.log))
}

/// The same of a log and a record that are read; `Ok(None)` where there is no record.
pub fn judge(found: &FoundRun, log: Result<Log, Problem>, record: Result<Option<ScoreRecord>, Problem>) -> ScoreRun {
    let recorded = record.as_ref().ok().and_then(Option::as_ref).map(recorded);
    let outcome = log.and_then(|log| measure(found, log, record));
    ScoreRun { found: found.clone(), recorded, outcome }
}

/// Decides whether a run counts, the most telling reason first, and works out its figures. Of the log only the launcher's
/// word counts: all times are in the record.
fn measure(found: &FoundRun, log: Log, record: Result<Option<ScoreRecord>, Problem>) -> Result<ScoreMeasured, Problem> {
    if let Some(remark) = log.failure {
        return Err(Problem::in_log(&found.log, remark));
    }
    let Some(record) = record? else {
        return Err(Problem::in_file(
            &found.log,
            "no record beside the log, and without one nothing counts: repeat the run",
        ));
    };
    figures(found, &record).map_err(|what| Problem::in_file(found.log.with_extension("jsonl"), what))
}

fn figures(found: &FoundRun, record: &ScoreRecord) -> Result<ScoreMeasured, String> {
    let ScoreConfig { batch_size, iterations, .. } = record.config;
    record.check(&found.name)?;
    let speed = record.speed().ok_or("no timed pass, or all of them of 0 s: repeat the run")?;
    every_record::check_speed(speed)?;
    let images = f64::from(batch_size) * f64::from(found.name.case.ranks());
    let seen = Observed::new(&record.ranks, &record.host_use, &record.rank_use, iterations);
    Ok(ScoreMeasured {
        speed,
        mean_pass: Seconds(images / speed.0),
        passes: record.seconds.iter().flatten().map(|pass| pass.0).collect(),
        peak_memory: every_record::peak_memory(&record.peak_memory),
        device_rates: DeviceRates::new(&record.ranks, &record.matrix_product, record.config.dtype),
        host_use: record.host_use.clone(),
        warnings: validity::host_warnings(&seen),
        foreign_load: validity::foreign_load(&seen),
    })
}

fn recorded(record: &ScoreRecord) -> ScoreRecorded {
    let defaults = ScoreConfig::default();
    let config = ScoreConfig {
        model: defaults.model,
        dtype: defaults.dtype,
        batch_size: defaults.batch_size,
        device: DeviceChoice::Auto,
        seed: defaults.seed,
        record: None,
        trace: TraceConfig::default(),
        // Each network's own size is one condition, whatever it is.
        image_size: record.config.image_size.filter(|size| *size != record.config.model.image_size(None)),
        ..record.config.clone()
    };
    let device = record.ranks.first().map_or(DeviceKind::Cpu, |rank| rank.device);
    ScoreRecorded {
        conditions: ScoreConditions { device, profile: record.profile, config },
        ranks: record.ranks.clone(),
        software: every_record::software(&record.environment),
        environment: record.environment.clone(),
        started: record.started,
    }
}
