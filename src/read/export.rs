//! `ringmark extract --format prometheus|influx|mlflow|mllog`: exports the figures of a folder to other programs. The
//! formats are in [`crate::read::show::export`].

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use ringmark_core::benchmark::train::{RunRecord, TrainConfig};
use ringmark_core::benchmark::{BenchmarkKind, Record};
use ringmark_core::dimension::Seconds;
use ringmark_core::options::usage::usage;

use crate::output;
use crate::output::message::print_error;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::benchmark::{BenchmarkReader, READERS};
use crate::read::extract::print_unreliable;
use crate::read::load::folder::{Reader, name_of};
use crate::read::load::problem::{Problem, ProblemKind};
use crate::read::load::{record, run};
use crate::read::results;
use crate::read::show::export::figure::ExportedSeries;
use crate::read::show::export::mlflow::{self, Experiment, RunToExport};
use crate::read::show::export::runs::{self, ExportedRun};
use crate::read::show::export::time_line::{Period, TimeLine};
use crate::read::show::export::{ExportFormat, influx, mllog, prometheus};
use crate::read::show::numbers::list;

/// Options of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportConfig {
    /// Folder of the runs.
    pub folder: PathBuf,
    /// Output file; for MLflow the folder of its store, for MLPerf a folder with a log per run. `None` is the standard
    /// output.
    pub out: Option<PathBuf>,
    /// Number of warm-up iterations to exclude; `None` uses that of the records (or DLPerf's).
    pub warmup: Option<u32>,
    /// Output format.
    pub format: ExportFormat,
}

/// Exports the figures. Fails if anything was left out, after everything else is printed or written.
pub fn run(config: &ExportConfig) -> anyhow::Result<()> {
    let ExportConfig { folder, out, warmup, format } = config;
    let mut result = results::read(folder, name_of(folder)?, *warmup, Reader::Extract)?;
    let mut problems = std::mem::take(&mut result.problems);
    if matches!(format, ExportFormat::Mlflow | ExportFormat::Mllog) {
        // These formats export single runs, which have no speedup.
        problems.retain(|problem| problem.kind != ProblemKind::MissingBase);
    }
    match format {
        ExportFormat::Prometheus => put(out.as_deref(), &prometheus::text(&series(&result, folder)?))?,
        ExportFormat::Influx => {
            let (text, without_time) = influx::lines(&series(&result, folder)?);
            problems.extend(without_time);
            put(out.as_deref(), &text)?;
        }
        ExportFormat::Mlflow => {
            let out = out
                .as_deref()
                .ok_or_else(|| anyhow!("--format mlflow writes a folder: add --out FOLDER, as --out mlruns"));
            write_mlflow(&result, folder, out.map_err(usage)?, &mut problems)?;
        }
        ExportFormat::Mllog => {
            write_mllog(&result, folder, out.as_deref())?;
            // MLPerf's log has no place for them.
            print_unreliable(&result);
        }
    }
    let left_out = problems.iter().map(|problem| format!("not in the export: {problem}"));
    output::check_complete(&format!("the export of {} is", folder.display()), left_out)
}

/// Returns the figures of all cases, runs and message sizes.
fn series(result: &ResultFolder, folder: &Path) -> anyhow::Result<Vec<ExportedSeries>> {
    let name = &result.name;
    let mut all = runs::cases(name, result.training());
    all.extend(runs::runs(name, result.training()).into_iter().map(|run| run.series));
    all.extend(runs::cases(name, result.scoring()));
    all.extend(runs::runs(name, result.scoring()).into_iter().map(|run| run.series));
    all.extend(READERS.iter().filter_map(|reader| reader.series).flat_map(|series| series(result)));
    let is_only = |reader: &&BenchmarkReader| reader.series.is_none() && result.records.contains_key(&reader.benchmark);
    let what = match READERS.iter().find(is_only) {
        Some(reader) => format!("only a result of `ringmark {}`", reader.benchmark),
        None => "no run that counts".to_owned(),
    };
    let exported = READERS.iter().filter(|reader| reader.series.is_some()).map(|reader| reader.benchmark);
    let exported = [BenchmarkKind::Train, BenchmarkKind::Score].into_iter().chain(exported);
    let exported = list(&exported.map(|benchmark| benchmark.to_string()).collect::<Vec<_>>());
    let refusal = || {
        let path = folder.display();
        anyhow!("{path} contains {what}, but only runs of {exported} are exported: use ringmark report {path}")
    };
    ensure!(!all.is_empty(), usage(refusal()));
    Ok(all)
}

/// Writes to the file, or to the standard output.
fn put(out: Option<&Path>, text: &str) -> anyhow::Result<()> {
    let Some(path) = out else { return output::print(text) };
    if path.is_dir() {
        return Err(usage(anyhow!("--out {} is a folder: name a file in it", path.display())));
    }
    output::check_target("--out", path, &[])?;
    output::write_file(path, text)
}

fn write_mlflow(result: &ResultFolder, folder: &Path, out: &Path, problems: &mut Vec<Problem>) -> anyhow::Result<()> {
    let (trained, scored) = (runs::runs(&result.name, result.training()), runs::runs(&result.name, result.scoring()));
    if trained.is_empty() && scored.is_empty() {
        return Err(usage(anyhow!(
            "{} contains no training or inference run that counts: nothing to export to MLflow",
            folder.display()
        )));
    }
    let advice = || format!("cannot write MLflow's files into {}: choose another folder with --out", out.display());
    fs::create_dir_all(out).with_context(advice)?;
    let experiment = Experiment::new(&result.name, &fs::canonicalize(out).with_context(advice)?);
    let mut begins = Vec::new();
    let mut write = |run: &RunToExport| {
        begins.push(run.period.start.0);
        let artifacts = out.join(experiment.folder(run)).join("artifacts");
        fs::create_dir_all(&artifacts)?;
        for file in [run.log.to_owned(), run.log.with_extension("jsonl")] {
            if let (Some(name), true) = (file.file_name(), folder.join(&file).exists()) {
                fs::copy(folder.join(&file), artifacts.join(name))?;
            }
        }
        experiment.run(run).iter().try_for_each(|file| write_below(out, file))
    };
    for ExportedRun { run, series, .. } in &trained {
        match record::read_for_log::<RunRecord>(folder, &run.found.log) {
            Ok(Some(record)) => write(&RunToExport {
                log: &run.found.log,
                period: TimeLine::from_record(&record).run,
                series,
                options: mlflow::options(&TrainConfig { record: None, ..record.header.config.clone() }),
                environment: run::environment([*run]),
                record: Some(&record),
            })
            .with_context(advice)?,
            Ok(None) => problems.push(Problem::in_file(&run.found.log, "start time unknown: not exported")),
            Err(problem) => problems.push(problem),
        }
    }
    for ExportedRun { run, case, group, series } in &scored {
        let (Some(start), Ok(measured)) = (series.started, &run.outcome) else { continue };
        let ranks = f64::from(case.case.ranks());
        let end = Seconds(start.0 + measured.figures.seconds.iter().sum::<f64>() / ranks);
        write(&RunToExport {
            log: &run.found.log,
            period: Period { start, end },
            series,
            options: group.settings_of(case),
            environment: run::environment(&case.runs),
            record: None,
        })
        .with_context(advice)?;
    }
    let Some(first) = begins.iter().copied().reduce(f64::min) else { return Ok(()) };
    write_below(out, &experiment.file(Seconds(first))).with_context(advice)?;
    print_error(&format!("wrote {} runs for MLflow into {}", begins.len(), out.display()));
    Ok(())
}

/// Writes a file below `folder`, and creates its parent folders.
fn write_below(folder: &Path, (path, text): &(PathBuf, String)) -> anyhow::Result<()> {
    let path = folder.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}

fn write_mllog(result: &ResultFolder, folder: &Path, out: Option<&Path>) -> anyhow::Result<()> {
    let mut logs: Vec<(PathBuf, String)> = Vec::new();
    for run in result.training().iter().flat_map(|group| &group.cases).flat_map(|case| &case.runs) {
        // MLPerf logs a failed run as aborted; for other reasons a run is left out, and its problem is reported.
        let record = match record::read_for_log::<RunRecord>(folder, &run.found.log) {
            Ok(Some(record)) if run.outcome.is_ok() || record.failure().is_some() => record,
            _ => continue,
        };
        if record.end.as_ref().is_some_and(|end| !end.epochs.is_empty()) {
            let file = run.found.log.with_extension("jsonl");
            logs.push((run.found.log.with_extension("mllog"), mllog::lines(&file, &record)));
        }
    }
    match (out, &logs[..]) {
        (_, []) => Err(usage(anyhow!(
            "{} contains no run that trained a whole epoch, which MLPerf's log needs: run ringmark sweep --data FILES \
             --epochs N --validate FILES",
            folder.display()
        ))),
        (None, [(_, text)]) => output::print(text),
        (None, several) => Err(usage(anyhow!(
            "{} contains {} runs with epochs, but MLPerf's log contains one: add --out FOLDER for one file per run",
            folder.display(),
            several.len()
        ))),
        (Some(out), logs) => {
            logs.iter().try_for_each(|log| write_below(out, log))?;
            print_error(&format!("wrote {} logs into {}", logs.len(), out.display()));
            Ok(())
        }
    }
}
