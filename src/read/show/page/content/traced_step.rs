//! Charts of a traced iteration: activity of every rank over time, and the critical path.

use ringmark_core::dimension::Phase;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::trace::{Direction, Lane, RankTrace, Span, Timeline};

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::training::critical_path::{self, CriticalPath};
use crate::read::analyze::training::figures::TrainingCase;
use crate::read::show::numbers::percent_number;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::spans::{SpanBar, SpanChart, SpanRow};
use crate::read::show::page::charts::style::phase_class;
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;

const NOTE: &str = "The traced iteration of median length, from the first traced run of each case. Outlined: the \
    critical path, on which each part starts when the one before it ends.";

const READING: &str = "Four lanes per rank: phases, layers, gradient summation, and buckets from their last gradient \
    to their sum. Click the drawing to activate it. Zoom with the wheel, + and -; move by dragging or with the arrow \
    keys; Escape shows the whole iteration. Perfetto opens the whole trace: RUN.trace.json next to the log of the run.";

/// Maximum number of ranks in a chart, in addition to those on the critical path.
const RANKS: usize = 16;

/// Number of lanes over which concurrent buckets are distributed.
const BUCKET_LANES: u32 = 3;

/// Returns a block for each traced series. Only the first one has the reading instructions.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let mut blocks: Vec<Block> = setting.series.iter().filter_map(|series| block(setting, series)).collect();
    blocks.iter_mut().skip(1).for_each(|block| block.reading.clear());
    blocks
}

struct Traced<'a> {
    case: String,
    timeline: &'a Timeline,
    path: CriticalPath,
}

fn block(setting: &Setting, series: &PageSeries) -> Option<Block> {
    let traced: Vec<Traced> = series.group.cases.iter().filter_map(|case| traced(series, case)).collect();
    if traced.is_empty() {
        return None;
    }
    let held = traced
        .iter()
        .filter_map(|traced| Some(format!(" {}: limited by {}.", traced.case, traced.path.limited_by.as_ref()?)));
    Some(Block {
        charts: traced.iter().map(|traced| vec![Chart::Spans(chart(traced))]).collect(),
        table: Some(table(&traced)),
        reading: READING.to_owned(),
        ..Block::new(setting.titled("Inside an iteration", series), format!("{NOTE}{}", held.collect::<String>()))
    })
}

/// Returns the iteration with the median critical path, from the first traced run of `case`.
fn traced<'a>(series: &PageSeries<'a>, case: &TrainingCase) -> Option<Traced<'a>> {
    let of_run = |run: &crate::read::load::run::Run| {
        series.traces.iter().find(|(name, _)| *name == run.found.name).map(|(_, timeline)| timeline)
    };
    let timeline = case.runs.iter().find_map(of_run)?;
    let mut paths: Vec<CriticalPath> = critical_path::iterations(timeline)
        .into_iter()
        .filter_map(|iteration| critical_path::find(timeline, iteration))
        .collect();
    paths.sort_by_key(length);
    let path = paths.get(paths.len().checked_sub(1)? / 2)?.clone();
    Some(Traced { case: case.case.to_string(), timeline, path })
}

/// Returns the length of the path in nanoseconds.
fn length(path: &CriticalPath) -> i64 {
    let ends = path.spans.first().zip(path.spans.last());
    ends.map_or(0, |(first, last)| last.end_ns - first.begin_ns)
}

fn chart(traced: &Traced) -> SpanChart {
    let Traced { case, timeline, path } = traced;
    let of_iteration = |rank: &'_ RankTrace| -> Vec<Span> {
        rank.spans.iter().filter(|span| span.iteration == path.iteration).cloned().collect()
    };
    let all: Vec<(&RankTrace, Vec<Span>)> = timeline.ranks.iter().map(|rank| (rank, of_iteration(rank))).collect();
    let spans = || all.iter().flat_map(|(_, spans)| spans).filter(|span| span.lane == Lane::Step);
    let begin = spans().map(|span| span.begin_ns).min().unwrap_or(0);
    let end = spans().map(Span::end_ns).max().unwrap_or(0);
    let is_on_path = |rank: &RankTrace| path.spans.iter().any(|span| span.rank == rank.rank);
    let shown = all.iter().enumerate().filter(|(number, (rank, _))| *number < RANKS || is_on_path(rank));
    let rows: Vec<SpanRow> = shown.map(|(_, (rank, spans))| row(rank, spans, path, begin)).collect();
    let more = if rows.len() < all.len() { format!("; {} of {} ranks", rows.len(), all.len()) } else { String::new() };
    let phase = |phase: Phase| (phase_class(phase), phase.description());
    SpanChart {
        title: format!("{case}, iteration {}: {:.1} ms{more}", path.iteration, (end - begin) as f64 / 1e6),
        description: path.limited_by.clone().map_or_else(String::new, |limited_by| format!("limited by {limited_by}")),
        kinds: Phase::ALL.iter().copied().map(phase).chain([("waiting", "waiting"), ("other", "other")]).collect(),
        rows,
        end: (end - begin) as f64 / 1e6,
        unit: "ms",
    }
}

fn row(rank: &RankTrace, spans: &[Span], path: &CriticalPath, zero: i64) -> SpanRow {
    let milliseconds = |nanoseconds: i64| (nanoseconds - zero) as f64 / 1e6;
    let bar = |span: &Span, class: &'static str, name: &str| SpanBar {
        begin: milliseconds(span.begin_ns),
        end: milliseconds(span.end_ns()),
        class,
        name: name.to_owned(),
        tip: format!("rank {}: {}, {:.3} ms", rank.rank, span_text(span), span.length_ns as f64 / 1e6),
        is_critical: false,
    };
    // Ends with the path: a phase may continue after the gradient that the step waited for.
    let outlines = |is_sum: bool| {
        let own = path.spans.iter().filter(|critical| critical.rank == rank.rank);
        let own = own.filter(move |critical| critical.is_exchange == is_sum);
        own.map(|critical| SpanBar {
            begin: milliseconds(critical.begin_ns),
            end: milliseconds(critical.end_ns),
            class: "bare",
            name: String::new(),
            tip: format!("critical path: {}", critical.name),
            is_critical: true,
        })
    };
    let lane = |is_own: &dyn Fn(&Span) -> bool, class: &dyn Fn(&Span) -> &'static str| -> Vec<SpanBar> {
        spans.iter().filter(|span| is_own(span)).map(|span| bar(span, class(span), &span.name)).collect()
    };
    let exposed = phase_class(Phase::ExposedAllreduce);
    let is_exchange = |span: &Span| matches!(span.lane, Lane::Exchange | Lane::BetweenHosts);
    let mut exchange = lane(&is_exchange, &|span| if span.is_wait() { "waiting" } else { exposed });
    exchange.extend(outlines(true));
    let mut steps = lane(&|span| span.lane == Lane::Step, &phase_of);
    steps.extend(outlines(false));
    let mut lanes = vec![steps, lane(&|span| span.lane == Lane::Layers, &layer_class), exchange];
    for turn in 0..BUCKET_LANES {
        let is_own = |span: &Span| matches!(span.lane, Lane::Bucket(number) if number % BUCKET_LANES == turn);
        let buckets = lane(&is_own, &|_| exposed);
        lanes.extend(Some(buckets).filter(|buckets| !buckets.is_empty()));
    }
    SpanRow { label: format!("rank {}", rank.rank), lanes }
}

fn phase_of(span: &Span) -> &'static str {
    let phase = Phase::ALL.iter().copied().find(|phase| phase.description() == span.name);
    phase.map_or("other", phase_class)
}

fn layer_class(span: &Span) -> &'static str {
    match span.layer.map(|pass| pass.direction) {
        Some(Direction::Forward) => phase_class(Phase::Forward),
        Some(Direction::Backward) => phase_class(Phase::Backward),
        None if span.is_wait() => "waiting",
        None => "other",
    }
}

/// Names a span: `layer1.0.conv1 backward`, `sum of bucket 3`.
fn span_text(span: &Span) -> String {
    match (&span.layer, span.bucket) {
        (Some(pass), _) => format!("{} {}", span.name, pass.direction),
        (None, Some(bucket)) if !matches!(span.lane, Lane::Bucket(_)) => format!("{} of bucket {bucket}", span.name),
        _ => span.name.clone(),
    }
}

fn table(traced: &[Traced]) -> Table {
    let row = |traced: &Traced, span: &critical_path::CriticalSpan| {
        let time = (span.end_ns - span.begin_ns) as f64;
        Row {
            cells: vec![
                traced.case.clone(),
                span.name.clone(),
                format!("rank {}", span.rank),
                format!("{:.2}", time / 1e6),
                percent_number(time / length(&traced.path).max(1) as f64),
            ],
            ..Row::default()
        }
    };
    let rows = traced.iter().flat_map(|traced| traced.path.spans.iter().map(move |span| row(traced, span)));
    let columns = vec![
        Column::text("case"),
        Column::text("critical path"),
        Column::text("where"),
        Column::numbers("time", "ms"),
        Column::numbers("share", "%"),
    ];
    Table { columns, rows: rows.collect(), bars: None }
}

#[cfg(test)]
mod tests {
    use ringmark_core::dimension::Strategy;
    use ringmark_core::trace::clock::{ClockMethod, ClockReading, RankClock};

    use super::*;

    #[test]
    fn critical_path_is_outlined_and_its_ranks_are_drawn() {
        let reading = ClockReading { at_ns: 0, ahead_ns: 0, residual_ns: 0 };
        let clock = RankClock { method: ClockMethod::SameHost, first: reading, last: reading };
        let rank = |rank: u32| {
            let span = |lane, name: &str, begin_ns: i64, end_ns: i64, bucket| Span {
                lane,
                name: name.to_owned(),
                iteration: 3,
                begin_ns,
                length_ns: end_ns - begin_ns,
                layer: None,
                bucket,
            };
            // The gradients of the last rank are ready last, and its backward continues after them.
            let filled = if rank == 17 { 6_000_000 } else { 5_000_000 };
            let spans = vec![
                span(Lane::Step, "forward", 0, 4_000_000, None),
                span(Lane::Step, "backward", 4_000_000, 7_000_000, None),
                span(Lane::Step, "exposed all-reduce", 7_000_000, 9_000_000, None),
                span(Lane::Step, "optimizer", 9_000_000, 10_000_000 - i64::from(rank), None),
                span(Lane::Exchange, "all-reduce", filled, 9_000_000, Some(0)),
                span(Lane::Bucket(0), "bucket 0", filled, 9_000_000, Some(0)),
            ];
            RankTrace { rank, host: "a".to_owned(), clock, spans, gradients: Vec::new() }
        };
        let timeline = Timeline {
            title: String::new(),
            began_unix_seconds: 0.0,
            strategy: Some(Strategy::AllReduce),
            exchange: "nccl".to_owned(),
            arrays: Vec::new(),
            ranks: (0..18).map(rank).collect(),
        };
        let path = critical_path::find(&timeline, 3).expect("a path");
        let chart = chart(&Traced { case: "1n18g".to_owned(), timeline: &timeline, path });
        assert_eq!(chart.title, "1n18g, iteration 3: 10.0 ms; 17 of 18 ranks");
        assert_eq!((chart.rows.len(), chart.rows[16].label.as_str()), (17, "rank 17"));
        let outlined = |row: &SpanRow, lane: usize| -> Vec<(f64, f64)> {
            let outlined = row.lanes[lane].iter().filter(|bar| bar.is_critical);
            outlined.map(|bar| (bar.begin, bar.end)).collect()
        };
        assert_eq!(outlined(&chart.rows[16], 0), [(0.0, 4.0), (4.0, 6.0)]);
        assert_eq!(outlined(&chart.rows[0], 2), [(6.0, 9.0)]);
        assert_eq!(outlined(&chart.rows[0], 0), [(9.0, 10.0)]);
    }
}
