//! Reader and writer of the result file of training, which has one row per case.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::{Context, ensure};
use ringmark_core::benchmark::train::CheckpointCost;
use ringmark_core::benchmark::warning::Warning;
use ringmark_core::dimension::{Case, Dtype, Model, Phases, Seconds, Strategy, UnitsPerSecond};
use ringmark_core::file::schema;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::scaling_loss::{Difference, LossPart};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::read::analyze::case_runs::SecondsOfRun;
use crate::read::analyze::published::PublishedRate;
use crate::read::analyze::reliability::ReliabilityWarning;
use crate::read::analyze::result_row::{self, RowBatch, RowFigures, RowHead, RowReliability, RowRuns};
use crate::read::analyze::training::accuracy::{self, Accuracy};
use crate::read::analyze::training::checkpoint_cost;
use crate::read::analyze::training::cost::{Cost, Price};
use crate::read::analyze::training::energy::{self, Energy};
use crate::read::analyze::training::figures::{DlperfFigures, TrainingCase, TrainingGroup, recompute_time};
use crate::read::analyze::training::scaling_loss::{self, CaseLoss};
use crate::read::analyze::training::weight_waits::{self, WeightWaits};
use crate::read::analyze::training::work_load::{self, WorkCost};
use crate::read::load::content::{RESULT, model_of};
use crate::read::load::folder::Shortage;
use crate::read::load::iteration_times::IterationTimes;
use crate::read::load::run::Run;

/// Version of this file format. Versions 1 and 2 had no kind: they were DLPerf's JSON (groups by name, cases by name)
/// with extra fields in each case. Version 3 had `is_quotable` for `is_reliable`, and `objections` for
/// `reliability_warnings`. Version 4 had `images_per_second` and `joules_per_image` for `units_per_second` and
/// `joules_per_unit`. Version 5 had `kv_store` and `base_kv_store` for `strategy` and `base_strategy`.
pub const SCHEMA: u32 = 6;

/// Complete result.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonResult {
    /// Always `ringmark-result`.
    pub kind: &'static str,
    /// Version of the format.
    pub schema: u32,
    /// Last component of the folder's path.
    pub name: String,
    /// Rows in the order of the tables.
    pub rows: Vec<JsonRow>,
    /// Published figures of the same networks, if requested; not measured by these runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    pub published: Vec<PublishedRate>,
    /// Batch sizes that did not fit into the device's memory, in a sweep over several.
    pub out_of_memory: Vec<Shortage>,
    /// Runs and files that are excluded, with the reason.
    pub left_out: Vec<String>,
    /// SHA-256 of the files that `extract` wrote next to this one, by name; absent from the output of `--json` and
    /// `--format`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files_sha256: BTreeMap<String, String>,
}

/// One case. The figures of a case without a counted run are `null`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonRow {
    /// Group of equal conditions: the model's name as in file names, extended if several groups share it.
    pub group: String,
    /// Case, such as `2n8g`: nodes, and ranks per node.
    pub case: Case,
    /// Total number of ranks.
    #[serde(default)]
    ranks: u32,
    /// Network.
    pub model: Model,
    /// Precision of the step.
    pub dtype: Dtype,
    /// Samples of an iteration.
    #[serde(flatten)]
    pub batch: RowBatch,
    /// Strategy, which sums gradients and updates weights; absent for `all-reduce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    strategy: Option<Strategy>,
    /// Devices, profile and throughput.
    #[serde(flatten)]
    pub head: RowHead,
    #[serde(skip_deserializing)]
    units_per_second_per_rank: Option<UnitsPerSecond>,
    /// Case that the next two figures are relative to.
    pub base: Option<Case>,
    /// Strategy of the base case: the row's own, or `all-reduce` if a sweep ran the single rank once for all of them.
    #[serde(skip_deserializing)]
    base_strategy: Option<Strategy>,
    #[serde(skip_deserializing)]
    speedup_over_base: Option<f64>,
    /// `speedup_over_base / (ranks / ranks of the base)`: 1 is perfect.
    #[serde(skip_deserializing)]
    efficiency: Option<f64>,
    /// Half of the 95 % confidence interval of the efficiency; absent for the base itself, and if the case or the base
    /// has fewer than three runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    efficiency_margin: Option<f64>,
    /// Variation between runs, memory and utilization.
    #[serde(flatten)]
    pub figures: RowFigures,
    /// Validation accuracy; absent without `--validate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    accuracy: Option<Accuracy>,
    /// Energy; absent if the power of a host is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    energy: Option<Energy>,
    /// Cost; present only with `--price`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    cost: Option<Cost>,
    /// Reliability of the figures.
    #[serde(flatten)]
    pub reliability: RowReliability,
    #[serde(skip_deserializing)]
    seconds_per_iteration: Option<JsonTimes>,
    /// Cost and benefit of `--work-load`; absent without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    work_load: Option<WorkCost>,
    /// Exposed communication by phase; absent if weights are not sharded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    weight_waits: Option<WeightWaits>,
    /// Cost of the checkpoints in the median run; absent without `--checkpoint-every`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    checkpoints: Option<CheckpointCost>,
    /// Time per iteration in backward to compute activations again, in the median run; absent without `--recompute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(skip_deserializing)]
    recompute_seconds: Option<Seconds>,
    /// Same ranks without communication; `null` if there are no such runs.
    pub without_communication: Option<JsonBaseline>,
    /// Loss relative to the base; `null` for the base itself.
    #[serde(skip_deserializing)]
    scaling_loss: Option<JsonLoss>,
    /// Figures computed as DLPerf does.
    #[serde(skip_deserializing)]
    dlperf: Option<DlperfFigures>,
    /// Runs and their conditions.
    #[serde(flatten)]
    pub runs: RowRuns<JsonRun>,
}

/// The same ranks without communication. No rank waits for another, so the speed is all images over the mean of the
/// ranks' times.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonBaseline {
    #[serde(skip_deserializing)]
    units_per_second: Option<UnitsPerSecond>,
    #[serde(skip_deserializing)]
    units_per_second_per_rank: Option<UnitsPerSecond>,
    /// Speedup relative to the case's base, as is the next figure.
    #[serde(skip_deserializing)]
    speedup_over_base: Option<f64>,
    #[serde(skip_deserializing)]
    efficiency: Option<f64>,
    #[serde(skip_deserializing)]
    cv: Option<f64>,
    /// Reasons why these figures are unreliable.
    #[serde(default, alias = "objections")]
    pub reliability_warnings: Vec<ReliabilityWarning>,
    /// `step of the case / this step - 1`.
    #[serde(skip_deserializing)]
    communication_cost: Option<f64>,
    #[serde(default)]
    runs_counted: usize,
    #[serde(skip_deserializing)]
    seconds_per_iteration: Option<JsonTimes>,
    /// Warnings about these runs.
    pub warnings: Vec<String>,
    /// Runs in the order of their numbers.
    pub runs: Vec<JsonRun>,
}

/// Times in seconds: means over ranks and iterations, medians over runs.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonTimes {
    step: Seconds,
    #[serde(flatten)]
    phases: Phases<Seconds>,
    /// `exposed_allreduce / step`.
    exposed_allreduce_share: f64,
}

/// One run.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct JsonRun {
    /// Number of the run within its case, from 1.
    pub run: u32,
    #[serde(default)]
    log: String,
    #[serde(skip_deserializing)]
    status: Status,
    /// Reason why the run does not count, with file and line.
    pub left_out: Option<String>,
    /// Start in seconds since 1970 UTC; `null` without a record.
    #[serde(alias = "started")]
    pub started_unix_seconds: Option<Seconds>,
    /// Number of iterations, including warm-up.
    #[serde(skip_deserializing)]
    iterations: Option<usize>,
    /// Number of warm-up iterations, which are excluded from the figures.
    #[serde(skip_deserializing)]
    warmup: Option<usize>,
    /// Total images or tokens divided by total time.
    #[serde(alias = "images_per_second", alias = "images_over_time")]
    pub units_per_second: Option<UnitsPerSecond>,
    /// Speed of the run as DLPerf computes it: the mean of its rates, rounded to 2 decimals.
    #[serde(skip_deserializing)]
    dlperf_speed: Option<UnitsPerSecond>,
    /// Share of core time that other processes and virtual machines used, on the machine with the largest share, 0 to
    /// 1; `null` if no record contains it.
    #[serde(skip_deserializing)]
    foreign_load: Option<f64>,
    /// Energy per image or token; absent if the power of a host is unknown.
    #[serde(alias = "joules_per_image", skip_serializing_if = "Option::is_none")]
    pub joules_per_unit: Option<f64>,
    /// Times of the iterations after warm-up; `null` if single iterations were not timed.
    pub iteration_seconds: Option<SecondsOfRun>,
    #[serde(skip_deserializing)]
    last_loss: Option<f64>,
    #[serde(skip_deserializing)]
    skipped_steps: Option<u32>,
    #[serde(default)]
    warnings: Vec<Warning>,
}

/// Status of a run in the figures.
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
            units_per_second: measured.map(|measured| measured.speed),
            dlperf_speed: measured.map(|measured| measured.figures.dlperf_speed),
            foreign_load: measured.and_then(|measured| Some(measured.foreign_load.as_ref()?.share)),
            joules_per_unit: measured.and_then(energy::joules_per_unit),
            iteration_seconds: measured.and_then(|measured| SecondsOfRun::new(run, measured.figures.pooled_steps())),
            last_loss: measured.and_then(|measured| measured.figures.last_loss),
            skipped_steps: measured.and_then(|measured| measured.figures.skipped_steps),
            warnings: measured.map(|measured| measured.warnings.clone()).unwrap_or_default(),
        }
    }
}

fn row(group: &TrainingGroup, case: &TrainingCase, price: Option<&Price>) -> JsonRow {
    let figures = case.figures.as_ref();
    let (head, variation, reliability, runs) = result_row::parts(group, case);
    JsonRow {
        group: group.label.clone(),
        case: case.case,
        ranks: case.case.ranks(),
        model: group.conditions.point.model,
        dtype: group.conditions.point.dtype,
        batch: RowBatch::new(group.conditions.point.batch, case.case.ranks()),
        strategy: Some(group.conditions.point.strategy).filter(|strategy| !strategy.is_all_reduce()),
        head,
        units_per_second_per_rank: figures.map(|figures| figures.per_rank),
        base: group.base,
        base_strategy: group.base_strategy(),
        speedup_over_base: figures.map(|figures| figures.speedup),
        efficiency: figures.map(|figures| figures.efficiency),
        efficiency_margin: figures.and_then(|figures| figures.efficiency_margin),
        figures: variation,
        accuracy: accuracy::case_accuracy(case),
        energy: energy::case_energy(case),
        cost: price.and_then(|price| price.case_cost(group, case)),
        reliability,
        seconds_per_iteration: figures.and_then(|figures| figures.times).map(JsonTimes::from),
        work_load: work_load::case_work_cost(group, case),
        weight_waits: weight_waits::case_weight_waits(case),
        checkpoints: checkpoint_cost::case_checkpoint_cost(case),
        recompute_seconds: recompute_time(case),
        without_communication: case.baseline.as_ref().map(|baseline| json_baseline(case, baseline)),
        scaling_loss: scaling_loss::case_loss(group, case).as_ref().map(JsonLoss::from),
        dlperf: figures.map(|figures| figures.dlperf.clone()),
        runs,
    }
}

fn json_baseline(case: &TrainingCase, baseline: &TrainingCase) -> JsonBaseline {
    let figures = baseline.figures.as_ref();
    JsonBaseline {
        units_per_second: figures.map(|figures| figures.speed),
        units_per_second_per_rank: figures.map(|figures| figures.per_rank),
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

/// Returns the rows in the order of the tables.
pub fn rows(groups: &[TrainingGroup], price: Option<&Price>) -> Vec<JsonRow> {
    groups.iter().flat_map(|group| group.cases.iter().map(move |case| row(group, case, price))).collect()
}

impl JsonResult {
    /// Returns the JSON text, as written and printed.
    pub fn text(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }
}

/// Loss of a case, as written to the JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct JsonLoss {
    base: Case,
    base_seconds: Seconds,
    seconds: Seconds,
    /// `base_seconds / seconds`.
    efficiency: f64,
    ideal_speed: UnitsPerSecond,
    total: JsonLossPart,
    /// Parts that add up to the total; empty without records.
    parts: Vec<JsonLossPart>,
    /// Parts that add up to the part `compute`; empty without runs of the same ranks without communication.
    compute: Vec<JsonLossPart>,
}

/// One part of the loss, or the total.
#[derive(Debug, Serialize, JsonSchema)]
struct JsonLossPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<&'static str>,
    /// Time lost in a step; negative for a gain.
    seconds: Seconds,
    /// Half of the 95 % confidence interval for the difference of the means over runs; `null` if a side has a single
    /// run.
    margin_seconds: Option<Seconds>,
    units_per_second: UnitsPerSecond,
    /// Share of `1 - efficiency`.
    efficiency: f64,
    /// Share of the total loss; `null` if nothing was lost.
    share_of_loss: Option<f64>,
}

impl From<&CaseLoss> for JsonLoss {
    fn from(case: &CaseLoss) -> JsonLoss {
        let json = |part: Option<LossPart>, difference: Difference| JsonLossPart {
            part: part.map(LossPart::key),
            seconds: Seconds(difference.seconds),
            margin_seconds: difference.margin.map(Seconds),
            units_per_second: case.rate_lost(difference.seconds),
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

/// Name of the file in error messages.
const NAME: &str = "result of ringmark extract";

/// Layout of versions 1 and 2: `{"rn50": {"1n1g": {..}, ..}, ..}`.
type LegacyResultFile = BTreeMap<String, BTreeMap<Case, Map<String, Value>>>;

/// Reads the rows of a result of `ringmark extract`, in any version of the format.
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
    let file: LegacyResultFile = serde_json::from_slice(&text).with_context(|| format!("not a {NAME}"))?;
    let cases = file.into_iter().flat_map(|(group, cases)| cases.into_iter().map(move |case| (group.clone(), case)));
    cases.map(|(group, (case, fields))| legacy_row(group, case, fields)).collect()
}

/// Converts a row of version 1 or 2.
fn legacy_row(group: String, case: Case, mut fields: Map<String, Value>) -> anyhow::Result<JsonRow> {
    ensure!(
        fields.contains_key("dtype"),
        "{case} has no single runs: this is DLPerf's own result, which contains only medians: pass the folder of its logs"
    );
    let schema = fields.get("schema").and_then(Value::as_u64).unwrap_or_default();
    ensure!(
        schema <= NEWEST_WITHOUT_KIND,
        "result format {schema} is not readable by this ringmark (up to {NEWEST_WITHOUT_KIND}): use the ringmark that \
         wrote it"
    );
    let model = model_of(&group).with_context(|| format!("no network is called {group}"))?;
    fields.extend([("model".to_owned(), model.keyword().into()), ("case".to_owned(), case.to_string().into())]);
    fields.insert("group".to_owned(), group.into());
    let row = serde_json::from_value(Value::Object(fields));
    let mut row: JsonRow = row.with_context(|| format!("not a {NAME}"))?;
    row.runs.settings = renamed(row.runs.settings);
    row.runs.environment = renamed(row.runs.environment);
    Ok(row)
}

/// Old and current names of the settings and environment entries that version 1 named differently.
const RENAMED: [(&str, &str); 4] = [
    ("collective", "backend"),
    ("piece_kb", "chunk_kb"),
    ("sums by", "all-reduce by"),
    ("threads of a rank", "threads per rank"),
];

/// Newest version of the format without a `kind` field.
const NEWEST_WITHOUT_KIND: u64 = 2;

/// Replaces old names with current ones.
fn renamed<T>(old: BTreeMap<String, T>) -> BTreeMap<String, T> {
    let today = |name: String| RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).to_owned());
    old.into_iter().map(|(name, value)| (today(name), value)).collect()
}
