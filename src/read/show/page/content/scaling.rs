//! Charts and table of throughput, speedup and efficiency.

use std::collections::BTreeSet;

use ringmark_core::dimension::{BatchShape, WorkUnit};
use ringmark_core::number_text::four_digits;
use ringmark_core::stats::scaling::{efficiency, speedup};

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::published::scaling::{self, MeasuredConditions, Published};
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::title::{common_base, unlike_devices};
use crate::read::show::columns;
use crate::read::show::numbers::{mark_legend, percent_number};
use crate::read::show::page::charts::scale::extent;
use crate::read::show::page::content::scaling_charts::{self, Measurements};
use crate::read::show::page::content::series::{PageSeries, Setting};
use crate::read::show::page::document::Block;
use crate::read::show::training::columns as training;
use crate::read::show::training::strategies::{self, Comparison};

const NOTE: &str = "Speed is images or tokens / time of a run; the median over runs is shown. Speedup and efficiency use these \
    medians. CV is the standard deviation of the runs divided by their mean.";

const DLPERF_NOTE: &str = "DLPerf is DLPerf's figure: the mean of the logged rates of a run, median over runs.";

/// Column of the margins.
const MARGIN: &str = "\u{b1}";

const MARGIN_NOTE: &str = "\u{b1} is half of the 95 % confidence interval of the efficiency.";

/// Compares the strategies of each result.
pub fn strategies(setting: &Setting) -> Vec<Block> {
    let results: BTreeSet<usize> = setting.series.iter().map(|series| series.style.color).collect();
    let of_result = |result: usize| {
        let series = setting.series.iter().filter(move |series| series.style.color == result);
        strategies::comparisons(series.map(|series| series.group))
    };
    let block = |Comparison { title, table, note }: Comparison| {
        let note = note.map(|note| format!(" {note}.")).unwrap_or_default();
        Block { table: Some(table), ..Block::new(title, format!("{}.{note}", strategies::LEGEND)) }
    };
    results.into_iter().flat_map(of_result).map(block).collect()
}

/// Returns the block of all series of the setting. `published` adds published figures for the same conditions.
pub fn block(setting: &Setting, published: bool) -> Block {
    let rows = if published { published_rows(setting) } else { Vec::new() };
    let mut measured: Vec<Measurements> = setting.series.iter().filter_map(scaling_charts::measured).collect();
    let published_shapes = setting.series.len()..;
    measured.extend(rows.iter().zip(published_shapes).filter_map(|(row, shape)| scaling_charts::reference(row, shape)));
    let (reading, charts) = scaling_charts::charts(&measured);
    let table = table(setting, &rows);
    let mut notes = vec![NOTE.to_owned()];
    let is_marked = |series: &PageSeries| series.group.cases.iter().any(|case| !case.warnings.is_empty());
    notes.extend(setting.series.iter().any(is_marked).then(|| mark_legend("the warnings above")));
    let common = |series: &PageSeries| Some(format!("{}: {}.", series.name, common_base(series.group)?));
    notes.extend(setting.series.iter().filter_map(common));
    let unlike =
        |series: &PageSeries| Some(format!("Note: {}.", setting.named(series, &unlike_devices(series.group)?)));
    notes.extend(setting.series.iter().filter_map(unlike));
    let own: Vec<MeasuredConditions> = setting.series.iter().map(|series| series.group.measured_conditions()).collect();
    notes.extend(rows.iter().map(|row| cited(row, &own)));
    let remark = if published && rows.is_empty() {
        let row = |row: &Published| format!("{} {} b{}", row.model, row.dtype, row.batch_size);
        let rows: Vec<String> = scaling::all().map(row).collect();
        format!("No published figures match. Published figures for GPUs: {}.", rows.join(", "))
    } else {
        String::new()
    };
    let is_strong = setting.series.iter().any(|series| series.group.is_strong());
    let title = match (scaling_charts::is_scaling(&measured), is_strong) {
        (false, _) => "Throughput",
        (true, false) => "Throughput, speedup and efficiency: weak scaling",
        (true, true) => "Throughput, speedup and efficiency: strong scaling",
    };
    let column_notes = vec![("DLPerf", DLPERF_NOTE.to_owned()), (MARGIN, MARGIN_NOTE.to_owned())];
    let block = Block::new(title, notes.join(" "));
    Block { charts, column_notes, remark, reading: reading.to_owned(), table: Some(table), ..block }
}

/// Returns the published rows of the same model, precision and batch size if the setting uses GPUs.
fn published_rows(setting: &Setting) -> Vec<&'static Published> {
    let fits = |row: &&Published| {
        let is_alike = |series: &PageSeries| {
            let conditions = &series.group.conditions;
            (conditions.point.model, conditions.point.dtype, conditions.point.batch)
                == (row.model, row.dtype, BatchShape::per_rank(row.batch_size))
        };
        setting.process() == "GPU" && setting.series.iter().any(is_alike)
    };
    scaling::all().filter(fits).collect()
}

/// Formats source, setup and caveat of a published row.
fn cited(row: &Published, measured: &[MeasuredConditions]) -> String {
    let caveat = row.caveat.map(|caveat| format!(" Beware: {caveat}.")).unwrap_or_default();
    let unlike = row.differences(measured);
    let unlike = if unlike.is_empty() { String::new() } else { format!(" Other conditions: {}.", unlike.join(", ")) };
    format!("{}, not measured by ringmark: {} ({}).{caveat}{unlike}", row.name, row.source, row.setup)
}

fn table(setting: &Setting, rows: &[&Published]) -> Table {
    let several = setting.series.len() > 1 || !rows.is_empty();
    let unit = setting.series.first().map(|series| series.group.unit()).unwrap_or_default();
    let shown = shown(setting.process(), unit);
    let mut columns = columns::headings(&shown);
    if several {
        columns.insert(0, Column::text("result"));
    }
    let mut table = Table { columns, rows: Vec::new(), bars: Some("speed") };
    for series in &setting.series {
        for case in &series.group.cases {
            let mut row = columns::row(series.group, case, &shown);
            if several {
                row.cells.insert(0, series.name.clone());
            }
            table.rows.push(Row {
                bar: case.figures.as_ref().map(|figures| figures.speed.0),
                style: Some(series.style),
                is_doubtful: !series.group.is_reliable(case),
                ..row
            });
        }
    }
    for row in rows {
        let Some(base) = row.cases.first() else { continue };
        for case in row.cases {
            let ranks = case.case.ranks();
            let speedup = speedup(case.median, base.median);
            let [low, high] = extent(case.runs.iter().copied())
                .map_or(["-".to_owned(), "-".to_owned()], |ends| ends.map(four_digits));
            let cells = vec![
                format!("{} (published)", row.name),
                case.case.to_string(),
                ranks.to_string(),
                if case.runs.is_empty() { "-".to_owned() } else { case.runs.len().to_string() },
                four_digits(case.median.0),
                low,
                high,
                four_digits(case.median.0),
                four_digits(case.median.0 / f64::from(ranks)),
                format!("{speedup:.2}"),
                percent_number(efficiency(speedup, ranks, base.case.ranks())),
                "-".to_owned(),
                "-".to_owned(),
            ];
            table.rows.push(Row { cells, bar: Some(case.median.0), style: None, ..Row::default() });
        }
    }
    table.without_empty(MARGIN)
}

fn shown<'a>(process: &str, unit: WorkUnit) -> Vec<training::Column<'a>> {
    let [lowest, highest] = training::speed_range(unit);
    vec![
        columns::case(),
        columns::ranks(),
        columns::marked_runs(),
        training::speed(unit),
        lowest.minor(),
        highest.minor(),
        training::dlperf_speed(unit).minor(),
        training::speed_per_rank(process, unit).minor(),
        training::speedup(),
        training::efficiency(),
        training::efficiency_margin().minor(),
        columns::cv(),
    ]
}
