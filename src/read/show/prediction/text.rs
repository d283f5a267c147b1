//! Predictions as text: tables, followed by their assumptions.

use ringmark_core::dimension::{Case, UnitsPerSecond};
use ringmark_core::number_text::{four_digits, marked, percent, percent_number};
use ringmark_core::stats::allreduce_model::Band;

use crate::output::table::Table;
use crate::read::analyze::once::once;
use crate::read::analyze::prediction::evidence::Evidence;
use crate::read::analyze::prediction::model::Prediction;
use crate::read::analyze::prediction::outlook::Outlook;
use crate::read::analyze::prediction::search::{Backtest, EfficiencyThreshold};
use crate::read::analyze::prediction::step_parts::Limit;
use crate::read::show::numbers::doubtful_legend;
use crate::read::show::prediction::notes::{assumptions, warnings};
use crate::read::show::text::{self, Medium, Paragraph, WIDTH};

const COLUMNS: &str = "low, mid, high: the range of the speed and of the efficiency (eff.); servers: of the strategy; \
    limited by: the largest loss relative to the base; measured: the range of one more run, which is wider than the interval of \
    the mean in extract";

/// Returns the tables and assumptions of every outlook with an answer, or of all with an explanation; empty if there is
/// none.
pub fn text(outlooks: &[Outlook], is_explained: bool) -> String {
    let outlooks: Vec<&Outlook> = outlooks.iter().filter(|outlook| is_explained || outlook.has_answer()).collect();
    if outlooks.is_empty() {
        return String::new();
    }
    let mut text = Vec::new();
    for outlook in &outlooks {
        let predicted = |predictions: &[&Prediction]| Paragraph::Table(table(&outlook.evidence, predictions));
        text.push(Paragraph::Sentences(outlook.evidence.title.clone()));
        let predictions: Vec<&Prediction> = outlook.grown().collect();
        text.extend((!predictions.is_empty()).then(|| predicted(&predictions)));
        if !outlook.without_straggler.is_empty() {
            let straggler = outlook.evidence.straggler.as_deref().unwrap_or("the slowest rank");
            let title = format!("Without the measured wait for {straggler}:");
            let predictions: Vec<&Prediction> = outlook.without_straggler.iter().collect();
            text.extend([Paragraph::Sentences(vec![title]), predicted(&predictions)]);
        }
        if let Some(Ok(under)) = &outlook.under {
            text.push(Paragraph::Lines(under_text(under)));
        }
        if let Some(Ok(backtest)) = &outlook.backtest {
            text.push(Paragraph::Sentences(vec![backtest_text(&outlook.evidence, backtest)]));
        }
        let columns = (!predictions.is_empty()).then(|| COLUMNS.to_owned());
        text.push(Paragraph::Explanation(assumptions(outlook).into_iter().chain(columns).collect()));
    }
    let of_outlooks = outlooks.iter().map(|outlook| (outlook.evidence.label.clone(), warnings(outlook)));
    let warnings = once(&of_outlooks.collect::<Vec<_>>());
    text.push(Paragraph::Sentences(warnings.iter().map(|warning| format!("warning: {warning}")).collect()));
    let is_doubtful = outlooks.iter().any(|outlook| outlook.evidence.is_unreliable && outlook.grown().next().is_some());
    text.extend(is_doubtful.then(|| Paragraph::Sentences(vec![doubtful_legend("the warnings above")])));
    text::render(&text, Medium::Terminal { width: WIDTH, is_explained })
}

fn table(evidence: &Evidence, predictions: &[&Prediction]) -> Table {
    let of_band = |unit| ["low", "mid", "high"].map(|end| (end, unit));
    let bands = of_band(evidence.point.batch.unit().per_second()).into_iter().chain(of_band("eff. %"));
    let has_servers = predictions.iter().any(|prediction| evidence.servers(prediction.case).is_some());
    let servers = |case: Case| {
        has_servers.then(|| evidence.servers(case).map_or_else(|| "-".to_owned(), |servers| servers.to_string()))
    };
    let first = [("case", ""), ("ranks", "")].into_iter().chain(has_servers.then_some(("servers", "")));
    let headers = first.chain(bands).chain([("limited by", "")]);
    let row = |prediction: &&Prediction| {
        let Prediction { case, step, efficiency, .. } = prediction;
        let limit = match prediction.reference {
            None => "measured",
            Some(_) => prediction.limit().map_or("-", Limit::text),
        };
        let figure = |text: String| marked(text, evidence.is_unreliable);
        let speeds = [step.high, step.mid, step.low].map(|step| figure(speed(evidence.speed(*case, step))));
        let percent = [efficiency.low, efficiency.mid, efficiency.high];
        let percent = percent.map(|share| figure(percent_number(share)));
        let first = [case.to_string(), case.ranks().to_string()];
        first.into_iter().chain(servers(*case)).chain(speeds).chain(percent).chain([limit.to_owned()]).collect()
    };
    Table::new(&headers.collect::<Vec<_>>(), predictions.iter().map(row).collect::<Vec<Vec<String>>>())
}

fn speed(speed: UnitsPerSecond) -> String {
    four_digits(speed.0)
}

fn backtest_text(evidence: &Evidence, backtest: &Backtest) -> String {
    let case = backtest.predicted.case;
    let from: Vec<String> = backtest.from.iter().map(Case::to_string).collect();
    format!(
        "backtest: {case} predicted from {}; measured: {} {}; the middle of the range is off by {:+.1} %; the \
         measured value is {} the range",
        from.join(", "),
        speed(evidence.speed(case, backtest.measured)),
        evidence.point.batch.unit().per_second(),
        backtest.error() * 100.0,
        if backtest.is_inside() { "inside" } else { "OUTSIDE" }
    )
}

fn under_text(under: &EfficiencyThreshold) -> Vec<String> {
    let limit = percent(under.efficiency);
    let last = format!("{} ({} ranks)", under.last, under.last.ranks());
    if under.earliest.or(under.mid).or(under.latest).is_none() {
        let Band { low, mid, high } = under.at_last;
        return vec![
            format!("efficiency does not fall below {limit} up to {last}, the last case tried:"),
            format!("  efficiency of that case: {} to {}, middle {}", percent(low), percent(high), percent(mid)),
        ];
    }
    let not_up_to = format!("not up to {last}");
    let case =
        |case: Option<Case>| case.map_or_else(|| not_up_to.clone(), |case| format!("{case} ({} ranks)", case.ranks()));
    vec![
        format!("efficiency falls below {limit}: {}", case(under.mid)),
        format!("  at the lower end of the range: {}; at the upper end: {}", case(under.earliest), case(under.latest)),
    ]
}
