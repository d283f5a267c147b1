//! Columns of tables with a row for each case. A figure is declared once, with its name, unit, value and number format:
//! those of training in [`crate::read::show::training::columns`], those that scoring shares here. The tables of the
//! terminal, of Markdown and of the page, and CSV, take their columns from these declarations. JSON needs none: its keys
//! are the fields of the figures' types.

use anyhow::Context;
use ringmark_core::dimension::{BatchSize, WorkUnit};
use ringmark_core::number_text::{cv_percent, four_digits, three_digits};

use crate::output::table::{self, Row, Table};
use crate::read::analyze::run_group::{CaseOf, RunGroup};
use crate::read::analyze::utilization::{FormulaRate, Utilization};
use crate::read::show::numbers::{MARK, billions, marked, share_of_limit};

/// Cell of a figure that does not exist.
pub const NOTHING: &str = "-";

/// A column: its name in tables and in CSV, and its value for a case.
pub struct Column<'a, G: RunGroup> {
    /// Name and unit in tables.
    pub heading: table::Column,
    /// Name in CSV, which contains the unit.
    csv: String,
    value: GetValue<'a, G>,
    /// Number format in tables.
    format: fn(f64) -> String,
    doubt: Doubt<G>,
}

enum Value {
    Text(String),
    /// `None` for a figure that does not exist.
    Figure(Option<f64>),
}

type GetValue<'a, G> = Box<dyn Fn(&G, &CaseOf<G>) -> Value + 'a>;

/// Returns true if a figure of a case is unreliable.
type Doubt<G> = fn(&G, &CaseOf<G>) -> bool;

/// Creates a column of text that has the same name in tables and in CSV.
pub fn text<'a, G: RunGroup>(name: &str, text: impl Fn(&G, &CaseOf<G>) -> String + 'a) -> Column<'a, G> {
    Column::new(table::Column::text(name), name.to_owned(), move |group, case| Value::Text(text(group, case)))
}

/// Creates a column of a figure in base units: seconds, bytes, shares from 0 to 1. CSV has the value itself.
pub fn figure<'a, G: RunGroup>(
    csv: impl Into<String>,
    value: impl Fn(&G, &CaseOf<G>) -> Option<f64> + 'a,
) -> Column<'a, G> {
    Column::new(table::Column::numbers("", ""), csv.into(), move |group, case| Value::Figure(value(group, case)))
}

impl<'a, G: RunGroup> Column<'a, G> {
    fn new(heading: table::Column, csv: String, value: impl Fn(&G, &CaseOf<G>) -> Value + 'a) -> Column<'a, G> {
        Column { heading, csv, value: Box::new(value), format: |value| value.to_string(), doubt: |_, _| false }
    }

    /// Sets name, unit and number format in tables.
    pub fn shown(self, name: &str, unit: &str, format: fn(f64) -> String) -> Column<'a, G> {
        Column { heading: table::Column::numbers(name, unit), format, ..self }
    }

    /// Puts the figure in parentheses in tables where `doubt` is true.
    pub fn doubted(self, doubt: Doubt<G>) -> Column<'a, G> {
        Column { doubt, ..self }
    }

    /// Changes the name in tables.
    pub fn titled(mut self, name: impl Into<String>) -> Column<'a, G> {
        self.heading.name = name.into();
        self
    }

    /// Changes the unit in tables.
    pub fn with_unit(mut self, unit: &str) -> Column<'a, G> {
        self.heading.unit = unit.to_owned();
        self
    }

    /// Marks the column as omitted on narrow terminals.
    pub fn minor(self) -> Column<'a, G> {
        Column { heading: self.heading.minor(), ..self }
    }

    /// Returns the figure; `None` if it does not exist, or for text.
    pub fn value(&self, group: &G, case: &CaseOf<G>) -> Option<f64> {
        match (self.value)(group, case) {
            Value::Figure(value) => value,
            Value::Text(_) => None,
        }
    }

    /// Returns true if the figure is unreliable.
    pub fn is_doubtful(&self, group: &G, case: &CaseOf<G>) -> bool {
        (self.doubt)(group, case)
    }

    /// Returns the text for a table, without parentheses; `None` for a figure that does not exist.
    pub fn text(&self, group: &G, case: &CaseOf<G>) -> Option<String> {
        match (self.value)(group, case) {
            Value::Figure(value) => value.map(self.format),
            Value::Text(text) => Some(text),
        }
    }

    /// Returns the cell of a table.
    pub fn cell(&self, group: &G, case: &CaseOf<G>) -> String {
        let text = self.text(group, case).map(|text| marked(text, self.is_doubtful(group, case)));
        text.unwrap_or_else(|| NOTHING.to_owned())
    }

    /// Returns the field of CSV; empty for a figure that does not exist.
    fn csv_field(&self, group: &G, case: &CaseOf<G>) -> String {
        match (self.value)(group, case) {
            Value::Figure(value) => optional(value),
            Value::Text(text) => text,
        }
    }
}

/// Returns a table with a row for each of these cases.
pub fn table<'c, G: RunGroup>(
    group: &G,
    cases: impl IntoIterator<Item = &'c CaseOf<G>>,
    columns: Vec<Column<G>>,
) -> Table
where
    CaseOf<G>: 'c,
{
    let rows = cases.into_iter().map(|case| row(group, case, &columns)).collect();
    Table { columns: headings(&columns), rows, bars: None }
}

/// Returns a table with a row for each case that has `cells`, which are unreliable if its speed is; `None` if there is none.
pub fn table_of_cells<G: RunGroup>(
    group: &G,
    headers: &[(&str, &str)],
    cells: impl Fn(&CaseOf<G>, bool) -> Option<Vec<String>>,
) -> Option<Table> {
    let row = |case: &CaseOf<G>| {
        let is_doubtful = is_speed_doubtful(group, case);
        Some(Row { cells: cells(case, is_doubtful)?, is_doubtful, ..Row::default() })
    };
    let rows: Vec<Row> = group.cases().iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table::new(headers, rows))
}

/// Returns the row of a case.
pub fn row<G: RunGroup>(group: &G, case: &CaseOf<G>, columns: &[Column<G>]) -> Row {
    columns.iter().map(|column| column.cell(group, case)).collect::<Vec<_>>().into()
}

/// Returns the head of a table.
pub fn headings<G: RunGroup>(columns: &[Column<G>]) -> Vec<table::Column> {
    columns.iter().map(|column| column.heading.clone()).collect()
}

/// Returns CSV with a row for each case. Columns of `newer` appear only if one of them has a value, so that the output
/// for older results does not change.
pub fn csv<'a, G: RunGroup>(
    groups: &[G],
    mut columns: Vec<Column<'a, G>>,
    newer: Vec<Vec<Column<'a, G>>>,
) -> anyhow::Result<String> {
    let cases: Vec<(&G, &CaseOf<G>)> =
        groups.iter().flat_map(|group| group.cases().iter().map(move |case| (group, case))).collect();
    let has_value = |column: &Column<G>| cases.iter().any(|(group, case)| !column.csv_field(group, case).is_empty());
    columns.extend(newer.into_iter().filter(|columns| columns.iter().any(has_value)).flatten());
    let mut table = csv::Writer::from_writer(Vec::new());
    table.write_record(columns.iter().map(|column| &column.csv))?;
    for (group, case) in cases {
        table.write_record(columns.iter().map(|column| column.csv_field(group, case)))?;
    }
    Ok(String::from_utf8(table.into_inner().context("memory takes every line")?)?)
}

/// Returns the text of a value, if there is one.
pub fn optional<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Nodes and ranks.
pub fn case<'a, G: RunGroup>() -> Column<'a, G> {
    text("case", |_, case: &CaseOf<G>| case.case.to_string())
}

/// Total number of ranks.
pub fn ranks<'a, G: RunGroup>() -> Column<'a, G> {
    figure("ranks", |_, case: &CaseOf<G>| Some(case.case.ranks().into())).shown("ranks", "", |ranks| ranks.to_string())
}

/// Runs that count and those found or planned, as `2/3`, with a mark for warnings.
pub fn marked_runs<'a, G: RunGroup>() -> Column<'a, G> {
    let mark = |case: &CaseOf<G>| if case.warnings.is_empty() { "" } else { MARK };
    numbers_of_text("runs", move |_, case| format!("{}/{}{}", case.counted().count(), case.expected(), mark(case)))
}

/// Creates a column of text that is aligned as numbers.
pub fn numbers_of_text<'a, G: RunGroup>(name: &str, text: impl Fn(&G, &CaseOf<G>) -> String + 'a) -> Column<'a, G> {
    Column { heading: table::Column::numbers(name, ""), ..self::text(name, text) }
}

/// Conditions and number of runs, for CSV.
pub fn conditions<'a, G: RunGroup>() -> Vec<Column<'a, G>> {
    vec![
        text("model", |group: &G, case| group.point(case).model.to_string()),
        text("dtype", |group: &G, case| group.point(case).dtype.to_string()),
        figure("batch_size_per_device", |group: &G, case: &CaseOf<G>| {
            Some(group.point(case).batch.samples_per_rank(case.case.ranks()))
        }),
        text("device", |group: &G, _| optional(group.device())),
        text("profile", |group: &G, _| optional(group.profile())),
        case(),
        text("nodes", |_, case: &CaseOf<G>| case.case.nodes.to_string()),
        text("gpus_per_node", |_, case: &CaseOf<G>| case.case.gpus_per_node.to_string()),
        ranks(),
        text("runs_counted", |_, case: &CaseOf<G>| case.counted().count().to_string()),
        text("runs_found", |_, case: &CaseOf<G>| case.runs.len().to_string()),
    ]
}

/// Batch of all ranks and tokens of a sequence, for CSV.
pub fn batch<'a, G: RunGroup>() -> [Column<'a, G>; 2] {
    [
        figure("global_batch_size", |group: &G, case| match group.point(case).batch.size {
            BatchSize::PerRank(_) => None,
            BatchSize::Global(samples) => Some(samples.into()),
        }),
        figure("sequence_length", |group: &G, case| group.point(case).batch.sequence_length.map(f64::from)),
    ]
}

/// Returns true if the speed of a case, and figures that follow from it, are unreliable.
pub fn is_speed_doubtful<G: RunGroup>(group: &G, case: &CaseOf<G>) -> bool {
    !group.is_speed_reliable(case)
}

/// Images or tokens per second of all ranks, median over runs.
pub fn speed<'a, G: RunGroup>(csv: String, unit: WorkUnit) -> Column<'a, G> {
    let speed = figure(csv, |_, case: &CaseOf<G>| case.speed().map(|speed| speed.0));
    speed.shown("speed", unit.per_second(), four_digits).doubted(is_speed_doubtful)
}

/// Returns a column of CSV for each unit of work of these groups, empty for groups of another unit.
pub fn of_units<'a, G: RunGroup + 'a>(groups: &[G], column: impl Fn(WorkUnit) -> Column<'a, G>) -> Vec<Column<'a, G>> {
    let is_used = |unit: &WorkUnit| groups.iter().any(|group| group.unit() == *unit);
    let units: Vec<WorkUnit> = WorkUnit::ALL.into_iter().filter(is_used).collect();
    let units = if units.is_empty() { vec![WorkUnit::default()] } else { units };
    let of_unit = |unit: WorkUnit| {
        let Column { value, heading, csv, format, doubt } = column(unit);
        let value: GetValue<'a, G> = Box::new(move |group, case| match group.unit() == unit {
            true => value(group, case),
            false => Value::Figure(None),
        });
        Column { value, heading, csv, format, doubt }
    };
    units.into_iter().map(of_unit).collect()
}

/// Coefficient of variation of the runs' speeds.
pub fn cv<'a, G: RunGroup>() -> Column<'a, G> {
    figure("cv", |_, case: &CaseOf<G>| case.speeds().cv()).shown("CV", "%", cv_percent)
}

/// Peak memory of the rank that used most.
pub fn peak_memory<'a, G: RunGroup>() -> Column<'a, G> {
    let memory = figure("peak_memory_bytes", |_, case: &CaseOf<G>| case.peak_memory().map(|peak| peak.0 as f64));
    memory.shown("memory", "GB", billions)
}

/// Creates a column of a figure of [`Utilization`].
fn utilized<'a, G: RunGroup>(csv: &str, value: impl Fn(&Utilization) -> Option<f64> + 'a) -> Column<'a, G> {
    figure(csv, move |group: &G, case| value(&group.utilization(case)?))
}

/// FLOP rate of the network.
pub fn teraflops<'a, G: RunGroup>() -> Column<'a, G> {
    let rate = utilized("teraflops_per_s", |it| Some(it.teraflops_per_second.0));
    rate.shown("network", "TFLOP/s", three_digits).doubted(is_speed_doubtful)
}

/// Measured rate of matrix products, and the share of it that the network reaches.
pub fn products<'a, G: RunGroup>() -> [Column<'a, G>; 2] {
    let share = utilized("share_of_matrix_product", |it| it.share_of_matrix_product);
    limit(["matmul", "of matmul"], |it| Some(it.matrix_product_teraflops_per_second?.0), share)
}

/// Published peak, and the share of it that the network reaches.
pub fn peak<'a, G: RunGroup>() -> [Column<'a, G>; 2] {
    let share = utilized("share_of_published_peak", |it| it.share_of_published_peak);
    limit(["peak", "MFU"], |it| Some(it.published_peak_teraflops_per_second?.0), share)
}

/// Rates of a language model by PaLM's and by torchtitan's formula, and with the operations that are repeated, each with
/// its share of the published peak: model FLOPs utilization, and hardware FLOPs utilization.
pub fn formulas<'a, G: RunGroup>() -> [[Column<'a, G>; 2]; 3] {
    let columns = |csv, [name, share]: [&str; 2], rate: fn(&Utilization) -> Option<FormulaRate>| {
        let of_peak = utilized(csv, move |it| rate(it)?.share_of_published_peak).shown(share, "%", share_of_limit);
        let rate = utilized("", move |it| Some(rate(it)?.teraflops_per_second.0)).shown(name, "TFLOP/s", three_digits);
        [rate, of_peak].map(|column| column.doubted(is_speed_doubtful))
    };
    [
        columns("mfu_palm", ["PaLM", "MFU"], |it| Some(it.by_formula?.palm)),
        columns("mfu_torchtitan", ["torchtitan", "MFU"], |it| Some(it.by_formula?.torchtitan)),
        columns("hfu", ["hardware", "HFU"], |it| it.hardware),
    ]
}

/// Model FLOPs utilization of a language model by each formula, and hardware FLOPs utilization, for CSV.
pub fn mfu<'a, G: RunGroup>() -> [Column<'a, G>; 4] {
    let [[_, palm], [_, torchtitan], [_, hardware]] = formulas();
    let megatron = utilized("mfu_megatron", |it| it.by_formula?.megatron.share_of_published_peak);
    [palm, torchtitan, megatron, hardware]
}

fn limit<'a, G: RunGroup>(
    [name, share_name]: [&str; 2],
    rate: fn(&Utilization) -> Option<f64>,
    share: Column<'a, G>,
) -> [Column<'a, G>; 2] {
    let rate = utilized("", rate).shown(name, "TFLOP/s", three_digits);
    [rate, share.shown(share_name, "%", share_of_limit).doubted(is_speed_doubtful)]
}

/// Peak memory and utilization, for CSV.
pub fn utilization<'a, G: RunGroup>() -> Vec<Column<'a, G>> {
    let ([_, product_share], [_, peak_share]) = (products(), peak());
    vec![peak_memory(), teraflops(), product_share, peak_share]
}
