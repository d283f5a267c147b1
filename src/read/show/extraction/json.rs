//! Figures for programs: DLPerf's JSON with our own fields in each case.
//!
//! The JSON is `{"rn50": {"1n1g": {"average_speed": .., "batch_size_per_device": .., "median_speed": .., "speedup": ..,
//! ours}, ..}}`. Where conditions differ within a folder there is one such key for every table, never `rn50` itself,
//! so that a reader that knows only `rn50` cannot take one of them for the whole. A case without a counted run has
//! `null` for its speeds, and `speedup` is `null` where it would not be over 1n1g.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_record::benchmark::Profile;
use ringmark_record::benchmark::warning::Warning;
use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::dtype::Dtype;
use ringmark_record::dimension::model::Model;
use ringmark_record::dimension::phase::Phases;
use ringmark_record::dimension::units::{ImagesPerSecond, Seconds};
use ringmark_record::stats::scaling_loss::{MeanDifference, Part};
use ringmark_record::stats::summary::step_percentiles;
use schemars::{JsonSchema, Schema, schema_for};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::read::analyse::figures::{CaseRuns, Extraction, Group};
use crate::read::analyse::grouping::settings;
use crate::read::analyse::scaling_loss::{self, CaseLoss};
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::record::{Measured, Run, to_hundredths};

/// Version of what a case holds. In version 1 it was not written, and `environment` was called `surroundings`.
pub const SCHEMA: u32 = 2;

/// One case in the JSON; the first four fields are DLPerf's, in its order. Speeds in images/s over all ranks.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonCase {
    average_speed: Option<ImagesPerSecond>,
    batch_size_per_device: u32,
    median_speed: Option<ImagesPerSecond>,
    /// Over 1n1g, 2 decimals; `null` where no run of 1n1g counts.
    speedup: Option<f64>,
    /// [`SCHEMA`].
    schema: u32,
    images_over_time: Option<ImagesPerSecond>,
    images_per_second_per_gpu: Option<ImagesPerSecond>,
    /// Case that the two next figures are relative to.
    base: Option<Case>,
    speedup_over_base: Option<f64>,
    /// 1 is perfect.
    efficiency: Option<f64>,
    /// Sample standard deviation of the runs' speeds over their mean.
    cv: Option<f64>,
    ranks: u32,
    model: Model,
    dtype: Dtype,
    /// `null` where there is no record.
    device: Option<DeviceKind>,
    device_names: BTreeSet<String>,
    /// What the case's ranks had on the CPU, which there is the size of a device; none where there is no record.
    threads_per_rank: BTreeSet<u32>,
    /// `null` where there is no record.
    profile: Option<Profile>,
    runs_counted: usize,
    seconds_per_iteration: Option<JsonTimes>,
    /// `null` where no such run was found.
    without_communication: Option<JsonBaseline>,
    /// Against the base; `null` for the base itself.
    scaling_loss: Option<JsonLoss>,
    /// Of the table, then of the case's runs.
    warnings: Vec<String>,
    runs: Vec<JsonRun>,
    /// Options of the runs as their records hold them.
    settings: BTreeMap<String, Value>,
    /// Devices, hosts, versions and variables of the counted runs.
    environment: EnvironmentText,
}

/// The same ranks without communication; speeds are summed over ranks, of which none waits for another.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonBaseline {
    median_speed: Option<ImagesPerSecond>,
    images_over_time: Option<ImagesPerSecond>,
    images_per_second_per_gpu: Option<ImagesPerSecond>,
    /// Over the case's base, as the next.
    speedup_over_base: Option<f64>,
    efficiency: Option<f64>,
    cv: Option<f64>,
    /// The case's step / this step - 1.
    communication_cost: Option<f64>,
    runs_counted: usize,
    seconds_per_iteration: Option<JsonTimes>,
    warnings: Vec<String>,
    runs: Vec<JsonRun>,
}

/// Means over ranks, iterations and runs, in seconds.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonTimes {
    step: Seconds,
    #[serde(flatten)]
    phases: Phases<Seconds>,
    /// `exposed_allreduce / step`.
    exposed_allreduce_share: f64,
}

/// One run in the JSON.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonRun {
    run: u32,
    log: String,
    status: Status,
    /// Why the run does not count, with file and line.
    left_out: Option<String>,
    /// Seconds since 1970 UTC; `null` where there is no record.
    started: Option<Seconds>,
    iterations: Option<usize>,
    warmup: Option<usize>,
    speed: Option<ImagesPerSecond>,
    images_over_time: Option<ImagesPerSecond>,
    iteration_seconds: Option<JsonIterations>,
    last_loss: Option<f64>,
    skipped_steps: Option<u32>,
    warnings: Vec<Warning>,
}

/// Times of a run's iterations after warm-up, over all ranks, in seconds.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonIterations {
    /// `images / mean` is the run's images over time.
    mean: f64,
    p50: f64,
    p75: f64,
    p90: f64,
    p95: f64,
}

/// Whether a run is in the figures.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Counted,
    LeftOut,
}

impl From<IterationTimes> for JsonTimes {
    fn from(times: IterationTimes) -> JsonTimes {
        JsonTimes { step: times.step, phases: times.phases, exposed_allreduce_share: times.exposed_share() }
    }
}

impl From<&Run> for JsonRun {
    fn from(run: &Run) -> JsonRun {
        let measured = run.outcome.as_ref().ok();
        let iterations = measured.and_then(Measured::iterations);
        JsonRun {
            run: run.found.name.run,
            log: run.found.log.display().to_string(),
            status: if measured.is_some() { Status::Counted } else { Status::LeftOut },
            left_out: run.outcome.as_ref().err().map(ToString::to_string),
            started: run.recorded.as_ref().map(|recorded| recorded.started),
            iterations: iterations.map(|[all, _]| all),
            warmup: iterations.map(|[_, warmup]| warmup),
            speed: measured.map(|measured| measured.speed),
            images_over_time: measured.map(|measured| ImagesPerSecond(to_hundredths(measured.images_over_time.0))),
            iteration_seconds: measured.and_then(|measured| {
                let [p50, p75, p90, p95] = step_percentiles(measured.pooled_steps())?;
                Some(JsonIterations { mean: run.mean_iteration()?.0, p50, p75, p90, p95 })
            }),
            last_loss: measured.and_then(|measured| measured.last_loss),
            skipped_steps: measured.and_then(|measured| measured.skipped_steps),
            warnings: measured.map(|measured| measured.warnings.clone()).unwrap_or_default(),
        }
    }
}

fn json_case(group: &Group, case: &CaseRuns) -> JsonCase {
    let figures = case.figures.as_ref();
    let recorded = group.conditions.recorded.as_ref();
    JsonCase {
        average_speed: figures.map(|figures| figures.average_speed),
        batch_size_per_device: group.conditions.batch_size,
        median_speed: figures.map(|figures| figures.median_speed),
        speedup: figures.filter(|_| group.base == Some(Case::SINGLE)).map(|figures| to_hundredths(figures.speedup)),
        schema: SCHEMA,
        images_over_time: figures.map(|figures| figures.images_over_time),
        images_per_second_per_gpu: figures.map(|figures| figures.per_gpu),
        base: group.base,
        speedup_over_base: figures.map(|figures| figures.speedup),
        efficiency: figures.map(|figures| figures.efficiency),
        cv: figures.and_then(|figures| figures.cv),
        ranks: case.case.ranks(),
        model: group.conditions.model,
        dtype: group.conditions.dtype,
        device: recorded.map(|recorded| recorded.device),
        device_names: group.device_names.clone(),
        threads_per_rank: case.threads(),
        profile: recorded.map(|recorded| recorded.profile),
        runs_counted: case.counted().count(),
        seconds_per_iteration: figures.and_then(|figures| figures.times).map(JsonTimes::from),
        without_communication: case.baseline.as_ref().map(|baseline| json_baseline(case, baseline)),
        scaling_loss: scaling_loss::of_case(group, case).as_ref().map(JsonLoss::from),
        warnings: group.warnings.iter().chain(&case.warnings).cloned().collect(),
        runs: case.runs.iter().map(JsonRun::from).collect(),
        settings: settings(&group.conditions),
        environment: environment::of_runs(&case.runs),
    }
}

fn json_baseline(case: &CaseRuns, baseline: &CaseRuns) -> JsonBaseline {
    let figures = baseline.figures.as_ref();
    JsonBaseline {
        median_speed: figures.map(|figures| figures.median_speed),
        images_over_time: figures.map(|figures| figures.images_over_time),
        images_per_second_per_gpu: figures.map(|figures| figures.per_gpu),
        speedup_over_base: figures.map(|figures| figures.speedup),
        efficiency: figures.map(|figures| figures.efficiency),
        cv: figures.and_then(|figures| figures.cv),
        communication_cost: case.communication_cost(),
        runs_counted: baseline.counted().count(),
        seconds_per_iteration: figures.and_then(|figures| figures.times).map(JsonTimes::from),
        warnings: baseline.warnings.clone(),
        runs: baseline.runs.iter().map(JsonRun::from).collect(),
    }
}

/// DLPerf's JSON with our fields; cases in the order of the tables.
pub fn json(extraction: &Extraction) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(&Groups(&extraction.groups))? + "\n")
}

/// The JSON Schema of the file.
pub fn schema() -> Schema {
    schema_for!(BTreeMap<String, BTreeMap<String, JsonCase>>)
}

/// What DLPerf's JSON holds: cases by group.
#[derive(Debug)]
pub struct Groups<'a>(pub &'a [Group]);

/// Cases by name.
struct Cases<'a>(&'a Group);

impl Serialize for Groups<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|group| (&group.label, Cases(group))))
    }
}

impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.cases.iter().map(|case| (case.case.to_string(), json_case(self.0, case))))
    }
}

/// For the JSON of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonLoss {
    base: Case,
    base_seconds: Seconds,
    seconds: Seconds,
    /// By images over time: `base_seconds / seconds`.
    efficiency: f64,
    ideal_speed: ImagesPerSecond,
    total: JsonLossPart,
    /// They add up to the total; none where there are no records.
    parts: Vec<JsonLossPart>,
    /// They add up to the part `compute`; none without runs of the same ranks without any exchange.
    compute: Vec<JsonLossPart>,
}

/// One part of the loss, or the whole.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonLossPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'static str>,
    /// Below zero it is a gain.
    seconds: Seconds,
    /// Half of the 95 % confidence interval of the difference of the means over runs; `null` with one run on a side.
    margin_seconds: Option<Seconds>,
    images_per_second: ImagesPerSecond,
    /// Of 1 - efficiency.
    efficiency: f64,
    /// `null` where nothing was lost.
    share_of_loss: Option<f64>,
}

impl From<&CaseLoss> for JsonLoss {
    fn from(case: &CaseLoss) -> JsonLoss {
        let json = |part: Option<Part>, difference: MeanDifference| JsonLossPart {
            part: part.map(Part::key),
            seconds: Seconds(difference.mean),
            margin_seconds: difference.margin.map(Seconds),
            images_per_second: case.rate_lost(difference.mean),
            efficiency: case.loss.efficiency_lost(difference.mean),
            share_of_loss: case.loss.share(difference.mean),
        };
        let of = |(part, difference): &(Part, MeanDifference)| json(Some(*part), *difference);
        JsonLoss {
            base: case.base,
            base_seconds: Seconds(case.loss.base_step),
            seconds: Seconds(case.loss.step),
            efficiency: case.loss.efficiency(),
            ideal_speed: case.ideal,
            total: json(None, case.loss.total),
            parts: case.loss.parts.iter().map(of).collect(),
            compute: case.loss.compute.iter().map(of).collect(),
        }
    }
}
