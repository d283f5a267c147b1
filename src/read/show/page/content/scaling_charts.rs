//! Charts of throughput, speedup and efficiency: lines over ranks, or bars if no result has more than two cases. For a
//! single case, another chart shows the speed of each run in order.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::dimension::{Case, UnitsPerSecond, WorkUnit};
use ringmark_core::number_text::four_digits;
use ringmark_core::stats::scaling::{efficiency, speedup};

use crate::output::table::Style;
use crate::read::analyze::published::scaling::Published;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::TrainingCase;
use crate::read::show::numbers::count;
use crate::read::show::page::charts::Chart;
use crate::read::show::page::charts::bars::{Bar, BarChart, BarSeries};
use crate::read::show::page::charts::lines::{Axis, ChartPoint, LineChart, LineSeries};
use crate::read::show::page::charts::scale::{ScaleKind, extent};
use crate::read::show::page::content::series::PageSeries;

/// Largest number of cases of a result that is shown as bars instead of a line.
const FEW: usize = 2;

/// Largest number of runs that fit on an axis.
const MARKS: usize = 10;

/// Label of a thin line, or of a line across a bar.
const IDEAL: &str = "ideal";

const LINES_NOTE: &str = "A line is the median of the runs; a small circle is one run. Throughput has logarithmic \
    axes: a bend away from the thin line is a loss at that step. Speedup shows the distance of the largest case from \
    the ideal.";

const BARS_NOTE: &str = "A bar is the median of the runs; a small circle is one run, in the order of the runs. The \
    line across a bar is the ideal: the speed of the smallest case times the ratio of the ranks.";

const RUNS_NOTE: &str = "With a single case there is no scaling to show. The second chart shows each run, on an axis \
    that does not start at 0.";

/// One case of a series: its median and every run, as speeds.
struct Speeds {
    case: Case,
    median: f64,
    runs: Vec<(u32, f64)>,
    is_speed_doubtful: bool,
    is_scaling_doubtful: bool,
}

/// One series of the charts, measured or published.
pub struct Measurements {
    name: String,
    style: Style,
    unit: WorkUnit,
    base: (Case, f64),
    cases: Vec<Speeds>,
    is_reference: bool,
}

/// Quantity that a chart derives from a speed.
struct Quantity {
    title: &'static str,
    /// Unit of the vertical axis; `None` for that of speed.
    unit: Option<&'static str>,
    kinds: [ScaleKind; 2],
    ends: [Option<f64>; 2],
    /// Computes the value from the speed of a case.
    value: fn(&Measurements, Case, f64) -> f64,
    /// Computes the value for a number of ranks without scaling loss.
    ideal: fn(&Measurements, f64) -> f64,
    text: fn(f64, WorkUnit) -> String,
    is_doubtful: fn(&Speeds) -> bool,
}

const THROUGHPUT: Quantity = Quantity {
    title: "Throughput",
    unit: None,
    kinds: [ScaleKind::Logarithmic; 2],
    ends: [None; 2],
    value: |_, _, speed| speed,
    ideal: |series, ranks| series.base.1 * ranks / series.base_ranks(),
    text: |speed, unit| format!("{} {}", four_digits(speed), unit.per_second()),
    is_doubtful: |case| case.is_speed_doubtful,
};

const SPEEDUP: Quantity = Quantity {
    title: "Speedup",
    unit: Some("times the smallest case"),
    kinds: [ScaleKind::Linear; 2],
    ends: [Some(0.0), None],
    value: |series, _, speed| series.speedup(speed),
    ideal: |series, ranks| ranks / series.base_ranks(),
    text: |value, _| format!("{value:.2} times"),
    is_doubtful: |case| case.is_scaling_doubtful,
};

const EFFICIENCY: Quantity = Quantity {
    title: "Scaling efficiency",
    unit: Some("%"),
    kinds: [ScaleKind::Logarithmic, ScaleKind::Linear],
    ends: [Some(0.0), Some(105.0)],
    value: |series, case, speed| 100.0 * efficiency(series.speedup(speed), case.ranks(), series.base.0.ranks()),
    ideal: |_, _| 100.0,
    text: |value, _| format!("{value:.1} %"),
    is_doubtful: |case| case.is_scaling_doubtful,
};

impl Quantity {
    fn unit_of(&self, series: &[Measurements]) -> &'static str {
        self.unit.unwrap_or_else(|| series.first().map(|series| series.unit).unwrap_or_default().per_second())
    }
}

/// Returns the data of a series; `None` if no run counts.
pub fn measured(series: &PageSeries) -> Option<Measurements> {
    let group = series.group;
    let of_case = |case: &TrainingCase| {
        let counted = case.runs.iter().filter_map(|run| Some((run.found.name.run, run.outcome.as_ref().ok()?.speed.0)));
        Some(Speeds {
            case: case.case,
            median: case.figures.as_ref()?.speed.0,
            runs: counted.collect(),
            is_speed_doubtful: !group.is_speed_reliable(case),
            is_scaling_doubtful: !group.is_reliable(case),
        })
    };
    let cases: Vec<Speeds> = group.cases.iter().filter_map(of_case).collect();
    let base = group.base_case()?;
    let base = (base.case, base.figures.as_ref()?.speed.0);
    Some(Measurements {
        name: series.name.clone(),
        style: series.style,
        unit: group.unit(),
        base,
        cases,
        is_reference: false,
    })
}

/// Returns the data of a published row.
pub fn reference(row: &Published, shape: usize) -> Option<Measurements> {
    let cases = row.cases.iter().map(|case| Speeds {
        case: case.case,
        median: case.median.0,
        runs: (1..).zip(case.runs.iter().copied()).collect(),
        is_speed_doubtful: false,
        is_scaling_doubtful: false,
    });
    let cases: Vec<Speeds> = cases.collect();
    let first = cases.first()?;
    let base = (first.case, first.median);
    let name = format!("{} (published)", row.name);
    let style = Style { color: 0, shape };
    Some(Measurements { name, style, unit: WorkUnit::Image, base, cases, is_reference: true })
}

/// Returns true if any series has several cases.
pub fn is_scaling(series: &[Measurements]) -> bool {
    series.iter().any(|series| series.cases.len() > 1)
}

/// Returns a note on how to read the charts, and a row of charts; both are empty without series.
pub fn charts(series: &[Measurements]) -> (&'static str, Vec<Vec<Chart>>) {
    if series.is_empty() {
        return ("", Vec::new());
    }
    let has_few = series.iter().all(|series| series.cases.len() <= FEW);
    let all = [&THROUGHPUT, &SPEEDUP, &EFFICIENCY];
    let (reading, row) = match (is_scaling(series), has_few) {
        (true, false) => (LINES_NOTE, all.map(|quantity| lines(series, quantity)).into()),
        (true, true) => (BARS_NOTE, all.map(|quantity| bars(series, quantity)).into()),
        (false, _) => (RUNS_NOTE, vec![bars(series, &THROUGHPUT), by_run(series)]),
    };
    (reading, vec![row])
}

impl Measurements {
    /// Returns the fewest and the most ranks.
    fn ends(&self) -> [f64; 2] {
        extent(self.cases.iter().map(|case| f64::from(case.case.ranks()))).unwrap_or([1.0, 1.0])
    }

    fn base_ranks(&self) -> f64 {
        f64::from(self.base.0.ranks())
    }

    fn speedup(&self, speed: f64) -> f64 {
        speedup(UnitsPerSecond(speed), UnitsPerSecond(self.base.1))
    }

    /// Returns the tooltip for a speed of a case.
    fn tip(&self, quantity: &Quantity, case: &Speeds, speed: f64, what: &str) -> String {
        let value = (quantity.value)(self, case.case, speed);
        let speed = if value == speed {
            String::new()
        } else {
            format!(" ({} {})", four_digits(speed), self.unit.per_second())
        };
        let doubt = if (quantity.is_doubtful)(case) { ", unreliable" } else { "" };
        format!("{}, {}, {what}: {}{speed}{doubt}", self.name, case.case, (quantity.text)(value, self.unit))
    }

    fn median_tip(&self, quantity: &Quantity, case: &Speeds) -> String {
        let spread = extent(case.runs.iter().map(|(_, speed)| *speed));
        let spread = spread.map(|[low, high]| {
            let (runs, unit) = (count(case.runs.len(), "run"), self.unit.per_second());
            format!(" of {runs}, {} to {} {unit}", four_digits(low), four_digits(high))
        });
        self.tip(quantity, case, case.median, &format!("median{}", spread.unwrap_or_default()))
    }

    /// Returns every run of a case with its tooltip.
    fn runs(&self, quantity: &Quantity, case: &Speeds) -> Vec<(f64, String)> {
        let run = |(run, speed): &(u32, f64)| {
            ((quantity.value)(self, case.case, *speed), self.tip(quantity, case, *speed, &format!("run {run}")))
        };
        case.runs.iter().map(run).collect()
    }

    fn line(&self, quantity: &Quantity) -> LineSeries {
        let point = |case: &Speeds, (y, tip): (f64, String)| ChartPoint {
            x: f64::from(case.case.ranks()),
            y,
            tip,
            is_doubtful: (quantity.is_doubtful)(case),
        };
        let median = |case: &Speeds| {
            let value = (quantity.value)(self, case.case, case.median);
            point(case, (value, self.median_tip(quantity, case)))
        };
        let runs = |case| self.runs(quantity, case).into_iter().map(move |run| point(case, run));
        LineSeries {
            name: self.name.clone(),
            style: self.style,
            points: self.cases.iter().map(median).collect(),
            dots: self.cases.iter().filter(|case| case.runs.len() > 1).flat_map(runs).collect(),
            ideal: self.ends().map(|ranks| (ranks, (quantity.ideal)(self, ranks))).to_vec(),
            is_reference: self.is_reference,
        }
    }

    /// Returns the bars of this series; `cases` are those of the chart.
    fn bars(&self, quantity: &Quantity, cases: &[Case]) -> BarSeries {
        let bar = |case: &Speeds| Bar {
            case: cases.iter().position(|known| *known == case.case).unwrap_or(0),
            value: (quantity.value)(self, case.case, case.median),
            ideal: (case.case != self.base.0).then(|| (quantity.ideal)(self, f64::from(case.case.ranks()))),
            runs: self.runs(quantity, case),
            tip: self.median_tip(quantity, case),
            is_doubtful: (quantity.is_doubtful)(case),
        };
        BarSeries {
            name: self.name.clone(),
            style: self.style,
            bars: self.cases.iter().map(bar).collect(),
            is_reference: self.is_reference,
        }
    }
}

fn lines(series: &[Measurements], quantity: &Quantity) -> Chart {
    let lines: Vec<LineSeries> = series.iter().map(|series| series.line(quantity)).collect();
    let last = |line: &LineSeries| Some(line.points.last()?.tip.clone());
    Chart::Lines(LineChart {
        title: quantity.title.to_owned(),
        description: lines.iter().filter_map(last).collect::<Vec<_>>().join("; "),
        x: ranks_axis(series, quantity.kinds[0]),
        y: Axis::new(quantity.unit_of(series), quantity.kinds[1]),
        series: lines,
        y_ends: quantity.ends,
        ideal_name: IDEAL,
        shades: Vec::new(),
        shade_name: "",
        are_named_at_their_ends: false,
    })
}

fn bars(series: &[Measurements], quantity: &Quantity) -> Chart {
    let cases: BTreeSet<(u32, Case)> =
        series.iter().flat_map(|series| &series.cases).map(|case| (case.case.ranks(), case.case)).collect();
    let names = cases.iter().map(|(ranks, case)| (case.to_string(), count(*ranks as usize, "rank")));
    let names = names.collect();
    let cases: Vec<Case> = cases.into_iter().map(|(_, case)| case).collect();
    let axis = quantity.unit_of(series).to_owned();
    let series: Vec<BarSeries> = series.iter().map(|series| series.bars(quantity, &cases)).collect();
    let tips = series.iter().flat_map(|series| series.bars.iter().map(|bar| bar.tip.clone()));
    Chart::Bars(BarChart {
        title: quantity.title.to_owned(),
        description: tips.collect::<Vec<_>>().join("; "),
        axis,
        end: quantity.ends[1],
        across: "case".to_owned(),
        cases: names,
        series,
        ideal_name: IDEAL,
    })
}

/// Returns an axis with marks at the measured numbers of ranks, labeled with their cases.
fn ranks_axis(series: &[Measurements], kind: ScaleKind) -> Axis {
    let mut cases: BTreeMap<u32, BTreeSet<Case>> = BTreeMap::new();
    for case in series.iter().flat_map(|series| &series.cases) {
        cases.entry(case.case.ranks()).or_default().insert(case.case);
    }
    let most = cases.keys().last().copied().unwrap_or(1);
    let least = cases.keys().next().copied().unwrap_or(1);
    let mut marks: Vec<(f64, String, String)> = Vec::new();
    let mut last: Option<u32> = None;
    // Starts with the largest: on a linear axis the small ones are too close together.
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

/// Returns an axis with marks at some of the run numbers.
fn runs_axis(series: &[Measurements]) -> Axis {
    let runs = series.iter().flat_map(|series| &series.cases).flat_map(|case| case.runs.iter().map(|(run, _)| *run));
    let runs: BTreeSet<u32> = runs.collect();
    let every = runs.len().div_ceil(MARKS).max(1);
    let marks = runs.into_iter().step_by(every).map(|run| (f64::from(run), run.to_string(), String::new()));
    Axis { marks: marks.collect(), ..Axis::new("run", ScaleKind::Linear) }
}

/// Returns the chart of every run of a single case.
fn by_run(series: &[Measurements]) -> Chart {
    let of_case = |series: &Measurements, case: &Speeds| {
        let ends = extent(case.runs.iter().map(|(run, _)| f64::from(*run))).unwrap_or([1.0, 1.0]);
        let points = case.runs.iter().zip(series.runs(&THROUGHPUT, case)).map(|((run, _), (y, tip))| ChartPoint {
            x: f64::from(*run),
            y,
            tip,
            is_doubtful: case.is_speed_doubtful,
        });
        LineSeries {
            name: series.name.clone(),
            style: series.style,
            points: points.collect(),
            dots: Vec::new(),
            ideal: if series.is_reference { Vec::new() } else { ends.map(|run| (run, case.median)).to_vec() },
            is_reference: series.is_reference,
        }
    };
    let lines = series.iter().flat_map(|series| series.cases.iter().map(move |case| of_case(series, case)));
    Chart::Lines(LineChart {
        title: "Speed of every run".to_owned(),
        description: "one point per run; the thin line is the median".to_owned(),
        x: runs_axis(series),
        y: Axis::new(THROUGHPUT.unit_of(series), ScaleKind::Linear),
        series: lines.collect(),
        y_ends: [None; 2],
        ideal_name: "median",
        shades: Vec::new(),
        shade_name: "",
        are_named_at_their_ends: false,
    })
}
