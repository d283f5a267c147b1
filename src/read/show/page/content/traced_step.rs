//! Inside a traced iteration: what each rank did when, and what held the step.

use ringmark_record::dimension::phase::Phase;
use ringmark_record::options::keyword_enum::KeywordEnum;
use ringmark_record::trace::span::{Direction, Lane, RankTrace, Span};
use ringmark_record::trace::timeline::Timeline;

use crate::read::analyse::critical_path::{self, CriticalPath};
use crate::read::analyse::figures::CaseRuns;
use crate::read::show::columns::percent;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::spans::{SpanBar, SpanChart, SpanRow};
use crate::read::show::page::charts::style::phase_class;
use crate::read::show::page::content::series::{Series, Setting};
use crate::read::show::page::document::{Block, Column, Row, Table};

const NOTE: &str = "The traced iteration of median length, of the first run of each case that was traced. Outlined: the critical path, \
                    on which each part began only when the one before it had ended.";

const READING: &str = "Four lanes a rank: phases, layers, what sums gradients, and buckets from their last gradient to their sum. A \
                       click into the drawing, then the wheel or + and - zoom, dragging or the arrow keys move, Escape shows it all. \
                       The whole trace opens in Perfetto: RUN.trace.json beside the run's log.";

/// Ranks that a drawing has space for; more are left out, but for those on the critical path.
const RANKS: usize = 16;

/// Lanes that buckets in flight at once take turns in.
const BUCKET_LANES: u32 = 3;

/// One a series that was traced. How drawings are read is said once.
pub fn blocks(setting: &Setting) -> Vec<Block> {
    let mut blocks: Vec<Block> = setting.series.iter().filter_map(|series| block(setting, series)).collect();
    blocks.iter_mut().skip(1).for_each(|block| block.reading.clear());
    blocks
}

/// A traced iteration of a case.
struct Traced<'a> {
    case: String,
    timeline: &'a Timeline,
    path: CriticalPath,
}

fn block(setting: &Setting, series: &Series) -> Option<Block> {
    let traced: Vec<Traced> = series.group.cases.iter().filter_map(|case| traced(series, case)).collect();
    if traced.is_empty() {
        return None;
    }
    let title = match setting.series.len() {
        1 => "Inside an iteration".to_owned(),
        _ => format!("Inside an iteration of {}", series.name),
    };
    let held = traced
        .iter()
        .filter_map(|traced| Some(format!(" {}: held by {}.", traced.case, traced.path.held_by.as_ref()?)));
    Some(Block {
        charts: traced.iter().map(|traced| vec![Chart::Spans(chart(traced))]).collect(),
        table: Some(table(&traced)),
        reading: READING.to_owned(),
        ..Block::new(title, format!("{NOTE}{}", held.collect::<String>()))
    })
}

/// Of the first run of `case` that was traced.
fn traced<'a>(series: &Series<'a>, case: &CaseRuns) -> Option<Traced<'a>> {
    let of_run = |run: &crate::read::load::record::Run| {
        series.traces.iter().find(|(name, _)| *name == run.found.name).map(|(_, timeline)| timeline)
    };
    let timeline = case.runs.iter().find_map(of_run)?;
    let mut paths: Vec<CriticalPath> = critical_path::iterations(timeline)
        .into_iter()
        .filter_map(|iteration| critical_path::of(timeline, iteration))
        .collect();
    paths.sort_by_key(length);
    let path = paths.get(paths.len().checked_sub(1)? / 2)?.clone();
    Some(Traced { case: case.case.to_string(), timeline, path })
}

/// In nanoseconds.
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
    let rows = shown.map(|(_, (rank, spans))| row(rank, spans, path, begin)).collect();
    let left_out = all.len().saturating_sub(RANKS);
    let more = if left_out > 0 { format!("; {RANKS} of {} ranks", all.len()) } else { String::new() };
    let phase = |phase: Phase| (phase_class(phase), phase.description());
    SpanChart {
        title: format!("{case}, iteration {}: {:.1} ms{more}", path.iteration, (end - begin) as f64 / 1e6),
        description: path.held_by.clone().map_or_else(String::new, |held_by| format!("held by {held_by}")),
        kinds: Phase::ALL
            .iter()
            .copied()
            .filter(|phase| phase.is_always())
            .map(phase)
            .chain([("waiting", "waiting")])
            .collect(),
        rows,
        end: (end - begin) as f64 / 1e6,
    }
}

fn row(rank: &RankTrace, spans: &[Span], path: &CriticalPath, zero: i64) -> SpanRow {
    let milliseconds = |nanoseconds: i64| (nanoseconds - zero) as f64 / 1e6;
    let bar = |span: &Span, class: &'static str, name: &str| {
        let is_critical = path.spans.iter().any(|critical| {
            critical.rank == rank.rank
                && span.lane == Lane::Step
                && critical.name == span.name
                && critical.begin_ns <= span.begin_ns
                && span.begin_ns < critical.end_ns
        });
        SpanBar {
            begin: milliseconds(span.begin_ns),
            end: milliseconds(span.end_ns()),
            class,
            name: name.to_owned(),
            tip: format!("rank {}: {}, {:.3} ms", rank.rank, told(span), span.length_ns as f64 / 1e6),
            is_critical,
        }
    };
    let lane = |is_own: &dyn Fn(&Span) -> bool, class: &dyn Fn(&Span) -> &'static str| -> Vec<SpanBar> {
        spans.iter().filter(|span| is_own(span)).map(|span| bar(span, class(span), &span.name)).collect()
    };
    let exposed = phase_class(Phase::ExposedAllreduce);
    let is_exchange = |span: &Span| matches!(span.lane, Lane::Exchange | Lane::BetweenHosts);
    let mut exchange = lane(&is_exchange, &|span| if is_wait(span) { "waiting" } else { exposed });
    let sums = path.spans.iter().filter(|critical| critical.rank == rank.rank && critical.name.starts_with("sum"));
    exchange.extend(sums.map(|critical| SpanBar {
        begin: milliseconds(critical.begin_ns),
        end: milliseconds(critical.end_ns),
        class: "bare",
        name: String::new(),
        tip: format!("critical path: {}", critical.name),
        is_critical: true,
    }));
    let mut lanes = vec![
        lane(&|span| span.lane == Lane::Step, &phase_of),
        lane(&|span| span.lane == Lane::Layers, &layer_class),
        exchange,
    ];
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

fn is_wait(span: &Span) -> bool {
    span.name.starts_with("wait")
}

fn layer_class(span: &Span) -> &'static str {
    match span.layer.map(|pass| pass.direction) {
        Some(Direction::Forward) => phase_class(Phase::Forward),
        Some(Direction::Backward) => phase_class(Phase::Backward),
        None if is_wait(span) => "waiting",
        None => "other",
    }
}

/// `layer1.0.conv1 backward`, `sum of bucket 3`.
fn told(span: &Span) -> String {
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
                percent(time / length(&traced.path).max(1) as f64),
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
