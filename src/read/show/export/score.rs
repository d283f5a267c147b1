//! Exported figures of inference, for every point of a sweep and every run.

use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::dimension::Seconds;
use ringmark_core::stats::summary::step_percentiles;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScorePoint, ScoreTable};
use crate::read::load::run::{self, Run};
use crate::read::show::export::figure::{self, ExportedSeries, Scope};
use crate::read::show::export::training::add_arithmetic;

/// A run that counts, with its table and point.
pub struct ScoredRun<'a> {
    /// Runs with the same conditions.
    pub table: &'a ScoreTable,
    /// Runs with the same network, precision, batch size and case.
    pub point: &'a ScorePoint,
    pub run: &'a Run<ScoreRecord>,
    pub series: ExportedSeries,
}

/// Returns the figures of every point of the result `name` with a run that counts.
pub fn cases(name: &str, tables: &[ScoreTable]) -> Vec<ExportedSeries> {
    points(tables).filter_map(|(group, table, point)| point_series(name, &group, table, point)).collect()
}

/// Returns every run that counts.
pub fn runs<'a>(name: &str, tables: &'a [ScoreTable]) -> Vec<ScoredRun<'a>> {
    let point_series = |(group, table, point): (String, &'a ScoreTable, &'a ScorePoint)| {
        let run = |run| Some(ScoredRun { table, point, run, series: run_series(name, &group, table, point, run)? });
        point.runs.iter().filter_map(run).collect::<Vec<_>>()
    };
    points(tables).flat_map(point_series).collect()
}

/// Returns every point with its table and a name for the table, because tables may differ by any option.
fn points(tables: &[ScoreTable]) -> impl Iterator<Item = (String, &ScoreTable, &ScorePoint)> {
    let name = |index: usize| if tables.len() > 1 { format!("table {}", index + 1) } else { String::new() };
    let of_table = move |(index, table): (usize, _)| table_points(name(index), table);
    tables.iter().enumerate().flat_map(of_table)
}

fn table_points(name: String, table: &ScoreTable) -> impl Iterator<Item = (String, &ScoreTable, &ScorePoint)> {
    table.points.iter().map(move |point| (name.clone(), table, point))
}

fn labels(name: &str, group: &str, table: &ScoreTable, point: &ScorePoint) -> Vec<(&'static str, String)> {
    let conditions = table.conditions.as_ref();
    let text = |value: Option<String>| value.unwrap_or_default();
    vec![
        ("result", name.to_owned()),
        ("benchmark", BenchmarkKind::Score.to_string()),
        ("group", group.to_owned()),
        ("model", point.key().model.to_string()),
        ("dtype", point.key().dtype.to_string()),
        ("batch_size", point.key().batch_size.to_string()),
        ("case", point.case.to_string()),
        ("device", text(conditions.map(|conditions| conditions.device.to_string()))),
        ("profile", text(conditions.map(|conditions| conditions.profile.to_string()))),
    ]
}

fn point_series(name: &str, group: &str, table: &ScoreTable, point: &ScorePoint) -> Option<ExportedSeries> {
    let figures = point.figures?;
    let started = point.recorded().map(|recorded| recorded.started.0).reduce(f64::min).map(Seconds);
    let mut series = ExportedSeries::new(Scope::Case, labels(name, group, table, point), started);
    series.describe(&run::environment(&point.runs));
    series.add(&figure::IMAGES_PER_SECOND, Some(figures.speed.0));
    series.add(&figure::IMAGES_PER_SECOND_PER_RANK, Some(figures.speed.0 / f64::from(point.case.ranks())));
    series.add(&figure::RANKS, Some(point.case.ranks()));
    series.add(&figure::CV, figures.cv);
    series.add_reliability(&table.reliability_of(point));
    add_arithmetic(&mut series, table.utilization(point));
    series.add(&figure::PEAK_MEMORY, point.peak_memory().map(|peak| peak.0));
    series.add(&figure::RUNS_COUNTED, Some(point.counted().count()));
    series.add(&figure::RUNS_FOUND, Some(point.runs.len()));
    series.add(&figure::WARNINGS, Some(point.warnings.len()));
    Some(series)
}

/// Returns `None` if the run does not count.
fn run_series(
    name: &str,
    group: &str,
    table: &ScoreTable,
    point: &ScorePoint,
    run: &Run<ScoreRecord>,
) -> Option<ExportedSeries> {
    let measured = run.outcome.as_ref().ok()?;
    let mut labels = labels(name, group, table, point);
    labels.push(("run", run.found.name.run.to_string()));
    let mut series = ExportedSeries::new(Scope::Run, labels, run.recorded.as_ref().map(|recorded| recorded.started));
    series.describe(&run::environment([run]));
    series.add(&figure::STARTED, series.started.map(|started| started.0));
    series.add(&figure::IMAGES_PER_SECOND, Some(measured.speed.0));
    series.add(&figure::RANKS, Some(point.case.ranks()));
    series.add_times(
        &figure::PASS,
        run.mean_iteration().map(|mean| mean.0),
        step_percentiles(measured.figures.seconds.as_slice()),
    );
    series.add(&figure::PEAK_MEMORY, measured.peak_memory.map(|peak| peak.0));
    series.add(&figure::FOREIGN_LOAD, measured.foreign_load.as_ref().map(|load| load.share));
    series.add(&figure::WARNINGS, Some(measured.warnings.len()));
    series.add_reliability(&table.reliability_of(point));
    Some(series)
}
