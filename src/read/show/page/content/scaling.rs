//! Throughput, speedup and efficiency over ranks: the median as a line, each run a dot, the ideal beside it. A single case
//! has nothing to scale: there the speed of each run is shown, in the order of the runs.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_record::dimension::case::Case;
use ringmark_record::dimension::units::ImagesPerSecond;
use ringmark_record::stats::scaling::{efficiency, speedup};

use crate::read::analyse::figures::{CaseRuns, Figures, Group};
use crate::read::analyse::published::{DLPERF, Published};
use crate::read::analyse::title::unlike_devices;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::lines::{Axis, LineChart, LineSeries, Point};
use crate::read::show::page::charts::scale::{ScaleKind, extent};
use crate::read::show::page::charts::style::Style;
use crate::read::show::page::content::numbers::{count, percent};
use crate::read::show::page::content::series::{Series, Setting};
use crate::read::show::page::document::{Block, Column, Row, Table};
use crate::read::show::sections::marked;

const READING: &str = "A line is the median of the runs, a small circle is one run. Throughput has logarithmic axes, on which every \
                       bend away from the thin line is a loss at that step; speedup shows how far the largest case is from \
                       the ideal.";

const NOTE: &str = "Speed is all images of a run over all its time, the median of the runs; speedup and efficiency are those \
                    of the medians; CV is the runs' standard deviation by their mean. DLPerf is the median of the runs' means \
                    of rates, as DLPerf counts.";

/// One case of one line: its median and every run, in images/s.
struct Speeds {
    case: Case,
    median: f64,
    runs: Vec<(u32, f64)>,
}

/// One line of the charts, measured here or by others.
struct Line {
    name: String,
    style: Style,
    base: (Case, f64),
    cases: Vec<Speeds>,
    is_reference: bool,
}

/// Of all series of the setting; with what others published under the same conditions where `published`.
pub fn block(setting: &Setting, published: bool) -> Block {
    let rows = if published { published_rows(setting) } else { Vec::new() };
    let mut lines: Vec<Line> = setting.series.iter().filter_map(measured).collect();
    lines.extend(rows.iter().enumerate().filter_map(|(index, row)| reference(row, setting.series.len() + index)));
    let several_cases = lines.iter().any(|line| line.cases.len() > 1);
    let (reading, charts) = match (lines.is_empty(), several_cases) {
        (true, _) => ("", Vec::new()),
        (false, true) => (READING, vec![vec![throughput(&lines), speedups(&lines), efficiencies(&lines)]]),
        (false, false) => (
            "There is one case alone, so there is nothing to scale: every run in turn, on an axis that does not begin at 0.",
            vec![vec![by_run(&lines)]],
        ),
    };
    let mut notes = vec![NOTE.to_owned()];
    let unlike =
        |series: &Series| Some(format!("Note: {}.", setting.named(series, unlike_devices(series.group)?.join(" "))));
    notes.extend(setting.series.iter().filter_map(unlike));
    notes.extend(rows.iter().map(|row| cited(row)));
    if published && rows.is_empty() {
        let rows = DLPERF.map(|row| format!("{} with batch size {}", row.dtype, row.batch_size));
        notes.push(format!(
            "Nothing published was measured like this: DLPerf's rows are of GPUs, {}.",
            rows.join(" and ")
        ));
    }
    let title = if several_cases { "Throughput, speedup and efficiency" } else { "Throughput" };
    Block {
        charts,
        reading: reading.to_owned(),
        table: Some(table(setting, &rows)),
        ..Block::new(title, notes.join(" "))
    }
}

/// Rows of the same model, precision and batch size, on GPUs.
fn published_rows(setting: &Setting) -> Vec<&'static Published> {
    let fits = |row: &&Published| {
        let is_alike = |series: &Series| {
            let conditions = &series.group.conditions;
            (conditions.model, conditions.dtype, conditions.batch_size) == (row.model, row.dtype, row.batch_size)
        };
        setting.process() == "GPU" && setting.series.iter().any(is_alike)
    };
    DLPERF.iter().filter(fits).collect()
}

/// Source, setup and caveat of a row.
fn cited(row: &Published) -> String {
    let caveat = row.caveat.map(|caveat| format!(" Beware: {caveat}.")).unwrap_or_default();
    format!("{}, not measured by ringmark: {} ({}).{caveat}", row.name, row.source, row.setup)
}

fn measured(series: &Series) -> Option<Line> {
    let of_case = |case: &CaseRuns| {
        let counted = case.runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?.speed.0)));
        Some(Speeds { case: case.case, median: case.figures.as_ref()?.speed.0, runs: counted.collect() })
    };
    let cases: Vec<Speeds> = series.group.cases.iter().filter_map(of_case).collect();
    let first = cases.first()?;
    let base = (first.case, first.median);
    Some(Line { name: series.name.clone(), style: series.style, base, cases, is_reference: false })
}

fn reference(row: &Published, shape: usize) -> Option<Line> {
    let cases = row.cases.iter().map(|case| Speeds {
        case: case.case,
        median: case.median.0,
        runs: (1..).zip(case.runs.iter().copied()).collect(),
    });
    let cases: Vec<Speeds> = cases.collect();
    let first = cases.first()?;
    let base = (first.case, first.median);
    Some(Line {
        name: format!("{} (published)", row.name),
        style: Style { colour: 0, shape },
        base,
        cases,
        is_reference: true,
    })
}

impl Line {
    /// `value` of (speed, case), for the medians and for the runs.
    fn series(
        &self,
        value: impl Fn(f64, Case) -> f64,
        tip: impl Fn(f64) -> String,
        ideal: Vec<(f64, f64)>,
    ) -> LineSeries {
        let point = |case: Case, speed: f64, what: &str| {
            let y = value(speed, case);
            let speed = if y == speed { String::new() } else { format!(" ({speed:.2} images/s)") };
            let tip = format!("{}, {case}, {what}: {}{speed}", self.name, tip(y));
            Point { x: f64::from(case.ranks()), y, tip }
        };
        let median = |case: &Speeds| {
            let spread = extent(case.runs.iter().map(|(_, speed)| *speed));
            let spread = spread
                .map(|[low, high]| format!(" of {}, {low:.2} to {high:.2} images/s", count(case.runs.len(), "run")));
            point(case.case, case.median, &format!("median{}", spread.unwrap_or_default()))
        };
        let run = |case: &Speeds| -> Vec<Point> {
            case.runs.iter().map(|(run, speed)| point(case.case, *speed, &format!("run {run}"))).collect()
        };
        LineSeries {
            name: self.name.clone(),
            style: self.style,
            points: self.cases.iter().map(median).collect(),
            dots: self.cases.iter().filter(|case| case.runs.len() > 1).flat_map(run).collect(),
            ideal,
            is_reference: self.is_reference,
        }
    }

    /// Fewest and most ranks.
    fn ends(&self) -> [f64; 2] {
        extent(self.cases.iter().map(|case| f64::from(case.case.ranks()))).unwrap_or([1.0, 1.0])
    }

    fn speedup(&self, speed: f64) -> f64 {
        speedup(ImagesPerSecond(speed), ImagesPerSecond(self.base.1))
    }
}

/// Marks at the numbers of ranks that occur, with the cases below them.
fn ranks_axis(lines: &[Line], kind: ScaleKind) -> Axis {
    let mut cases: BTreeMap<u32, BTreeSet<Case>> = BTreeMap::new();
    for case in lines.iter().flat_map(|line| &line.cases) {
        cases.entry(case.case.ranks()).or_default().insert(case.case);
    }
    let most = cases.keys().last().copied().unwrap_or(1);
    let least = cases.keys().next().copied().unwrap_or(1);
    let mut marks: Vec<(f64, String, String)> = Vec::new();
    let mut last: Option<u32> = None;
    // From the largest down, where linear axes leave no space.
    for (ranks, cases) in cases.into_iter().rev() {
        let distance = |other: u32| match kind {
            ScaleKind::Linear => f64::from(other - ranks) / f64::from((most - least).max(1)),
            ScaleKind::Logarithmic => {
                (f64::from(other) / f64::from(ranks)).ln() / (f64::from(most) / f64::from(least)).ln()
            }
        };
        if last.is_some_and(|last| distance(last) < 0.09) {
            continue;
        }
        last = Some(ranks);
        let names: Vec<String> = cases.iter().map(Case::to_string).collect();
        let below = if kind == ScaleKind::Logarithmic && names.len() == 1 { names.concat() } else { String::new() };
        marks.push((f64::from(ranks), ranks.to_string(), below));
    }
    marks.reverse();
    Axis { name: "ranks".to_owned(), kind, marks }
}

fn throughput(lines: &[Line]) -> Chart {
    let ideal =
        |line: &Line| line.ends().map(|ranks| (ranks, line.base.1 * ranks / f64::from(line.base.0.ranks()))).to_vec();
    let series =
        lines.iter().map(|line| line.series(|speed, _| speed, |speed| format!("{speed:.2} images/s"), ideal(line)));
    chart("Throughput", "images/s", lines, [ScaleKind::Logarithmic; 2], series.collect(), [None; 2])
}

fn speedups(lines: &[Line]) -> Chart {
    let ideal = |line: &Line| line.ends().map(|ranks| (ranks, ranks / f64::from(line.base.0.ranks()))).to_vec();
    let series = lines
        .iter()
        .map(|line| line.series(|speed, _| line.speedup(speed), |value| format!("{value:.2} times"), ideal(line)));
    chart("Speedup", "times the smallest case", lines, [ScaleKind::Linear; 2], series.collect(), [Some(0.0), None])
}

fn efficiencies(lines: &[Line]) -> Chart {
    let series = lines.iter().map(|line| {
        let share = |speed: f64, case: Case| 100.0 * efficiency(line.speedup(speed), case.ranks(), line.base.0.ranks());
        line.series(share, |value| format!("{value:.1} %"), line.ends().map(|ranks| (ranks, 100.0)).to_vec())
    });
    chart(
        "Scaling efficiency",
        "%",
        lines,
        [ScaleKind::Logarithmic, ScaleKind::Linear],
        series.collect(),
        [Some(0.0), Some(105.0)],
    )
}

/// Every run of a single case.
fn by_run(lines: &[Line]) -> Chart {
    let series = lines.iter().flat_map(|line| {
        line.cases.iter().map(move |case| {
            let point = |(run, speed): &(u32, f64)| Point {
                x: f64::from(*run),
                y: *speed,
                tip: format!("{}, {}, run {run}: {speed:.2} images/s", line.name, case.case),
            };
            let ends = extent(case.runs.iter().map(|(run, _)| f64::from(*run))).unwrap_or([1.0, 1.0]);
            LineSeries {
                name: line.name.clone(),
                style: line.style,
                points: case.runs.iter().map(point).collect(),
                dots: Vec::new(),
                ideal: if line.is_reference { Vec::new() } else { ends.map(|run| (run, case.median)).to_vec() },
                is_reference: line.is_reference,
            }
        })
    });
    Chart::Lines(LineChart {
        title: "Speed of every run".to_owned(),
        description: "one point a run; the thin line is the median".to_owned(),
        x: Axis::new("run", ScaleKind::Linear),
        y: Axis::new("images/s", ScaleKind::Linear),
        series: series.collect(),
        y_ends: [None; 2],
        ideal_name: "median",
    })
}

fn chart(
    title: &str,
    unit: &str,
    lines: &[Line],
    [x, y]: [ScaleKind; 2],
    series: Vec<LineSeries>,
    y_ends: [Option<f64>; 2],
) -> Chart {
    let last = |series: &LineSeries| Some(series.points.last()?.tip.clone());
    let description = series.iter().filter_map(last).collect::<Vec<_>>().join("; ");
    Chart::Lines(LineChart {
        title: title.to_owned(),
        description,
        x: ranks_axis(lines, x),
        y: Axis::new(unit, y),
        series,
        y_ends,
        ideal_name: "without loss",
    })
}

fn table(setting: &Setting, rows: &[&Published]) -> Table {
    let several = setting.series.len() > 1 || !rows.is_empty();
    let mut columns = vec![Column::text("case"), Column::numbers("ranks", ""), Column::numbers("runs", "")];
    columns.extend([
        Column::numbers("speed", "images/s"),
        Column::numbers("lowest", "images/s").minor(),
        Column::numbers("highest", "images/s").minor(),
        Column::numbers(format!("per {}", setting.process()), "images/s").minor(),
        Column::numbers("speedup", ""),
        Column::numbers("efficiency", "%"),
        Column::numbers("CV", "%"),
        Column::numbers("DLPerf", "images/s").minor(),
    ]);
    if several {
        columns.insert(0, Column::text("result"));
    }
    let mut table = Table { columns, rows: Vec::new(), bars: Some("speed") };
    for series in &setting.series {
        for case in &series.group.cases {
            let mut cells = cells(series.group, case);
            if several {
                cells.insert(0, series.name.clone());
            }
            let bar = case.figures.as_ref().map(|figures| figures.speed.0);
            table.rows.push(Row {
                cells,
                bar,
                style: Some(series.style),
                is_doubtful: !series.group.is_quotable(case),
                ..Row::default()
            });
        }
    }
    for row in rows {
        let Some(base) = row.cases.first() else { continue };
        for case in row.cases {
            let ranks = case.case.ranks();
            let speedup = speedup(case.median, base.median);
            let [low, high] = extent(case.runs.iter().copied())
                .map_or(["-".to_owned(), "-".to_owned()], |ends| ends.map(|end| format!("{end:.2}")));
            let cells = vec![
                format!("{} (published)", row.name),
                case.case.to_string(),
                ranks.to_string(),
                if case.runs.is_empty() { "-".to_owned() } else { case.runs.len().to_string() },
                format!("{:.2}", case.median.0),
                low,
                high,
                format!("{:.2}", case.median.0 / f64::from(ranks)),
                format!("{speedup:.2}"),
                percent(efficiency(speedup, ranks, base.case.ranks())),
                "-".to_owned(),
                format!("{:.2}", case.median.0),
            ];
            table.rows.push(Row { cells, bar: Some(case.median.0), style: None, ..Row::default() });
        }
    }
    table
}

fn cells(group: &Group, case: &CaseRuns) -> Vec<String> {
    let mut cells = vec![
        case.case.to_string(),
        case.case.ranks().to_string(),
        format!("{}/{}", case.counted().count(), case.runs.len()),
    ];
    let Some(Figures { speed, per_rank, speedup, efficiency, cv, dlperf, .. }) = &case.figures else {
        cells.extend(vec!["-".to_owned(); 8]);
        return cells;
    };
    let [low, high] = extent(case.counted().map(|run| run.speed.0)).unwrap_or([f64::NAN; 2]);
    let speed_is_doubtful = group.speed_objections(case).next().is_some();
    let speeds = [speed.0, low, high, per_rank.0].map(|value| marked(format!("{value:.2}"), speed_is_doubtful));
    cells.extend(speeds);
    let scaling = [format!("{speedup:.2}"), percent(*efficiency)];
    cells.extend(scaling.map(|figure| marked(figure, !group.is_quotable(case))));
    cells.push(cv.map_or("-".to_owned(), |cv| format!("{:.2}", cv * 100.0)));
    cells.push(marked(format!("{:.2}", dlperf.median_speed.0), speed_is_doubtful));
    cells
}
