//! Breakdown of the scaling loss as a waterfall per case, from the step of the base to that of the case. The formulas
//! are in `ringmark_core::stats::scaling_loss`.

use ringmark_core::dimension::Seconds;
use ringmark_core::number_text::percent;
use ringmark_core::stats::scaling_loss::{Difference, LossPart};

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::scaling_loss::{self, CaseLoss, all_parts};
use crate::read::show::numbers::{marked, milliseconds_number};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::style::phase_class;
use crate::read::show::page::charts::waterfall::{self, Waterfall, signed};
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

const NOTE: &str = "The step of a case minus the step of the base, in parts that add up; with a global batch, minus the ideal step: \
    that of the base divided by the ratio of the ranks. Compute: additional forward \
    and backward time. Waiting: exposed all-reduce until the slowest rank joins. Transfer: exposed all-reduce after \
    that. Other: the rest. A negative part is a gain; \u{b1} is the 95 % confidence interval over runs.";

const UNCERTAIN: &str = "A loss below its \u{b1} is not significant, nor are its parts: use more --runs.";

const READING: &str = "Thin lines are confidence intervals, cut off at the edge of the chart. The axis starts at 0 only if the bars are \
     complete.";

const ALONE: &str = "Compute is divided by means of the baseline, runs of the same ranks without communication. Sharing: cost of sharing a host. \
    Overlap: cost of the concurrent exchange.";

/// Returns the loss of every case except the base, if its records contain the parts and there are enough runs for an
/// interval: without one, the parts may be noise.
pub fn losses(group: &TrainingGroup) -> Vec<CaseLoss> {
    let is_shown = |loss: &CaseLoss| !loss.loss.parts.is_empty() && loss.loss.total.margin.is_some();
    let with_parts = |case| scaling_loss::case_loss(group, case).filter(is_shown);
    group.cases.iter().filter_map(with_parts).collect()
}

/// Returns `None` if no case has a base to compare with, or if there are no records.
pub fn block(setting: &Setting) -> Option<Block> {
    let series: Vec<(&PageSeries, Vec<CaseLoss>)> = setting
        .series
        .iter()
        .map(|series| (series, losses(series.group)))
        .filter(|(_, losses)| !losses.is_empty())
        .collect();
    if series.is_empty() {
        return None;
    }
    let charts = |(series, losses): &(&PageSeries, Vec<CaseLoss>)| {
        losses.iter().map(|loss| chart(setting, series, loss)).collect()
    };
    let is_split = series.iter().flat_map(|(_, losses)| losses).any(|loss| !loss.loss.compute.is_empty());
    let alone = is_split.then(|| (LossPart::ComputeSharing.name(), ALONE.to_owned()));
    let is_uncertain = series.iter().flat_map(|(_, losses)| losses).any(CaseLoss::is_uncertain);
    Some(Block {
        remark: if is_uncertain { UNCERTAIN.to_owned() } else { String::new() },
        column_notes: alone.into_iter().collect(),
        charts: series.iter().map(charts).collect(),
        table: Some(table(setting, &series)),
        reading: READING.to_owned(),
        ..Block::new("Where the scaling loss goes", NOTE)
    })
}

pub fn class(part: LossPart) -> &'static str {
    match part {
        LossPart::Compute | LossPart::ComputeSharing => "compute",
        LossPart::ComputeOverlapped => "overlapped",
        LossPart::Transfer => "transfer",
        LossPart::Waiting => "waiting",
        LossPart::Phase(phase) => phase_class(phase),
        LossPart::Other => "other",
    }
}

fn chart(setting: &Setting, series: &PageSeries, loss: &CaseLoss) -> Chart {
    let part = |(part, Difference { seconds, margin }): (LossPart, Difference)| {
        let sure = margin.map(|margin| format!(" \u{b1} {:.2}", margin * 1e3)).unwrap_or_default();
        let share =
            loss.loss.share(seconds).map(|share| format!(", {} of the loss", percent(share))).unwrap_or_default();
        waterfall::WaterfallStep {
            label: part.name().to_owned(),
            class: class(part),
            value: seconds * 1e3,
            margin: margin.map(|margin| margin * 1e3),
            tip: format!("{}: {}{sure} ms{share}: {}", part.name(), signed(seconds * 1e3), part.meaning()),
        }
    };
    let total = signed(loss.loss.total.seconds * 1e3);
    let note = if loss.is_uncertain() { ", not significant: use more --runs" } else { "" };
    Chart::Waterfall(Waterfall {
        title: format!("{}: {total} ms per step{note}", setting.named(series, loss.case)),
        description: format!("from the {} to the step of {}", loss.base_step_name(), loss.case),
        axis: "ms".to_owned(),
        from: (loss.base_step_name(), loss.loss.base_step * 1e3),
        parts: loss.loss.finest().into_iter().map(part).collect(),
        to: (format!("step of {}", loss.case), loss.loss.step * 1e3),
        is_doubtful: loss.is_uncertain() || !is_reliable(series, loss),
    })
}

fn is_reliable(series: &PageSeries, loss: &CaseLoss) -> bool {
    series.group.case(loss.case).is_some_and(|case| series.group.is_reliable(case))
}

/// Maximum number of parts for which a row has space for a bar.
const WITH_BARS: usize = 6;

fn table(setting: &Setting, series: &[(&PageSeries, Vec<CaseLoss>)]) -> Table {
    let several = setting.series.len() > 1;
    let all = || series.iter().flat_map(|(_, losses)| losses);
    let shown: Vec<LossPart> =
        all_parts().into_iter().filter(|part| all().any(|loss| loss.part(*part).is_some())).collect();
    let column = |part: &LossPart| match part {
        // Their sum has its own column.
        LossPart::ComputeSharing | LossPart::ComputeOverlapped => Column::numbers(part.name(), "ms").minor(),
        _ => Column::numbers(part.name(), "ms"),
    };
    let mut columns = vec![Column::text("case"), Column::text("over").minor()];
    if several {
        columns.insert(0, Column::text("result"));
    }
    columns.push(Column::numbers("lost", "ms"));
    columns.extend(shown.iter().map(column));
    let rows = series.iter().flat_map(|(series, losses)| {
        losses.iter().map(|loss| {
            let mut cells = vec![loss.case.to_string(), loss.base.to_string()];
            if several {
                cells.insert(0, series.name.clone());
            }
            let is_reliable = is_reliable(series, loss);
            let number = |difference: Option<Difference>| {
                difference.map_or_else(|| "-".to_owned(), |difference| marked(number(difference), !is_reliable))
            };
            cells.push(number(Some(loss.loss.total)));
            cells.extend(shown.iter().map(|part| number(loss.part(*part))));
            Row {
                cells,
                bar: Some(loss.loss.total.seconds.max(0.0)),
                style: Some(series.style),
                is_doubtful: loss.is_uncertain() || !is_reliable,
                ..Row::default()
            }
        })
    });
    let rows = rows.collect();
    // With more columns there is no space for bars on a desktop screen; the waterfall shows the same values.
    let has_room = shown.len() <= WITH_BARS;
    Table { columns, rows, bars: has_room.then_some("lost") }
}

/// Formats a difference with its margin of error: `12.01 ± 0.03`.
fn number(Difference { seconds, margin }: Difference) -> String {
    let margin = margin.map(|margin| format!(" \u{b1} {}", milliseconds_number(Seconds(margin)))).unwrap_or_default();
    milliseconds_number(Seconds(seconds)) + &margin
}
