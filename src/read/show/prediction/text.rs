//! A prediction for people and for programs: tables with what they rest on in words below them, and JSON.

use ringmark_record::case::Case;
use ringmark_record::stats::allreduce_model::{Algorithm, Band, Line};
use ringmark_record::units::{GigabytesPerSecond, ImagesPerSecond, Seconds};
use serde::Serialize;

use crate::read::analyse::prediction::evidence::{CaseEvidence, Evidence};
use crate::read::analyse::prediction::model::{Backtest, FAR, Limit, Prediction, Refusal, Under};
use crate::read::predict::Outlook;
use crate::read::show::extraction::text::{Columns, aligned};

/// Relative residual of a line from which on a reader is warned of it.
const POOR: f64 = 0.3;

/// Every outlook as tables, and its words.
pub fn text(outlooks: &[Outlook]) -> String {
    let mut paragraphs = Vec::new();
    for outlook in outlooks {
        paragraphs.push(wrapped(&outlook.evidence.title));
        let predictions: Vec<&Prediction> = grown(outlook).collect();
        if !predictions.is_empty() {
            paragraphs.push(aligned(&columns(&outlook.evidence, &predictions)));
        }
        if let Some(Ok(under)) = &outlook.under {
            paragraphs.push(words_of_under(under));
        }
        if let Some(Ok(backtest)) = &outlook.backtest {
            paragraphs.push(wrapped(&[words_of_backtest(&outlook.evidence, backtest)]));
        }
        paragraphs.push(wrapped(&assumptions(outlook)));
        let warnings: Vec<String> = warnings(outlook).iter().map(|warning| format!("WARNING: {warning}")).collect();
        if !warnings.is_empty() {
            paragraphs.push(wrapped(&warnings));
        }
    }
    paragraphs.join("\n\n") + "\n"
}

/// Of cases, then of the backtest.
fn grown(outlook: &Outlook) -> impl Iterator<Item = &Prediction> {
    let backtest = outlook.backtest.iter().flatten().map(|backtest| &backtest.predicted);
    outlook.predictions.iter().flatten().chain(backtest)
}

fn columns(evidence: &Evidence, predictions: &[&Prediction]) -> Columns {
    let of_band = |unit| ["low", "mid", "high"].map(|end| (end, unit));
    let bands = of_band("images/s").into_iter().chain(of_band("eff. %"));
    let headers = [("case", ""), ("ranks", "")].into_iter().chain(bands).chain([("limited by", "")]);
    let row = |prediction: &&Prediction| {
        let Prediction { case, step, efficiency, .. } = prediction;
        let limit = match prediction.reference {
            None => "(measured)",
            Some(_) => prediction.limit().map_or("-", Limit::words),
        };
        let speeds = [step.high, step.mid, step.low].map(|step| speed(evidence.speed(*case, step)));
        let percent = [efficiency.low, efficiency.mid, efficiency.high];
        let percent = percent.map(|efficiency| format!("{:.1}", efficiency * 100.0));
        let first = [case.to_string(), case.ranks().to_string()];
        first.into_iter().chain(speeds).chain(percent).chain([limit.to_owned()]).collect()
    };
    Columns::new(&headers.collect::<Vec<_>>(), predictions.iter().map(row).collect())
}

fn speed(speed: ImagesPerSecond) -> String {
    if speed.0 < 1e3 { format!("{:.2}", speed.0) } else { format!("{:.0}", speed.0) }
}

fn words_of_backtest(evidence: &Evidence, backtest: &Backtest) -> String {
    let case = backtest.predicted.case;
    let from: Vec<String> = backtest.from.iter().map(Case::to_string).collect();
    format!(
        "backtest: {case} predicted from {}; measured were {} images/s: the middle of the band is {:+.1} % off, and the \
         measured value lies {} the band",
        from.join(", "),
        speed(evidence.speed(case, backtest.measured)),
        backtest.error() * 100.0,
        if backtest.is_inside() { "in" } else { "OUTSIDE" }
    )
}

fn words_of_under(under: &Under) -> String {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let limit = percent(under.efficiency);
    let last = format!("{} ({} ranks)", under.last, under.last.ranks());
    if under.earliest.or(under.mid).or(under.latest).is_none() {
        let Band { low, mid, high } = under.at_last;
        return format!(
            "efficiency does not fall under {limit} up to {last}, the last case tried:\n  there it is {} to {}, in the \
             middle {}",
            percent(low),
            percent(high),
            percent(mid)
        );
    }
    let not_up_to = format!("not up to {last}");
    let case =
        |case: Option<Case>| case.map_or_else(|| not_up_to.clone(), |case| format!("{case} ({} ranks)", case.ranks()));
    format!(
        "efficiency falls under {limit}: {}\n  at the low end of the band: {}; at its high end: {}",
        case(under.mid),
        case(under.earliest),
        case(under.latest)
    )
}

/// What the figures rest on, a line each.
fn assumptions(outlook: &Outlook) -> Vec<String> {
    let evidence = &outlook.evidence;
    let mut lines = vec![measured(evidence)];
    let mut grown = grown(outlook).filter(|prediction| prediction.reference.is_some());
    let searched = outlook.under.iter().flatten().next().map(|under| under.last);
    let Some(example) = grown.next().map(|prediction| prediction.case).or(searched) else {
        return lines;
    };
    let line = evidence.between(example.gpus_per_node);
    lines.extend(evidence.inside().map(|line| words_of_line("inside a host (nothing is predicted from it)", &line)));
    match &line {
        Some(line) => lines.push(words_of_line("between hosts", line)),
        None if evidence.bandwidth.is_empty() => {
            let case = Case { nodes: 2, ..example };
            let advice = format!("; measure it: ringmark bandwidth --cases {case}, then --bandwidth FOLDER");
            lines.push(format!(
                "no bandwidth result: how much is latency and how much hides in backward is not known, the band is \
                 wider{}",
                // Of other programs' runs it would say nothing.
                if evidence.buckets.is_empty() { "" } else { &advice }
            ));
        }
        None => lines.push(format!(
            "the bandwidth result has no three sizes of a case of several hosts with {} ranks each: measure {}",
            example.gpus_per_node,
            Case { nodes: 2, ..example }
        )),
    }
    let has_records = evidence.cases.iter().all(|case| case.runs.iter().all(|run| run.phases.is_some()));
    lines.push(match (has_records, &line) {
        (true, Some(_)) => {
            "extremes: of the all-reduce the same share stays hidden, or the same seconds; the wait for the slowest rank \
             stays, or grows as the expected maximum of more ranks"
        }
        (true, None) => {
            "extremes: the exposed all-reduce is all bandwidth, or all latency (or bandwidth that backward just hid; latency \
             that it hides is not seen); the wait for the slowest rank stays, or grows as the expected maximum of more ranks"
        }
        (false, _) => {
            "no records: what several hosts add to a step is taken for all-reduce, extremes: all bandwidth, or all latency \
             (the wait for the slowest rank grows less)"
        }
    }
    .to_owned());
    lines.push(format!(
        "compute, optimizer and rest stay as with fewer hosts; {}; the network gives every host what it gave before; band: \
         both extremes, 95 % of the runs' spread and the residual of the line; mid: half way",
        match evidence.exchange.algorithm {
            Algorithm::Ring => "one ring over all ranks",
            Algorithm::Hosts => "shared memory inside hosts, a ring over the hosts",
        }
    ));
    lines
}

fn measured(evidence: &Evidence) -> String {
    let case = |case: &CaseEvidence| match case.runs.len() {
        _ if case.is_median => format!("{} (published median)", case.case),
        1 => format!("{} (1 run)", case.case),
        runs => format!("{} ({runs} runs)", case.case),
    };
    let cases: Vec<String> = evidence.cases.iter().map(case).collect();
    format!("measured: {}; efficiency over {}", cases.join(", "), evidence.base)
}

fn words_of_line(level: &str, line: &Line) -> String {
    let bandwidth = if line.per_byte > 0.0 { format!("{:.2}", 1e-9 / line.per_byte) } else { "unlimited".to_owned() };
    format!(
        "all-reduce {level}: {:.1} us a step, {bandwidth} GB/s, residual {:.0} %",
        line.latency * 1e6,
        line.residual * 100.0
    )
}

/// What a reader must know.
fn warnings(outlook: &Outlook) -> Vec<String> {
    let evidence = &outlook.evidence;
    let mut warnings = Vec::new();
    if evidence.base != Case::SINGLE {
        warnings.push(format!("1n1g was not measured: efficiency is relative to {}", evidence.base));
    }
    warnings.extend(outlook.caveat.map(|caveat| format!("{}: {caveat}", evidence.label)));
    let most = evidence.cases.iter().map(|case| case.case.ranks()).max().unwrap_or(1);
    let far = |case: &Case| case.ranks() > FAR * most;
    let cases = outlook.predictions.iter().flatten().map(|prediction| prediction.case);
    let found = outlook.under.iter().flatten().filter_map(|under| under.mid);
    let far: Vec<String> = cases.chain(found).filter(far).map(|case| case.to_string()).collect();
    if !far.is_empty() {
        warnings.push(format!(
            "{}: more than {FAR} times the {most} ranks that were measured: switches between switches, and whatever else \
             begins with more hosts, is not in it",
            far.join(", ")
        ));
    }
    let mut references = grown(outlook).filter_map(|prediction| evidence.case(prediction.reference?));
    let single = references.find(|case| case.runs.len() == 1);
    warnings.extend(single.map(|case| {
        let what = if case.is_median { "the median alone" } else { "one run" };
        format!("{what} of {}: the spread of runs is not in the band", case.case)
    }));
    if !evidence.bandwidth.is_empty() && evidence.conditions.is_none() {
        warnings.push(
            "the runs have no records: whether the bandwidth result is of what summed their gradients is not known"
                .to_owned(),
        );
    }
    let poor = evidence.bandwidth.iter().filter_map(|(case, _)| evidence.between(case.gpus_per_node));
    if let Some(line) =
        poor.max_by(|one, other| one.residual.total_cmp(&other.residual)).filter(|line| line.residual > POOR)
    {
        warnings.push(format!(
            "latency and bandwidth between hosts explain the measured sizes only to {:.0} %: do not lean on the middle",
            line.residual * 100.0
        ));
    }
    warnings
}

/// At 80 columns, each line for itself.
fn wrapped(lines: &[String]) -> String {
    const WIDTH: usize = 80;
    let wrap = |line: &String| {
        let mut wrapped = String::new();
        let mut width = 0;
        for word in line.split(' ') {
            let length = word.chars().count();
            if width > 0 && width + 1 + length > WIDTH {
                wrapped.push_str("\n  ");
                width = 2;
            } else if width > 0 {
                wrapped.push(' ');
                width += 1;
            }
            wrapped.push_str(word);
            width += length;
        }
        wrapped
    };
    lines.iter().map(wrap).collect::<Vec<String>>().join("\n")
}

/// The whole document.
#[derive(Debug, Serialize)]
pub struct Json {
    groups: Vec<JsonOutlook>,
}

#[derive(Debug, Serialize)]
struct JsonOutlook {
    group: String,
    measured_on: Vec<String>,
    base: Case,
    batch_size_per_device: u32,
    levels: JsonLevels,
    predictions: Vec<JsonPrediction>,
    not_predicted: Vec<JsonRefusal>,
    efficiency_below: Option<JsonUnder>,
    backtest: Option<JsonBacktest>,
    assumptions: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct JsonLevels {
    inside_host: Option<JsonLine>,
    /// With the ranks a host of the largest measured case.
    between_hosts: Option<JsonLine>,
}

#[derive(Debug, Serialize)]
struct JsonLine {
    latency_seconds: Seconds,
    /// `null` where time does not grow with the size.
    bandwidth_gb_per_second: Option<GigabytesPerSecond>,
    relative_residual: f64,
}

#[derive(Debug, Serialize)]
struct JsonBand<T> {
    low: T,
    mid: T,
    high: T,
}

#[derive(Debug, Serialize)]
struct JsonPrediction {
    case: Case,
    ranks: u32,
    measured: bool,
    /// Case that it grows from.
    reference: Option<Case>,
    images_per_second: JsonBand<ImagesPerSecond>,
    seconds_per_iteration: JsonBand<Seconds>,
    efficiency: JsonBand<f64>,
    limited_by: Option<&'static str>,
    /// In the middle of the band, against the base.
    lost_seconds: Vec<JsonLost>,
}

#[derive(Debug, Serialize)]
struct JsonLost {
    to: &'static str,
    seconds: Seconds,
}

#[derive(Debug, Serialize)]
struct JsonRefusal {
    case: Case,
    why: String,
    command: String,
}

#[derive(Debug, Serialize)]
struct JsonUnder {
    efficiency: f64,
    case: Option<Case>,
    earliest: Option<Case>,
    latest: Option<Case>,
    searched_up_to: Case,
}

#[derive(Debug, Serialize)]
struct JsonBacktest {
    predicted: JsonPrediction,
    from: Vec<Case>,
    measured_images_per_second: ImagesPerSecond,
    /// Predicted over measured speed, less 1.
    error: f64,
    in_band: bool,
}

/// For programs.
pub fn json(outlooks: &[Outlook]) -> Json {
    Json { groups: outlooks.iter().map(json_outlook).collect() }
}

fn json_outlook(outlook: &Outlook) -> JsonOutlook {
    let evidence = &outlook.evidence;
    let gpus_per_node = evidence.cases.last().map_or(1, |case| case.case.gpus_per_node);
    let refused = outlook.predictions.iter().filter_map(|prediction| prediction.as_ref().err());
    let refused = refused.chain(outlook.under.iter().filter_map(|under| under.as_ref().err()));
    let refused = refused.chain(outlook.backtest.iter().filter_map(|backtest| backtest.as_ref().err()));
    JsonOutlook {
        group: evidence.label.clone(),
        measured_on: evidence.title.clone(),
        base: evidence.base,
        batch_size_per_device: evidence.batch_size,
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
        not_predicted: refused.map(json_refusal).collect(),
        efficiency_below: outlook.under.iter().flatten().next().map(json_under),
        backtest: outlook.backtest.iter().flatten().next().map(|backtest| json_backtest(evidence, backtest)),
        assumptions: assumptions(outlook),
        warnings: warnings(outlook),
    }
}

fn json_line(line: &Line) -> JsonLine {
    JsonLine {
        latency_seconds: Seconds(line.latency),
        bandwidth_gb_per_second: (line.per_byte > 0.0).then(|| GigabytesPerSecond(1e-9 / line.per_byte)),
        relative_residual: line.residual,
    }
}

fn json_prediction(evidence: &Evidence, prediction: &Prediction) -> JsonPrediction {
    let Prediction { case, step, efficiency, .. } = prediction;
    let lost = |(limit, seconds): &(Limit, f64)| JsonLost { to: limit.words(), seconds: Seconds(*seconds) };
    JsonPrediction {
        case: *case,
        ranks: case.ranks(),
        measured: prediction.reference.is_none(),
        reference: prediction.reference,
        images_per_second: JsonBand {
            low: evidence.speed(*case, step.high),
            mid: evidence.speed(*case, step.mid),
            high: evidence.speed(*case, step.low),
        },
        seconds_per_iteration: JsonBand { low: Seconds(step.low), mid: Seconds(step.mid), high: Seconds(step.high) },
        efficiency: of_band(*efficiency),
        limited_by: prediction.limit().map(Limit::words),
        lost_seconds: prediction.losses.iter().map(lost).collect(),
    }
}

fn of_band(band: Band) -> JsonBand<f64> {
    JsonBand { low: band.low, mid: band.mid, high: band.high }
}

fn json_refusal(refusal: &Refusal) -> JsonRefusal {
    JsonRefusal { case: refusal.case, why: refusal.why.clone(), command: refusal.command.clone() }
}

fn json_under(under: &Under) -> JsonUnder {
    JsonUnder {
        efficiency: under.efficiency,
        case: under.mid,
        earliest: under.earliest,
        latest: under.latest,
        searched_up_to: under.last,
    }
}

fn json_backtest(evidence: &Evidence, backtest: &Backtest) -> JsonBacktest {
    JsonBacktest {
        predicted: json_prediction(evidence, &backtest.predicted),
        from: backtest.from.clone(),
        measured_images_per_second: evidence.speed(backtest.predicted.case, backtest.measured),
        error: backtest.error(),
        in_band: backtest.is_inside(),
    }
}
