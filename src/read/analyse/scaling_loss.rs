//! The scaling loss of a case: what its runs give to `ringmark_record::stats::scaling_loss`, and how the parts are shown
//! as a table. The formulas are there; the waterfall is the report's.

use ringmark_record::case::Case;
use ringmark_record::stats::scaling_loss::{Difference, Part, Phases, RunStep, ScalingLoss, scaling_loss};
use ringmark_record::units::{ImagesPerSecond, Seconds};
use serde::Serialize;

use crate::read::analyse::figures::{CaseRuns, Group};
use crate::read::load::record::{Measured, StepTimes};
use crate::read::show::extraction::text::Columns;

/// What a case loses against the base of its group.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseLoss {
    /// The case.
    pub case: Case,
    /// What it is compared with: 1n1g, or the smallest case that there is.
    pub base: Case,
    /// Speed of as many ideal ranks: the base's by images over time, times ranks over its ranks.
    pub ideal: ImagesPerSecond,
    /// The loss and its parts, in seconds of a step.
    pub loss: ScalingLoss,
}

/// Of a case other than its group's base. `None` for the base, and where no run of either counts.
pub fn of_case(group: &Group, case: &CaseRuns) -> Option<CaseLoss> {
    let base = group.base.filter(|base| *base != case.case)?;
    let base_runs = group.cases.iter().find(|case| case.case == base)?;
    let batch_size = group.conditions.batch_size;
    let alone = case.baseline.as_ref().map(|baseline| runs(baseline, batch_size)).unwrap_or_default();
    let loss = scaling_loss(&runs(base_runs, batch_size), &runs(case, batch_size), &alone)?;
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    Some(CaseLoss { case: case.case, base, ideal: ImagesPerSecond(images / loss.base_step), loss })
}

/// Step of every counted run.
pub fn runs(case: &CaseRuns, batch_size: u32) -> Vec<RunStep> {
    let images = f64::from(batch_size) * f64::from(case.case.ranks());
    case.counted().map(|run| run_step(run, images)).collect()
}

/// `images` are those of all ranks in one iteration.
fn run_step(run: &Measured, images: f64) -> RunStep {
    let phases = |times: StepTimes| Phases {
        compute: times.forward.0 + times.backward.0,
        exposed: times.exposed_allreduce.0,
        waiting: times.waiting.0,
        optimizer: times.optimizer.0,
    };
    let step = run.times.map_or(images / run.images_over_time.0, |times| times.step.0);
    RunStep { step, phases: run.times.map(phases) }
}

impl CaseLoss {
    /// What this much of the step costs of the ideal ranks' speed.
    pub fn rate_lost(&self, part: f64) -> ImagesPerSecond {
        ImagesPerSecond(self.ideal.0 * self.loss.efficiency_lost(part))
    }

    /// The part's time; `None` where it was not told apart.
    pub fn part(&self, wanted: Part) -> Option<Difference> {
        let mut parts = self.loss.parts.iter().chain(&self.loss.compute);
        parts.find(|(part, _)| *part == wanted).map(|(_, difference)| *difference)
    }
}

/// For the JSON of a case.
#[derive(Debug, Serialize)]
pub struct JsonLoss {
    base: Case,
    seconds_of_base: Seconds,
    seconds: Seconds,
    /// By images over time: `seconds_of_base / seconds`.
    efficiency: f64,
    ideal_speed: ImagesPerSecond,
    total: JsonPart,
    /// They add up to the total; none where there are no records.
    parts: Vec<JsonPart>,
    /// They add up to the part `compute`; none without runs of the same ranks without any exchange.
    compute: Vec<JsonPart>,
}

/// One part of the loss, or the whole.
#[derive(Debug, Serialize)]
struct JsonPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Part>,
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
        let json = |part: Option<Part>, difference: Difference| JsonPart {
            part,
            seconds: Seconds(difference.mean),
            margin_seconds: difference.margin.map(Seconds),
            images_per_second: case.rate_lost(difference.mean),
            efficiency: case.loss.efficiency_lost(difference.mean),
            share_of_loss: case.loss.share(difference.mean),
        };
        let of = |(part, difference): &(Part, Difference)| json(Some(*part), *difference);
        JsonLoss {
            base: case.base,
            seconds_of_base: Seconds(case.loss.base_step),
            seconds: Seconds(case.loss.step),
            efficiency: case.loss.efficiency(),
            ideal_speed: case.ideal,
            total: json(None, case.loss.total),
            parts: case.loss.parts.iter().map(of).collect(),
            compute: case.loss.compute.iter().map(of).collect(),
        }
    }
}

/// Title of the table; the base is named where it is not one rank.
pub fn title(group: &Group) -> String {
    let base = group.base.unwrap_or(Case::SINGLE);
    let missing = if base == Case::SINGLE { "" } else { " (there is no 1n1g)" };
    format!("Where the scaling loss goes: step of each case less that of {base}{missing}")
}

/// What stands below the title.
pub const LEGEND: [&str; 5] = [
    "crowded: what the same ranks lose without any exchange; overlap: what it adds;",
    "transfer, waiting: exposed all-reduce after and until the slowest rank is there;",
    "other: measured, not explained; +-: 95 % confidence, over runs; below 0: a gain;",
    "images/s: of as many ideal ranks; below the case: its efficiency by images/time",
    "= step of the base / step of the case",
];

/// A few lines a case: milliseconds, their confidence, images/s, shares. `None` where no case but the base has records.
pub fn columns(group: &Group) -> Option<Columns> {
    let with_parts = |case| of_case(group, case).filter(|loss| !loss.loss.parts.is_empty());
    let losses: Vec<CaseLoss> = group.cases.iter().filter_map(with_parts).collect();
    // Compute is shown in two columns where every case has them.
    let is_split = losses.iter().all(|loss| !loss.loss.compute.is_empty());
    let compute: &[(&str, &str)] =
        if is_split { &[("compute", "crowded"), ("compute", "overlap")] } else { &[("compute", "")] };
    let first = [("case", ""), ("", ""), ("lost", "")];
    let last = [("transfer", ""), ("waiting", ""), ("optimizer", ""), ("other", "")];
    let headers: Vec<(&str, &str)> = first.iter().chain(compute).chain(&last).copied().collect();
    let rows = losses.iter().flat_map(|loss| rows(loss, is_split)).collect();
    (!losses.is_empty()).then(|| Columns::new(&headers, rows))
}

fn rows(case: &CaseLoss, is_split: bool) -> Vec<Vec<String>> {
    let loss = &case.loss;
    let parts = if is_split { loss.finest() } else { loss.parts.clone() };
    let shown: Vec<Difference> = [loss.total].into_iter().chain(parts.into_iter().map(|(_, part)| part)).collect();
    let row = |name: String, unit: &str, cell: &dyn Fn(&Difference) -> Option<f64>| -> Vec<String> {
        let cells = shown.iter().map(|part| cell(part).map_or_else(|| "-".to_owned(), short));
        [name, unit.to_owned()].into_iter().chain(cells).collect()
    };
    let mut rows = vec![
        row(case.case.to_string(), "ms", &|part| Some(part.mean * 1e3)),
        row(format!("{:.1} %", loss.efficiency() * 100.0), "+- ms", &|part| Some(part.margin? * 1e3)),
        row(String::new(), "images/s", &|part| Some(case.rate_lost(part.mean).0)),
        row(String::new(), "share %", &|part| Some(loss.share(part.mean)? * 100.0)),
    ];
    // Nothing to share.
    rows.retain(|row| row[2] != "-" || row[1] == "+- ms");
    rows
}

/// In few characters.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..1e3 => 2,
        1e3..1e4 => 1,
        _ => 0,
    };
    // Not "-0.00".
    let rounded = format!("{value:.decimals$}");
    if rounded.trim_start_matches(['-', '0', '.']).is_empty() {
        rounded.trim_start_matches('-').to_owned()
    } else {
        rounded
    }
}
