//! The way from a folder of runs to what a reader sees: find, read, work out, render, write.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, anyhow};
use ringmark_record::benchmark::BenchmarkKind;
use ringmark_record::dimension::model::Model;
use ringmark_record::file::run_name::MANIFEST;
use ringmark_record::file::whole_file;
use ringmark_record::keyword_enum;
use ringmark_record::options::usage::{UsageError, usage};

use crate::output::{self, Json};
use crate::read::analyse::conclusion;
use crate::read::analyse::cost::Price;
use crate::read::analyse::figures::{self, Extraction, Group};
use crate::read::analyse::reliability::ReliabilityWarning;
use crate::read::analyse::result_json;
use crate::read::analyse::results::ResultFolder;
use crate::read::analyse::score;
use crate::read::analyse::score::figures::{ScoreExtraction, ScoreTable};
use crate::read::analyse::score::json::ScoreResult;
use crate::read::load::folder::{self, Found};
use crate::read::load::problem::{self, Problem};
use crate::read::load::score_run;
use crate::read::load::{bandwidth, input, record};
use crate::read::show;
use crate::read::show::extraction::{csv, dlperf, pytorch_ddp, text};
use crate::read::show::once::once;

/// What `ringmark extract` is asked to do.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractConfig {
    /// Folder that holds `<case>/<model>_b<batch>_<dtype>_<run>.log`.
    pub folder: PathBuf,
    /// Folder for the files. `None` writes them beside the runs of a sweep, unless something else is asked for.
    pub out: Option<PathBuf>,
    /// First iterations to leave out, instead of what records (or DLPerf) say.
    pub warmup: Option<u32>,
    /// Whether published figures of the same networks are printed too.
    pub published: bool,
    /// What training costs at which price, printed too.
    pub price: Option<Price>,
    /// Format to print; `None` is the table, with the files.
    pub format: Option<Format>,
    /// Where JSON goes besides.
    pub json: Json,
}

keyword_enum!(
    /// Formats to print.
    Format {
        /// Aligned columns for a terminal.
        Table = "table",
        /// Markdown.
        Markdown = "markdown" | "md",
        /// For programs: one row a case.
        Json = "json",
        /// DLPerf's JSON, with DLPerf's figures alone.
        Dlperf = "dlperf",
        /// One line a case.
        Csv = "csv",
        /// The JSON that PyTorch's diff.py reads.
        PytorchDdp = "pytorch-ddp",
        /// The lines of PyTorch's DDP benchmark.
        PytorchDdpLines = "pytorch-ddp-lines",
    }
);

/// What is written of training, by the endings of the files; the last is not of scoring.
const FILES: [(&str, Format); 4] = [
    ("_result.json", Format::Json),
    ("_result.csv", Format::Csv),
    ("_result.md", Format::Markdown),
    ("_dlperf.json", Format::Dlperf),
];

/// The figures in one format.
type Render<'a> = dyn Fn(Format) -> anyhow::Result<String> + 'a;

/// Extracts, prints and writes; an error where anything was left out, after everything else was printed and written.
pub fn run(config: &ExtractConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    match read_any(&config.folder, config.warmup)? {
        AnyExtraction::Scoring(_) if config.price.is_some() => Err(usage(anyhow!(
            "--price is of training, and {} holds a sweep of scoring: leave it out",
            config.folder.display()
        ))),
        AnyExtraction::Scoring(extraction) => {
            let rendered = |format| render_scoring(&extraction, format);
            let printed = |format| match config.published {
                true => render_beside_published(&extraction, format),
                false => rendered(format),
            };
            finish(config, &FILES[..3], &extraction.problems, &printed, &rendered)
        }
        AnyExtraction::Training(_) if config.published => Err(usage(anyhow!(
            "--published: a result of training has its published rows in the report: ringmark report {} --published",
            config.folder.display()
        ))),
        AnyExtraction::Training(extraction) => {
            // The files hold what was measured, and no price.
            let printed = |format| render(&extraction, format, config.price.as_ref());
            finish(config, &FILES, &extraction.problems, &printed, &|format| render(&extraction, format, None))
        }
    }
}

/// The figures of a folder, whatever was measured.
pub enum AnyExtraction {
    /// Of `ringmark sweep`, or of logs.
    Training(Extraction),
    /// Of `ringmark score`.
    Scoring(ScoreExtraction),
}

/// Finds and reads every run below `folder` and works out the figures; prints and writes nothing. `warmup` is of training.
pub fn read_any(folder: &Path, warmup: Option<u32>) -> anyhow::Result<AnyExtraction> {
    let found = folder::find(folder)?;
    match found.benchmark(folder)? {
        BenchmarkKind::Score if warmup.is_some() => Err(usage(anyhow!(
            "--warmup: the scoring records in {} hold no dry passes: leave the option out",
            folder.display()
        ))),
        BenchmarkKind::Score => Ok(AnyExtraction::Scoring(of_scoring(folder, found)?)),
        BenchmarkKind::Train | BenchmarkKind::Bandwidth | BenchmarkKind::Input => {
            Ok(AnyExtraction::Training(of_training(folder, found, warmup)?))
        }
    }
}

/// All that lies in a folder, whatever was measured, but for traces: runs of a sweep, of bandwidth and of input. An error where
/// that is nothing.
pub fn read_all(folder: &Path, name: String, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let bandwidth = bandwidth::find(folder)?;
    let input = input::find(folder);
    let (command, groups, scoring, shortages, mut problems) = match read_any(folder, warmup) {
        Ok(AnyExtraction::Training(it)) => (it.resume_command, it.groups, Vec::new(), it.shortages, it.problems),
        Ok(AnyExtraction::Scoring(it)) => (it.resume_command, Vec::new(), it.tables, it.shortages, it.problems),
        Err(error) if error.is::<UsageError>() => return Err(error),
        // A folder of bandwidth runs, or of input, has no others.
        Err(_) if input.is_some() || !(bandwidth.cases.is_empty() && bandwidth.problems.is_empty()) => {
            Default::default()
        }
        Err(error) => return Err(error),
    };
    problems.extend(bandwidth.problems);
    let input = input.transpose().unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let (command, traces) = (command.map(|command| command.replace(" --resume", "")), Vec::new());
    Ok(ResultFolder {
        name,
        command,
        price: None,
        groups,
        scoring,
        shortages,
        bandwidth: bandwidth.cases,
        input,
        traces,
        problems,
    })
}

/// Prints what `printed` makes of the figures, and writes what `written` makes of them, whatever was measured.
fn finish(
    config: &ExtractConfig,
    files: &[(&str, Format)],
    problems: &[Problem],
    printed: &Render,
    written: &Render,
) -> anyhow::Result<()> {
    if !config.json.write_text(|| printed(Format::Json))? {
        output::print(&printed(config.format.unwrap_or(Format::Table))?)?;
    }
    let left_out = problems.iter().map(|problem| format!("not in the figures: {problem}"));
    let complete = problem::check_complete(&format!("the figures of {} are", config.folder.display()), left_out);
    let folder = &config.folder;
    match &config.out {
        Some(out) => write(folder, out, files, written)?,
        // What is printed in a format is all that was asked for.
        None if config.format.is_some() || config.json != Json::No => {}
        None if folder.join(MANIFEST).exists() => write(folder, folder, files, written)?,
        None => output::print_note(&format!(
            "no files written, for {} is no folder of a sweep: choose one by --out",
            folder.display()
        )),
    }
    complete
}

/// What extract makes of a folder, written nowhere.
pub struct Extracted {
    /// What is not in the figures, and why.
    pub problems: Vec<Problem>,
    /// Why figures are unreliable.
    pub reliability_warnings: Vec<String>,
    /// The files that it would write into the folder: names and contents.
    pub files: Vec<(PathBuf, String)>,
}

/// Of what was `found` in `folder`, whatever was measured.
pub fn extracted(folder: &Path, found: Found) -> anyhow::Result<Extracted> {
    let name = name_of(folder)?;
    let texts = |files: &[(&str, Format)], render: &Render| {
        let file = |(ending, format): &(&str, Format)| Ok((PathBuf::from(name.clone() + ending), render(*format)?));
        files.iter().map(file).collect::<anyhow::Result<Vec<(PathBuf, String)>>>()
    };
    let texts_of = |reliability_warnings: Vec<ReliabilityWarning>| {
        reliability_warnings.iter().map(ReliabilityWarning::to_string).collect::<Vec<String>>()
    };
    let (reliability_warnings, files, problems): (Vec<(String, Vec<String>)>, _, _) =
        if found.benchmark(folder)? == BenchmarkKind::Score {
            let extraction = of_scoring(folder, found)?;
            let named = |table: &ScoreTable| {
                let models = score::figures::models(slice::from_ref(table));
                let models: Vec<String> = models.iter().map(Model::to_string).collect();
                (models.join(", "), texts_of(table.all_reliability_warnings()))
            };
            let reliability_warnings = extraction.tables.iter().map(named).collect();
            let files = texts(&FILES[..3], &|format| render_scoring(&extraction, format))?;
            (reliability_warnings, files, extraction.problems)
        } else {
            let extraction = of_training(folder, found, None)?;
            let named = |group: &Group| (group.label.clone(), texts_of(group.all_reliability_warnings()));
            let reliability_warnings = extraction.groups.iter().map(named).collect();
            let files = texts(&FILES, &|format| render(&extraction, format, None))?;
            (reliability_warnings, files, extraction.problems)
        };
    Ok(Extracted { problems, reliability_warnings: once(&reliability_warnings), files })
}

/// Finds and reads every run of training below `folder` and works out the figures; prints and writes nothing. Refuses a
/// folder of another benchmark.
pub fn read(folder: &Path, warmup: Option<u32>) -> anyhow::Result<Extraction> {
    of_training(folder, folder::find(folder)?, warmup)
}

fn of_training(folder: &Path, found: Found, warmup: Option<u32>) -> anyhow::Result<Extraction> {
    found.check_is_training(folder)?;
    let runs = found.runs.iter().map(|found| record::read(folder, found, warmup)).collect();
    Ok(figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep))
}

/// Finds and reads every scoring run below `folder` and works out the figures; prints and writes nothing.
pub fn read_scoring(folder: &Path) -> anyhow::Result<ScoreResult> {
    Ok(ScoreResult::new(&of_scoring(folder, folder::find(folder)?)?))
}

fn of_scoring(folder: &Path, found: Found) -> anyhow::Result<ScoreExtraction> {
    let runs = found.runs.iter().map(|found| score_run::read(folder, found)).collect();
    Ok(score::figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep))
}

/// The whole output of a scoring sweep in one format.
pub fn render_scoring(extraction: &ScoreExtraction, format: Format) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(show::score::text::terminal(extraction, Vec::new())),
        Format::Markdown => Ok(show::score::text::markdown(extraction, Vec::new())),
        Format::Json => ScoreResult::new(extraction).text(),
        Format::Csv => show::score::csv::csv(extraction),
        Format::Dlperf | Format::PytorchDdp | Format::PytorchDdpLines => Err(usage(anyhow!(
            "--format {format} is of training, and {} holds a sweep of scoring: choose table, \
             markdown, json or csv",
            extraction.name
        ))),
    }
}

/// The same, and what others published of the same networks: printed alone, for the files of a folder hold what was
/// measured there.
fn render_beside_published(extraction: &ScoreExtraction, format: Format) -> anyhow::Result<String> {
    let sections = || show::score::published::sections(extraction);
    match format {
        Format::Table => Ok(show::score::text::terminal(extraction, sections())),
        Format::Markdown => Ok(show::score::text::markdown(extraction, sections())),
        Format::Json => {
            let published = score::published::rates(&score::figures::models(&extraction.tables));
            ScoreResult { published, ..ScoreResult::new(extraction) }.text()
        }
        Format::Csv | Format::Dlperf | Format::PytorchDdp | Format::PytorchDdpLines => Err(usage(anyhow!(
            "--published: --format {format} has no place for what others measured: choose table, markdown or json"
        ))),
    }
}

/// The whole output of training in one format, with what it costs where there is a price.
pub fn render(extraction: &Extraction, format: Format, price: Option<&Price>) -> anyhow::Result<String> {
    match format {
        Format::Table => Ok(text::terminal(extraction, price)),
        Format::Markdown => Ok(text::markdown(extraction, price)),
        Format::Json => result_json::json(extraction, price),
        Format::Csv => csv::csv(extraction, price),
        _ if price.is_some() => {
            Err(usage(anyhow!("--price: --format {format} has no place for it: choose table, markdown, json or csv")))
        }
        Format::Dlperf => dlperf::json(extraction),
        Format::PytorchDdp => Ok(serde_json::to_string(&pytorch_ddp::benchmark(extraction)?)? + "\n"),
        Format::PytorchDdpLines => Ok(pytorch_ddp::lines(extraction)),
    }
}

/// A sentence for each network, precision and batch size of the sweep in `folder`: what its largest case reached, and where
/// most of the rest is lost. None where its files do not say.
pub fn conclusions(folder: &Path) -> Vec<String> {
    let Ok(extraction) = read(folder, None) else { return Vec::new() };
    let groups = &extraction.groups;
    let title = |group: &Group| if groups.len() > 1 { format!("{}, ", group.label) } else { String::new() };
    let sentence = |group| Some(format!("{}{}", title(group), conclusion::of_group(group)?));
    groups.iter().filter_map(sentence).map(|sentence| output::strip_control_characters(&sentence)).collect()
}

/// Last part of the path, also of `.` and `results/..`.
pub fn name_of(folder: &Path) -> anyhow::Result<String> {
    let whole = fs::canonicalize(folder).with_context(|| format!("{} cannot be resolved", folder.display()))?;
    let last = whole.file_name().unwrap_or(whole.as_os_str());
    Ok(last.to_string_lossy().into_owned())
}

/// Writes the `files` of `folder`, endings of names and formats, into `out`, which is created if needed.
fn write(folder: &Path, out: &Path, files: &[(&str, Format)], render: &Render) -> anyhow::Result<()> {
    let name = name_of(folder)?;
    let advice = || format!("cannot write the result into {}: choose another folder by --out", out.display());
    fs::create_dir_all(out).with_context(advice)?;
    let mut written = Vec::new();
    for (ending, format) in files {
        let path = out.join(name.clone() + ending);
        let text = render(*format)?;
        whole_file::write(&path, |output| Ok(output.write_all(text.as_bytes())?)).with_context(advice)?;
        written.push(path.display().to_string());
    }
    output::print_note(&format!("wrote {}", written.join(", ")));
    Ok(())
}
