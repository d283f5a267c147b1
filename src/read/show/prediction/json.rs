//! JSON output of a prediction.

use ringmark_core::dimension::{Case, GigabytesPerSecond, Model, Seconds, Strategy, UnitsPerSecond, WorkUnit};
use ringmark_core::stats::allreduce_model::{Band, LatencyModel};
use schemars::JsonSchema;
use serde::Serialize;

use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::model::Prediction;
use crate::read::analyze::prediction::outlook::Outlook;
use crate::read::analyze::prediction::refusal::Refusal;
use crate::read::analyze::prediction::search::{Backtest, EfficiencyThreshold};
use crate::read::analyze::prediction::step_parts::Limit;
use crate::read::show::prediction::notes::{assumptions, warnings};

/// Value of the first field of the document.
const KIND: &str = "ringmark-prediction";

/// Version of this document. Version 1 had no version, and had `why` for `reason` and `to` for a part of the loss;
/// version 2 had no kind; version 4 had `kv_store` and `base_kv_store` for `strategy` and `base_strategy`.
const SCHEMA: u32 = 5;

/// Complete document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Json {
    /// Always `ringmark-prediction`.
    kind: &'static str,
    /// Version of the format.
    schema: u32,
    groups: Vec<JsonOutlook>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonOutlook {
    group: String,
    model: Model,
    strategy: Strategy,
    measured_on: Vec<String>,
    base: Case,
    /// Strategy of the base: the group's own, or `all-reduce` if a sweep ran the single rank once for all strategies.
    base_strategy: Strategy,
    batch_size_per_device: u32,
    /// Tokens of a sequence; absent for images.
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_length: Option<u32>,
    /// Unit of the speeds.
    unit: WorkUnit,
    levels: JsonLevels,
    predictions: Vec<JsonPrediction>,
    /// Straggler of the largest measured case.
    straggler: Option<String>,
    /// Predictions of the same cases without the straggler.
    predictions_without_straggler: Vec<JsonPrediction>,
    not_predicted: Vec<Refusal>,
    efficiency_below: Option<EfficiencyThreshold>,
    backtest: Option<JsonBacktest>,
    assumptions: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonLevels {
    inside_host: Option<JsonLine>,
    /// Latency and bandwidth with as many ranks per host as in the largest measured case.
    between_hosts: Option<JsonLine>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonLine {
    latency_seconds: Seconds,
    /// Bandwidth; `null` if the time does not increase with the size.
    bandwidth_gb_per_second: Option<GigabytesPerSecond>,
    relative_residual: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonPrediction {
    case: Case,
    ranks: u32,
    /// Number of servers, if the strategy has any.
    servers: Option<u32>,
    measured: bool,
    /// Measured case that the prediction extrapolates from.
    reference: Option<Case>,
    units_per_second: Band,
    seconds_per_iteration: Band,
    efficiency: Band,
    limited_by: Option<&'static str>,
    /// Losses relative to the base, in the middle of the band.
    lost_seconds: Vec<JsonLost>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonLost {
    part: &'static str,
    seconds: Seconds,
}

#[derive(Debug, Serialize, JsonSchema)]
struct JsonBacktest {
    predicted: JsonPrediction,
    from: Vec<Case>,
    measured_units_per_second: UnitsPerSecond,
    /// `predicted speed / measured speed - 1`.
    error: f64,
    in_band: bool,
}

/// Returns the document.
pub fn json(outlooks: &[Outlook]) -> Json {
    Json { kind: KIND, schema: SCHEMA, groups: outlooks.iter().map(json_outlook).collect() }
}

fn json_outlook(outlook: &Outlook) -> JsonOutlook {
    let evidence = &outlook.evidence;
    let gpus_per_node = evidence.cases.last().map_or(1, |case| case.case.gpus_per_node);
    let refused = outlook.predictions.iter().filter_map(|prediction| prediction.as_ref().err());
    let refused = refused.chain(outlook.under.iter().filter_map(|under| under.as_ref().err()));
    let refused = refused.chain(outlook.backtest.iter().filter_map(|backtest| backtest.as_ref().err()));
    JsonOutlook {
        group: evidence.label.clone(),
        model: evidence.point.model,
        strategy: evidence.point.strategy,
        measured_on: evidence.title.clone(),
        base: evidence.base,
        base_strategy: evidence.base_strategy(),
        batch_size_per_device: evidence.point.batch.size.number(),
        sequence_length: evidence.point.batch.sequence_length,
        unit: evidence.point.batch.unit(),
        levels: JsonLevels {
            inside_host: evidence.inside().as_ref().map(json_line),
            between_hosts: evidence.between(gpus_per_node).as_ref().map(json_line),
        },
        predictions: outlook
            .predictions
            .iter()
            .flatten()
            .map(|prediction| json_prediction(evidence, prediction))
            .collect(),
        straggler: evidence.straggler.clone(),
        predictions_without_straggler: outlook
            .without_straggler
            .iter()
            .map(|prediction| json_prediction(evidence, prediction))
            .collect(),
        not_predicted: refused.cloned().collect(),
        efficiency_below: outlook.under.iter().flatten().next().cloned(),
        backtest: outlook.backtest.iter().flatten().next().map(|backtest| json_backtest(evidence, backtest)),
        assumptions: assumptions(outlook),
        warnings: warnings(outlook),
    }
}

fn json_line(line: &LatencyModel) -> JsonLine {
    JsonLine {
        latency_seconds: Seconds(line.latency),
        bandwidth_gb_per_second: (line.per_byte > 0.0).then(|| GigabytesPerSecond(1e-9 / line.per_byte)),
        relative_residual: line.residual,
    }
}

fn json_prediction(evidence: &Evidence, prediction: &Prediction) -> JsonPrediction {
    let Prediction { case, step, efficiency, .. } = prediction;
    let speed = |step| evidence.speed(*case, step).0;
    let lost = |(limit, seconds): &(Limit, f64)| JsonLost { part: limit.text(), seconds: Seconds(*seconds) };
    JsonPrediction {
        case: *case,
        ranks: case.ranks(),
        servers: evidence.servers(*case),
        measured: prediction.reference.is_none(),
        reference: prediction.reference,
        units_per_second: Band { low: speed(step.high), mid: speed(step.mid), high: speed(step.low) },
        seconds_per_iteration: *step,
        efficiency: *efficiency,
        limited_by: prediction.limit().map(Limit::text),
        lost_seconds: prediction.losses.iter().map(lost).collect(),
    }
}

fn json_backtest(evidence: &Evidence, backtest: &Backtest) -> JsonBacktest {
    JsonBacktest {
        predicted: json_prediction(evidence, &backtest.predicted),
        from: backtest.from.clone(),
        measured_units_per_second: evidence.speed(backtest.predicted.case, backtest.measured),
        error: backtest.error(),
        in_band: backtest.is_inside(),
    }
}
