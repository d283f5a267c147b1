//! Section about training under failures: goodput by interval between checkpoints, lost time by cause, measured costs,
//! predictions.

use ringmark_core::benchmark::train::CheckpointMode;
use ringmark_core::dimension::Seconds;
use ringmark_core::goodput::{Account, Activity, Goodput, HostPrediction, IntervalResult, TimeUse};
use ringmark_core::number_text::{count, four_digits, percent, percent_number, three_digits, time};
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::allreduce_model::Band;
use ringmark_core::stats::goodput::{LostTime, MeasuredTime, Restart};
use ringmark_core::stats::summary::median;

use crate::output::table::{Column, Row, Style, Table};
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::spans::{SpanBar, SpanChart, SpanRow};
use crate::read::show::page::document::{Block, Figure, Headline, Section, Share, Subject};

const INTERVALS: &str = "The speed is the average over the wall time, and goodput is this speed divided by that without \
                         failures. The prediction uses only the costs below and the MTBF; its range contains 95 % of \
                         simulated runs.";

const LOST: &str = "Percent of the wall time. slower: iterations took longer than without failures (negative: less time); \
                    checkpoint: stalls; redo: iterations done again; detect, stop, start, load: steps of a restart.";

const COSTS: &str = "Means in seconds from short runs with one failure each, with half of their 95 % interval. The times of \
                     start and load are those of all kinds together.";

const HOSTS: &str = "A day of training with the costs measured here, each number of hosts with its best interval. On more \
                     hosts, checkpoints and restarts can take longer.";

const NO_GOODPUT: &str = "A dash means that restarts would take nearly all of the time.";

/// Difference between the times of an iteration with and without failures that causes a warning.
const OTHER_SPEED: f64 = 0.1;

/// CSS class of each use of time.
fn class(time_use: TimeUse) -> &'static str {
    match time_use {
        TimeUse::Train => "p3",
        TimeUse::Redo => "p2",
        TimeUse::Checkpoint => "p0",
        TimeUse::Detect => "p5",
        TimeUse::Stop => "p4",
        TimeUse::Start => "p6",
        TimeUse::Load => "p7",
    }
}

/// Returns the headline: the run with the highest goodput, its lost time by cause, and the best interval.
pub fn headline(goodput: &Goodput) -> Option<Headline> {
    let Goodput { what, case, mtbf, failure_seed, young_interval, best_interval, undisturbed_speed, unit, .. } =
        goodput;
    let best = goodput.intervals.iter().max_by(|one, other| one.measured.goodput.total_cmp(&other.measured.goodput))?;
    let IntervalResult { requested, predicted, measured, .. } = best;
    let kinds: Vec<&str> = goodput.failures.iter().map(|failure| failure.kind.keyword()).collect();
    // Faster iterations are a gain, which the note names.
    let losses = || causes(measured).into_iter().filter(|(.., seconds)| *seconds > 0.0);
    let all: f64 = losses().map(|(.., seconds)| seconds).sum();
    let lost = all / measured.wall.0;
    let parts: Vec<Share> =
        losses().map(|(class, name, seconds)| Share { class, name, share: seconds / all }).collect();
    let gain = -measured.slower.0 / measured.wall.0;
    let gain = (gain > 0.0).then(|| {
        format!("{} lost, {} gained by iterations faster than without failures", percent(lost), percent(gain))
    });
    let range = predicted.map(|_| format!("predicted {} %, ", range(*predicted))).unwrap_or_default();
    let of_run = format!("{range}{} in {}", count(measured.failures, "failure"), time(measured.wall));
    let young = format!("by Daly, and at least the time to write a checkpoint; {} by Young", time(*young_interval));
    Some(Headline {
        style: Style { color: 0, shape: 0 },
        name: format!("Goodput with a failure every {}", time(*mtbf)),
        what: format!("{what}, {case}; failures: {}, seed {failure_seed}", kinds.join(", ")),
        trust: None,
        reasons: Vec::new(),
        conclusion: None,
        figures: vec![
            Figure::new(format!("Goodput with interval {requested}"), percent_number(measured.goodput), "%", of_run),
            Figure {
                parts,
                ..Figure::new("Lost time", percent_number(1.0 - measured.goodput), "%", gain.unwrap_or_default())
            },
            Figure::new("Speed without failures", four_digits(undisturbed_speed.0), format!("{unit}/s"), ""),
            Figure::new("Best interval between checkpoints", time(*best_interval), "", young),
        ],
    })
}

/// Returns the section.
pub fn section(goodput: &Goodput) -> Section {
    let blocks = [intervals(goodput), lost(goodput), costs(goodput), hosts(goodput)];
    Section {
        subject: Subject::Goodput,
        title: "Goodput".to_owned(),
        note: String::new(),
        blocks: blocks.into_iter().flatten().collect(),
    }
}

fn intervals(goodput: &Goodput) -> Option<Block> {
    let row = |IntervalResult { requested, length, predicted, measured, .. }: &IntervalResult| {
        let Account { failures, wall, goodput, speed, .. } = measured;
        Row::from(vec![
            requested.clone(),
            three_digits(length.interval.0),
            failures.to_string(),
            three_digits(wall.0),
            percent_number(*goodput),
            predicted.map_or("-".to_owned(), |band| percent_number(band.mid)),
            range(*predicted),
            four_digits(speed.0),
        ])
    };
    let columns = vec![
        Column::text("interval"),
        Column::numbers("between", "s"),
        Column::numbers("failures", ""),
        Column::numbers("wall", "s"),
        Column::numbers("goodput", "%"),
        Column::numbers("predicted", "%"),
        Column::numbers("range", "%"),
        Column::numbers("speed", format!("{}/s", goodput.unit)),
    ];
    block("Interval between checkpoints", INTERVALS, columns, goodput.intervals.iter().map(row).collect())
        .map(|block| Block { remark: remark(goodput), ..block })
}

/// MTBF of a host below which the failures must be injected.
const LEAST_HOST_MTBF: Seconds = Seconds(86_400.0);

/// Number of failures below which the measured goodput of a run is mostly chance.
const MANY_FAILURES: u32 = 20;

/// Returns a note about runs with few failures, and the warning of [`other_speed`].
fn remark(goodput: &Goodput) -> String {
    let failures: Vec<u32> = goodput.intervals.iter().map(|interval| interval.measured.failures).collect();
    let (fewest, most) = (failures.iter().min().copied().unwrap_or(0), failures.iter().max().copied().unwrap_or(0));
    let number = if fewest == most { most.to_string() } else { format!("{fewest} to {most}") };
    let by_chance = (failures.len() > 1 && most < MANY_FAILURES).then(|| {
        format!(
            "With {number} failures in a run, the measured goodput varies by chance within the range: compare intervals by the \
             prediction, or repeat with a longer --duration."
        )
    });
    by_chance
        .into_iter()
        .chain(Some(other_speed(goodput)).filter(|text| !text.is_empty()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns a warning if iterations took clearly more or less time than without failures; else an empty text.
fn other_speed(goodput: &Goodput) -> String {
    let other = |IntervalResult { requested, measured, .. }: &IntervalResult| {
        let ratio = measured.slower.0 / measured.useful.0;
        let more = if ratio > 0.0 { "more" } else { "less" };
        (ratio.abs() > OTHER_SPEED).then(|| format!("{requested}: {} {more} time", percent(ratio.abs())))
    };
    let each: Vec<String> = goodput.intervals.iter().filter_map(other).collect();
    if each.is_empty() {
        return String::new();
    }
    format!(
        "warning: an iteration took more or less time than without failures ({}): repeat on an otherwise idle machine, with \
         more --runs and --iters",
        each.join(", ")
    )
}

/// Returns the CSS class, name and seconds of each cause of lost time.
fn causes(measured: &Account) -> [(&'static str, &'static str, f64); 7] {
    let LostTime { checkpoint, redo, restart: Restart { detect, stop, start, load } } = measured.lost;
    let cause = |time_use: TimeUse, seconds| (class(time_use), time_use.keyword(), seconds);
    [
        ("p1", "slower", measured.slower.0),
        cause(TimeUse::Checkpoint, checkpoint),
        cause(TimeUse::Redo, redo),
        cause(TimeUse::Detect, detect),
        cause(TimeUse::Stop, stop),
        cause(TimeUse::Start, start),
        cause(TimeUse::Load, load),
    ]
}

/// Returns the lost time by cause, with a time line of each run.
fn lost(goodput: &Goodput) -> Option<Block> {
    let row = |IntervalResult { requested, measured, .. }: &IntervalResult| {
        let share = |seconds: f64| percent_number(seconds / measured.wall.0);
        let all = causes(measured)
            .map(|(.., seconds)| seconds)
            .into_iter()
            .chain([measured.slower.0 + measured.lost.total()]);
        Row::from([requested.clone()].into_iter().chain(all.map(share)).collect::<Vec<String>>())
    };
    let first = goodput.intervals.first()?;
    let names = causes(&first.measured).map(|(_, name, _)| name).into_iter().chain(["all"]);
    let columns = [Column::text("interval")].into_iter().chain(names.map(|cause| Column::numbers(cause, "%")));
    let rows = goodput.intervals.iter().map(row).collect();
    block("Lost time by cause", LOST, columns.collect(), rows).map(|block| Block {
        remark: long_stalls(goodput),
        charts: vec![vec![Chart::Spans(time_lines(goodput))]],
        ..block
    })
}

/// Ratio of a checkpoint's stall to the median of its run from which it is mentioned.
const LONG_STALL: f64 = 10.0;

/// Returns a sentence for each run with a checkpoint that took much longer than the others.
fn long_stalls(goodput: &Goodput) -> String {
    let sentence = |IntervalResult { requested, measured, .. }: &IntervalResult| {
        let stalls = measured.activities.iter().filter(|activity| activity.time_use == TimeUse::Checkpoint);
        let stalls: Vec<f64> = stalls.map(|Activity { begin, end, .. }| end.0 - begin.0).collect();
        let (longest, median) = (stalls.iter().copied().fold(0.0, f64::max), median(&stalls)?);
        let took = time(Seconds(longest));
        (longest > LONG_STALL * median)
            .then(|| format!("{requested}: a checkpoint took {took}, {:.0} times the median.", longest / median))
    };
    goodput.intervals.iter().filter_map(sentence).collect::<Vec<_>>().join(" ")
}

fn time_lines(goodput: &Goodput) -> SpanChart {
    let bar = |Activity { time_use, begin, end }: &Activity| SpanBar {
        begin: begin.0,
        end: end.0,
        class: class(*time_use),
        name: String::new(),
        tip: format!("{time_use}: {}, from {}", time(Seconds(end.0 - begin.0)), time(*begin)),
        is_critical: false,
    };
    let row = |IntervalResult { requested, measured, .. }: &IntervalResult| SpanRow {
        label: requested.clone(),
        lanes: vec![measured.activities.iter().map(bar).collect()],
    };
    let ends = goodput.intervals.iter().map(|interval| interval.measured.wall.0);
    SpanChart {
        title: "time line of each run".to_owned(),
        description: "Use of the time since the first iteration, by interval between checkpoints".to_owned(),
        kinds: TimeUse::ALL.iter().map(|time_use| (class(*time_use), time_use.keyword())).collect(),
        rows: goodput.intervals.iter().map(row).collect(),
        end: ends.fold(0.0, f64::max),
        unit: "s",
    }
}

fn costs(goodput: &Goodput) -> Option<Block> {
    let checkpoint = &goodput.checkpoint;
    let mut columns: Vec<Column> = vec![Column::text("failure"), Column::numbers("measured", "")];
    let restart = goodput.failures.iter().map(|failure| {
        let Restart { detect, stop, start, load } = failure.restart;
        let times = [detect, stop, start, load].map(measured);
        Row::from([failure.kind.to_string(), failure.failures.to_string()].into_iter().chain(times).collect::<Vec<_>>())
    });
    columns.extend(["detect", "stop", "start", "load"].map(|step| Column::numbers(step, "s")));
    let safe = match checkpoint.mode {
        CheckpointMode::Sync => String::new(),
        CheckpointMode::Async => format!(", written after {} s", measured(checkpoint.write)),
    };
    let line = format!(
        "checkpoint ({}): {:.1} MB, stall {} s{safe}; {} measured",
        checkpoint.mode,
        checkpoint.bytes.megabytes(),
        measured(checkpoint.stall),
        checkpoint.checkpoints
    );
    block("Costs", COSTS, columns, restart.collect()).map(|block| Block { remark: line, ..block })
}

fn hosts(goodput: &Goodput) -> Option<Block> {
    let row = |HostPrediction { hosts, mtbf, interval, goodput }: &HostPrediction| {
        let mid = goodput.map_or("-".to_owned(), |band| percent_number(band.mid));
        Row::from(vec![hosts.to_string(), time(*mtbf), time(*interval), mid, range(*goodput)])
    };
    let columns = vec![
        Column::numbers("hosts", ""),
        Column::numbers("MTBF", ""),
        Column::numbers("best interval", ""),
        Column::numbers("goodput", "%"),
        Column::numbers("range", "%"),
    ];
    let is_injected = goodput.host_mtbf() < LEAST_HOST_MTBF;
    let rows: Vec<Row> = goodput.predictions.iter().map(row).collect();
    let has_all = goodput.predictions.iter().all(|prediction| prediction.goodput.is_some());
    let note = if has_all { HOSTS.to_owned() } else { format!("{HOSTS} {NO_GOODPUT}") };
    let real = if is_injected {
        ", which is that of the injected failures: --host-mtbf 200d predicts for real hosts"
    } else {
        ""
    };
    let host_mtbf = format!("MTBF of one host: {}{real}", time(goodput.host_mtbf()));
    let table = (!rows.is_empty()).then_some(Table { columns, rows, bars: None });
    (!goodput.predictions.is_empty()).then(|| Block {
        remark: host_mtbf,
        table,
        ..Block::new("Other numbers of hosts", note)
    })
}

fn block(title: &str, note: &str, columns: Vec<Column>, rows: Vec<Row>) -> Option<Block> {
    (!rows.is_empty()).then(|| Block { table: Some(Table { columns, rows, bars: None }), ..Block::new(title, note) })
}

fn range(band: Option<Band>) -> String {
    band.map_or("-".to_owned(), |band| format!("{} to {}", percent_number(band.low), percent_number(band.high)))
}

/// Returns `12.3 ± 0.4`, half of the interval of 95 %.
fn measured(time: MeasuredTime) -> String {
    format!("{} \u{b1} {}", three_digits(time.mean), three_digits(1.96 * time.error))
}
