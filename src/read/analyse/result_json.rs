//! The result file of training: one row for each case. Writer and parser.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use anyhow::{Context, ensure};
use ringmark_core::benchmark::RunProfile;
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::dimension::{Bytes, Case, DeviceKind, Dtype, ImagesPerSecond, KvStore, Model, Phases, Seconds};
use ringmark_core::file::schema;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::{Difference, LossPart};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::read::analyse::accuracy::{self, Accuracy};
use crate::read::analyse::case_runs::SecondsOfRun;
use crate::read::analyse::cost::{Cost, Price};
use crate::read::analyse::energy::{self, Energy};
use crate::read::analyse::figures::{DlperfFigures, Extraction, Group, TrainedCase};
use crate::read::analyse::grouping::settings;
use crate::read::analyse::reliability::ReliabilityWarning;
use crate::read::analyse::scaling_loss::{self, CaseLoss};
use crate::read::analyse::utilisation::{self, Utilisation};
use crate::read::analyse::work_load::{self, WorkCost};
use crate::read::load::content::{RESULT, model_of};
use crate::read::load::environment::EnvironmentText;
use crate::read::load::folder::Shortage;
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::{self, Run};

/// Version of this file format. Versions 1 and 2 had no kind: they were DLPerf's JSON, cases by name in groups by name, with
/// our fields in each case. Version 3 called `is_reliable` `is_quotable`, and `reliability_warnings` `objections`.
const SCHEMA: u32 = 4;

/// A whole result.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonResult {
    /// Always `ringmark-result`.
    kind: &'static str,
    /// Version of the format.
    schema: u32,
    /// Last part of the folder's path.
    name: String,
    /// In the order of the tables.
    rows: Vec<JsonRow>,
    /// Batches that the device has no memory for, in a sweep of several.
    out_of_memory: Vec<Shortage>,
    /// What is not in the figures, and why, with its file.
    left_out: Vec<String>,
    /// SHA-256 of the files that extract wrote with this one, by name; absent from what `--json` and `--format` write.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    files_sha256: BTreeMap<String, String>,
}

/// One case. A case without a counted run has `null` for its figures.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonRow {
    /// Equal in all rows of equal conditions: the model's name in file names, with what tells groups apart where there are
    /// several.
    pub group: String,
    /// `2n8g`: nodes, and ranks a node.
    pub case: Case,
    /// All ranks.
    #[serde(default)]
    ranks: u32,
    /// Network.
    pub model: Model,
    /// Precision of the step.
    pub dtype: Dtype,
    /// Images a rank and iteration.
    pub batch_size_per_device: u32,
    /// Where gradients are summed and weights updated; not there for `ring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    kv_store: Option<KvStore>,
    /// `null` where there is no record.
    pub device: Option<DeviceKind>,
    #[serde(default)]
    device_names: BTreeSet<String>,
    /// What the case's ranks had on the CPU, which there is the size of a device; none where there is no record.
    #[serde(default)]
    threads_per_rank: BTreeSet<u32>,
    /// `null` where there is no record.
    pub profile: Option<RunProfile>,
    /// Of all ranks: all images of a run over all its time, the median over runs.
    #[serde(skip_deserializing)]
    images_per_second: Option<ImagesPerSecond>,
    #[serde(skip_deserializing)]
    images_per_second_per_rank: Option<ImagesPerSecond>,
    /// Case that the two next figures are relative to.
    pub base: Option<Case>,
    /// Kv-store that this case ran with: the row's own, or `ring` where a sweep ran the single rank once for all of them.
    #[serde(skip_deserializing)]
    base_kv_store: Option<KvStore>,
    #[serde(skip_deserializing)]
    speedup_over_base: Option<f64>,
    /// `speedup_over_base / (ranks / ranks of the base)`: 1 is perfect.
    #[serde(skip_deserializing)]
    efficiency: Option<f64>,
    /// Sample standard deviation of the runs' images/s over their mean.
    #[serde(skip_deserializing)]
    cv: Option<f64>,
    /// Memory of the rank that held most, in any counted run: on a GPU what tensors held, on the CPU what was resident.
    /// `null` where no record says it.
    #[serde(skip_deserializing)]
    peak_memory_bytes: Option<Bytes>,
    /// `null` without a record.
    #[serde(skip_deserializing)]
    arithmetic: Option<Utilisation>,
    /// Absent without `--validate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    accuracy: Option<Accuracy>,
    /// Not there where the power of a host is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    energy: Option<Energy>,
    /// With `--price` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    cost: Option<Cost>,
    /// True unless these figures are unreliable.
    #[serde(skip_deserializing)]
    is_reliable: bool,
    /// What does, and what to do.
    #[serde(default, alias = "objections")]
    pub reliability_warnings: Vec<ReliabilityWarning>,
    #[serde(default)]
    runs_counted: usize,
    #[serde(skip_deserializing)]
    seconds_per_iteration: Option<JsonTimes>,
    /// What `--work-load` cost and saved; not there without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    work_load: Option<WorkCost>,
    /// `null` where no such run was found.
    pub without_communication: Option<JsonBaseline>,
    /// Against the base; `null` for the base itself.
    #[serde(skip_deserializing)]
    scaling_loss: Option<JsonLoss>,
    /// As DLPerf counts.
    #[serde(skip_deserializing)]
    dlperf: Option<DlperfFigures>,
    /// Of the table, then of the case's runs.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// By number.
    #[serde(default)]
    pub runs: Vec<JsonRun>,
    /// Options of the runs as their records hold them.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Devices, hosts, versions and variables of the counted runs.
    #[serde(default, alias = "surroundings")]
    pub environment: EnvironmentText,
}

/// The same ranks without communication, of which none waits for another: all images over the mean of their times.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonBaseline {
    #[serde(skip_deserializing)]
    images_per_second: Option<ImagesPerSecond>,
    #[serde(skip_deserializing)]
    images_per_second_per_rank: Option<ImagesPerSecond>,
    /// Over the case's base, as the next.
    #[serde(skip_deserializing)]
    speedup_over_base: Option<f64>,
    #[serde(skip_deserializing)]
    efficiency: Option<f64>,
    #[serde(skip_deserializing)]
    cv: Option<f64>,
    /// Why these figures are unreliable.
    #[serde(default, alias = "objections")]
    pub reliability_warnings: Vec<ReliabilityWarning>,
    /// The case's step / this step - 1.
    #[serde(skip_deserializing)]
    communication_cost: Option<f64>,
    #[serde(default)]
    runs_counted: usize,
    #[serde(skip_deserializing)]
    seconds_per_iteration: Option<JsonTimes>,
    /// What was seen in its runs.
    pub warnings: Vec<String>,
    /// By number.
    pub runs: Vec<JsonRun>,
}

/// Means over ranks and iterations, medians over runs, in seconds.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonTimes {
    step: Seconds,
    #[serde(flatten)]
    phases: Phases<Seconds>,
    /// `exposed_allreduce / step`.
    exposed_allreduce_share: f64,
}

/// One run in the JSON.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonRun {
    /// Number of the run in its case, from 1.
    pub run: u32,
    #[serde(default)]
    log: String,
    #[serde(skip_deserializing)]
    status: Status,
    /// Why the run does not count, with file and line.
    pub left_out: Option<String>,
    /// Seconds since 1970 UTC; `null` where there is no record.
    #[serde(alias = "started")]
    pub started_unix_seconds: Option<Seconds>,
    /// Warm-up included.
    #[serde(skip_deserializing)]
    iterations: Option<usize>,
    /// The first of them, which are left out.
    #[serde(skip_deserializing)]
    warmup: Option<usize>,
    /// All images over all time.
    #[serde(alias = "images_over_time")]
    pub images_per_second: Option<ImagesPerSecond>,
    /// DLPerf's speed of a run: the mean of its rates, 2 decimals.
    #[serde(skip_deserializing)]
    dlperf_speed: Option<ImagesPerSecond>,
    /// Of the host where others took most of the core time, 0 to 1; `null` where no record tells.
    #[serde(skip_deserializing)]
    foreign_load: Option<f64>,
    /// Not there where the power of a host is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joules_per_image: Option<f64>,
    /// Iterations after warm-up; `null` without times of single iterations.
    pub iteration_seconds: Option<SecondsOfRun>,
    #[serde(skip_deserializing)]
    last_loss: Option<f64>,
    #[serde(skip_deserializing)]
    skipped_steps: Option<u32>,
    #[serde(default)]
    warnings: Vec<Warning>,
}

/// Whether a run is in the figures.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    #[default]
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
        let iterations = measured.and_then(|measured| measured.figures.iterations());
        JsonRun {
            run: run.found.name.run,
            log: run.found.log.display().to_string(),
            status: if measured.is_some() { Status::Counted } else { Status::LeftOut },
            left_out: run.outcome.as_ref().err().map(ToString::to_string),
            started_unix_seconds: run.recorded.as_ref().map(|recorded| recorded.started),
            iterations: iterations.map(|[all, _]| all),
            warmup: iterations.map(|[_, warmup]| warmup),
            images_per_second: measured.map(|measured| measured.speed),
            dlperf_speed: measured.map(|measured| measured.figures.dlperf_speed),
            foreign_load: measured.and_then(|measured| Some(measured.foreign_load.as_ref()?.share)),
            joules_per_image: measured.and_then(energy::joules_per_image),
            iteration_seconds: measured.and_then(|measured| SecondsOfRun::new(run, measured.figures.pooled_steps())),
            last_loss: measured.and_then(|measured| measured.figures.last_loss),
            skipped_steps: measured.and_then(|measured| measured.figures.skipped_steps),
            warnings: measured.map(|measured| measured.warnings.clone()).unwrap_or_default(),
        }
    }
}

fn row(group: &Group, case: &TrainedCase, price: Option<&Price>) -> JsonRow {
    let figures = case.figures.as_ref();
    let recorded = group.conditions.recorded.as_ref();
    JsonRow {
        group: group.label.clone(),
        case: case.case,
        ranks: case.case.ranks(),
        model: group.conditions.model,
        dtype: group.conditions.dtype,
        batch_size_per_device: group.conditions.batch_size,
        kv_store: Some(group.conditions.kv_store).filter(|kv_store| !kv_store.is_ring()),
        device: recorded.map(|recorded| recorded.device),
        device_names: group.device_names.clone(),
        threads_per_rank: case.threads(),
        profile: recorded.map(|recorded| recorded.profile),
        images_per_second: figures.map(|figures| figures.speed),
        images_per_second_per_rank: figures.map(|figures| figures.per_rank),
        base: group.base,
        base_kv_store: group.base_kv_store(),
        speedup_over_base: figures.map(|figures| figures.speedup),
        efficiency: figures.map(|figures| figures.efficiency),
        cv: figures.and_then(|figures| figures.cv),
        peak_memory_bytes: case.peak_memory(),
        arithmetic: utilisation::of_training(group, case),
        accuracy: accuracy::of_case(case),
        energy: energy::of_case(case),
        cost: price.and_then(|price| price.of_case(group, case)),
        is_reliable: group.is_reliable(case),
        reliability_warnings: group.scaling_reliability_warnings(case).cloned().collect(),
        runs_counted: case.counted().count(),
        seconds_per_iteration: figures.and_then(|figures| figures.times).map(JsonTimes::from),
        work_load: work_load::of_case(group, case),
        without_communication: case.baseline.as_ref().map(|baseline| json_baseline(case, baseline)),
        scaling_loss: scaling_loss::of_case(group, case).as_ref().map(JsonLoss::from),
        dlperf: figures.map(|figures| figures.dlperf.clone()),
        warnings: group.warnings.iter().chain(&case.warnings).cloned().collect(),
        runs: case.runs.iter().map(JsonRun::from).collect(),
        settings: settings(&group.conditions),
        environment: run::environment(&case.runs),
    }
}

fn json_baseline(case: &TrainedCase, baseline: &TrainedCase) -> JsonBaseline {
    let figures = baseline.figures.as_ref();
    JsonBaseline {
        images_per_second: figures.map(|figures| figures.speed),
        images_per_second_per_rank: figures.map(|figures| figures.per_rank),
        speedup_over_base: figures.map(|figures| figures.speedup),
        efficiency: figures.map(|figures| figures.efficiency),
        cv: figures.and_then(|figures| figures.cv),
        reliability_warnings: baseline.speed_reliability_warnings.clone(),
        communication_cost: case.communication_cost(),
        runs_counted: baseline.counted().count(),
        seconds_per_iteration: figures.and_then(|figures| figures.times).map(JsonTimes::from),
        warnings: baseline.warnings.clone(),
        runs: baseline.runs.iter().map(JsonRun::from).collect(),
    }
}

/// Cases in the order of the tables.
pub fn rows(groups: &[Group], price: Option<&Price>) -> Vec<JsonRow> {
    groups.iter().flat_map(|group| group.cases.iter().map(move |case| row(group, case, price))).collect()
}

/// The whole file, with the hashes of the files beside it.
pub fn json(
    extraction: &Extraction,
    price: Option<&Price>,
    files_sha256: BTreeMap<String, String>,
) -> anyhow::Result<String> {
    let result = JsonResult {
        kind: RESULT,
        schema: SCHEMA,
        name: extraction.name.clone(),
        rows: rows(&extraction.groups, price),
        out_of_memory: extraction.shortages.clone(),
        left_out: extraction.problems.iter().map(ToString::to_string).collect(),
        files_sha256,
    };
    Ok(serde_json::to_string_pretty(&result)? + "\n")
}

/// For the JSON of a case.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonLoss {
    base: Case,
    base_seconds: Seconds,
    seconds: Seconds,
    /// `base_seconds / seconds`.
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
        let json = |part: Option<LossPart>, difference: Difference| JsonLossPart {
            part: part.map(LossPart::key),
            seconds: Seconds(difference.seconds),
            margin_seconds: difference.margin.map(Seconds),
            images_per_second: case.rate_lost(difference.seconds),
            efficiency: case.loss.efficiency_lost(difference.seconds),
            share_of_loss: case.loss.share(difference.seconds),
        };
        let of = |(part, difference): &(LossPart, Difference)| json(Some(*part), *difference);
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

/// What a message calls the file.
const NAME: &str = "result of ringmark extract";

/// Versions 1 and 2: `{"rn50": {"1n1g": {..}, ..}, ..}`.
type FirstResultFile = BTreeMap<String, BTreeMap<Case, Map<String, Value>>>;

/// Reads the rows of the JSON of `ringmark extract`, of every version.
pub fn read_rows(mut input: impl Read) -> anyhow::Result<Vec<JsonRow>> {
    #[derive(Deserialize)]
    struct Head {
        kind: Option<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct ResultFile {
        rows: Vec<JsonRow>,
    }
    let mut text = Vec::new();
    input.read_to_end(&mut text).context("cannot be read")?;
    let head: Head = serde_json::from_slice(&text).with_context(|| format!("not a {NAME}"))?;
    if head.kind.is_some() {
        return Ok(schema::read_document::<ResultFile>(&text[..], RESULT, SCHEMA, NAME)?.rows);
    }
    let file: FirstResultFile = serde_json::from_slice(&text).with_context(|| format!("not a {NAME}"))?;
    let cases = file.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group.clone(), case)));
    cases.map(|(group, (case, fields))| first_row(group, case, fields)).collect()
}

/// A row of version 1 or 2.
fn first_row(group: String, case: Case, mut fields: Map<String, Value>) -> anyhow::Result<JsonRow> {
    ensure!(
        fields.contains_key("dtype"),
        "{case} has no single runs: this is DLPerf's own result, which holds medians alone: give the folder of its logs"
    );
    let schema = fields.get("schema").and_then(Value::as_u64).unwrap_or_default();
    ensure!(
        schema <= NEWEST_WITHOUT_KIND,
        "result format {schema} where this ringmark reads up to {NEWEST_WITHOUT_KIND}: use the ringmark that wrote it"
    );
    let model = model_of(&group).with_context(|| format!("no network is called {group}"))?;
    fields.extend([("model".to_owned(), model.keyword().into()), ("case".to_owned(), case.to_string().into())]);
    fields.insert("group".to_owned(), group.into());
    let row = serde_json::from_value(Value::Object(fields));
    let mut row: JsonRow = row.with_context(|| format!("not a {NAME}"))?;
    row.settings = renamed(row.settings);
    row.environment = renamed(row.environment);
    Ok(row)
}

/// What version 1 called settings and facts of the environment, with what they are called now.
const RENAMED: [(&str, &str); 4] = [
    ("collective", "backend"),
    ("piece_kb", "chunk_kb"),
    ("sums by", "all-reduce by"),
    ("threads of a rank", "threads per rank"),
];

/// Version of the newest result without a kind.
const NEWEST_WITHOUT_KIND: u64 = 2;

/// By the names of today.
fn renamed<T>(old: BTreeMap<String, T>) -> BTreeMap<String, T> {
    let today = |name: String| RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).to_owned());
    old.into_iter().map(|(name, value)| (today(name), value)).collect()
}
