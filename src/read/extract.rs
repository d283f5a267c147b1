//! `ringmark extract`: finds and reads the runs of a folder, computes, renders and writes the figures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::file::sha256;
use ringmark_core::keyword_enum;
use ringmark_core::options::usage::usage;

use crate::output::message::print_error;
use crate::output::{self, Json};
use crate::read::analyze::published::scaling::MeasuredConditions;
use crate::read::analyze::published::{self, Workload};
use crate::read::analyze::results::{ResultFolder, SweepGroups};
use crate::read::analyze::run_group;
use crate::read::analyze::score::figures::ScoreGroup;
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::result_json::JsonResult;
use crate::read::benchmark;
use crate::read::load::content::RESULT_ENDING;
use crate::read::load::folder::{self, Reader};
use crate::read::report_json;
use crate::read::results;
use crate::read::show;
use crate::read::show::page;
use crate::read::show::text::{Medium, WIDTH};
use crate::read::show::training::{csv, dlperf, pytorch_ddp, text};

/// Configuration of `ringmark extract`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractConfig {
    /// Folder that contains `<case>/<model>_b<batch>_<dtype>_<run>.log`.
    pub folder: PathBuf,
    /// Folder for the output files. `None` writes them next to the runs of a sweep, unless another output or another
    /// warm-up is requested.
    pub out: Option<PathBuf>,
    /// Number of warm-up iterations, instead of the value in the records (or DLPerf's).
    pub warmup: Option<u32>,
    /// True to print published figures of the same networks.
    pub published: bool,
    /// Price of training, for printing its cost.
    pub price: Option<Price>,
    /// True to print explanations of columns and figures.
    pub is_explained: bool,
    /// Format to print; `None` prints the table and writes the files.
    pub format: Option<ExtractFormat>,
    /// Destination of additional JSON output.
    pub json: Json,
}

keyword_enum!(
    /// Output format of `ringmark extract`.
    ExtractFormat {
        /// Aligned columns for a terminal.
        Table = "table",
        /// Markdown.
        Markdown = "markdown" | "md",
        /// JSON with one row per case.
        Json = "json",
        /// DLPerf's JSON, containing only DLPerf's figures.
        Dlperf = "dlperf",
        /// The lines of DLPerf's extractor, and its table in Markdown.
        DlperfLines = "dlperf-lines",
        /// CSV with one line per case.
        Csv = "csv",
        /// The JSON that PyTorch's diff.py reads.
        PytorchDdp = "pytorch-ddp",
        /// The lines of PyTorch's DDP benchmark.
        PytorchDdpLines = "pytorch-ddp-lines",
    }
);

impl ExtractFormat {
    /// Returns true for formats of other programs in which an unreliable figure cannot be marked.
    fn lacks_reliability(self) -> bool {
        matches!(self, ExtractFormat::Dlperf | ExtractFormat::DlperfLines | ExtractFormat::PytorchDdpLines)
    }
}

/// Files written next to the result file, by suffix; the last one only for training.
const FILES: [(&str, ExtractFormat); 3] = [
    ("_result.csv", ExtractFormat::Csv),
    ("_result.md", ExtractFormat::Markdown),
    ("_dlperf.json", ExtractFormat::Dlperf),
];

/// Additional printed output. It does not go to the files, which contain only measurements.
#[derive(Default)]
pub struct Extras<'a> {
    /// True to include published figures of the same networks.
    pub published: bool,
    /// Price of training.
    pub price: Option<&'a Price>,
    /// True to print explanations of columns and figures.
    pub is_explained: bool,
}

/// Extracts, prints and writes; returns an error at the end if anything was excluded.
pub fn run(config: &ExtractConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    // With a format, --out is a file for it alone, or a folder for all files.
    let file = config.out.as_deref().filter(|out| config.format.is_some() && !out.is_dir());
    file.map_or(Ok(()), |file| output::check_target("--out", file, &[]))?;
    let folder = &config.folder;
    let result = results::read_sweep_or_records(folder, config.warmup, Reader::Extract)?;
    check_of_records(config, &result)?;
    if let (SweepGroups::Score(_), Some(_)) = (&result.sweep, &config.price) {
        let what = "--price applies to training, but {} contains an inference sweep: omit --price";
        return Err(usage(anyhow!(what.replace("{}", &folder.display().to_string()))));
    }
    let extras =
        Extras { published: config.published, price: config.price.as_ref(), is_explained: config.is_explained };
    let text = || render(&result, config.format.unwrap_or(ExtractFormat::Table), &extras);
    match file {
        Some(file) => output::write_file(file, &text()?)?,
        _ if config.json.write_text(|| render(&result, ExtractFormat::Json, &extras))? => {}
        _ => output::print(&text()?)?,
    }
    if config.format.is_some_and(ExtractFormat::lacks_reliability) {
        print_unreliable(&result);
    }
    let left_out = result.problems.iter().map(|problem| format!("not in the figures: {problem}"));
    let complete = output::check_complete(&format!("the figures of {} are", folder.display()), left_out);
    match &config.out {
        Some(out) if file.is_none() => write(folder, out, &result)?,
        // An explicit format or `--json` replaces the files. Records need none: they contain their figures.
        _ if config.format.is_some() || config.json != Json::No || result.is_of_records() => {}
        // `ringmark check` compares the files with the figures of the recorded warm-up.
        _ if config.warmup.is_some() => {
            print_error("no files written: --warmup changes the figures: choose a folder with --out");
        }
        _ if folder.join(MANIFEST).exists() => write(folder, folder, &result)?,
        _ => {
            print_error(&format!("no files written: {} is not a sweep folder: choose one with --out", folder.display()))
        }
    }
    complete
}

/// Renders the figures in one format, including published figures and the cost if requested.
pub fn render(result: &ResultFolder, format: ExtractFormat, extras: &Extras) -> anyhow::Result<String> {
    match &result.sweep {
        _ if result.is_of_records() => render_records(result, format, extras),
        SweepGroups::Training(groups) => render_training(result, groups, format, extras),
        SweepGroups::Score(groups) => render_score(result, groups, format, extras),
    }
}

/// Refuses options that do not apply to the records of a benchmark without sweeps.
fn check_of_records(config: &ExtractConfig, result: &ResultFolder) -> anyhow::Result<()> {
    let is_folder = config.out.as_deref().is_some_and(|out| config.format.is_none() || out.is_dir());
    let options =
        [("--warmup", config.warmup.is_some()), ("--price", config.price.is_some()), ("--out FOLDER", is_folder)];
    let option = options.into_iter().find(|(_, is_given)| *is_given).filter(|_| result.is_of_records());
    option.map_or(Ok(()), |(option, _)| {
        Err(usage(anyhow!(
            "{option} applies to sweeps, but {} contains a result of ringmark {}: omit it",
            config.folder.display(),
            result.recorded_benchmarks()
        )))
    })
}

/// Renders the sections of a report about records. Their JSON is that of a report.
fn render_records(result: &ResultFolder, format: ExtractFormat, extras: &Extras) -> anyhow::Result<String> {
    let results = std::slice::from_ref(result);
    let text = |medium| {
        let sections = benchmark::content(results, extras.published).sections;
        let assessment = (result.assessment(), result.problems.len());
        page::text::sections(&result.name, &sections, assessment, medium)
    };
    match format {
        ExtractFormat::Table => Ok(text(Medium::Terminal { width: WIDTH, is_explained: extras.is_explained })),
        ExtractFormat::Markdown => Ok(text(Medium::Markdown)),
        ExtractFormat::Json => {
            Ok(serde_json::to_string_pretty(&report_json::build_report(results, extras.published))? + "\n")
        }
        _ => Err(usage(anyhow!(
            "--format {format} applies to sweeps, but {} contains a result of ringmark {}: choose table, markdown or json",
            result.name,
            result.recorded_benchmarks()
        ))),
    }
}

/// Returns the suffixes and formats of the files next to the result file.
pub fn other_files(result: &ResultFolder) -> &'static [(&'static str, ExtractFormat)] {
    match &result.sweep {
        SweepGroups::Training(_) => &FILES,
        SweepGroups::Score(_) => &FILES[..2],
    }
}

/// Returns the files for the folder, as names and contents, beginning with the result file.
fn files(folder: &Path, result: &ResultFolder) -> anyhow::Result<Vec<(String, String)>> {
    let name = folder::name_of(folder)?;
    let file = |(ending, format): &(&str, ExtractFormat)| {
        Ok((format!("{name}{ending}"), render(result, *format, &Extras::default())?))
    };
    let others = other_files(result).iter().map(file).collect::<anyhow::Result<Vec<_>>>()?;
    let hash = |(name, text): &(String, String)| (name.clone(), sha256::hash_text(text));
    let main = results::result_file(result, others.iter().map(hash).collect())?;
    Ok(std::iter::once((name + RESULT_ENDING, main)).chain(others).collect())
}

fn render_score(
    result: &ResultFolder,
    groups: &[ScoreGroup],
    format: ExtractFormat,
    &Extras { published, is_explained, .. }: &Extras,
) -> anyhow::Result<String> {
    let models = run_group::models(groups);
    let text = |medium| {
        let published =
            if published { show::published::sections(Workload::Inference, &models, &[]) } else { Vec::new() };
        show::score::text::text(result, published, medium)
    };
    match format {
        ExtractFormat::Table => Ok(text(Medium::Terminal { width: WIDTH, is_explained })),
        ExtractFormat::Markdown => Ok(text(Medium::Markdown)),
        ExtractFormat::Json if published => {
            let published = published::rates(Workload::Inference, &models);
            ScoreResult { published, ..ScoreResult::new(result) }.text()
        }
        ExtractFormat::Json => ScoreResult::new(result).text(),
        _ if published => Err(has_no_published(format)),
        ExtractFormat::Csv => show::score::csv::csv(result),
        ExtractFormat::Dlperf
        | ExtractFormat::DlperfLines
        | ExtractFormat::PytorchDdp
        | ExtractFormat::PytorchDdpLines => Err(usage(anyhow!(
            "--format {format} applies to training, but {} contains an inference sweep: choose table, markdown, json or csv",
            result.name
        ))),
    }
}

fn has_no_published(format: ExtractFormat) -> anyhow::Error {
    usage(anyhow!("--published: --format {format} cannot include published figures: choose table, markdown or json"))
}

fn render_training(
    result: &ResultFolder,
    groups: &[TrainingGroup],
    format: ExtractFormat,
    &Extras { published, price, is_explained }: &Extras,
) -> anyhow::Result<String> {
    let models = run_group::models(groups);
    let text = |medium| {
        let measured: Vec<MeasuredConditions> = groups.iter().map(TrainingGroup::measured_conditions).collect();
        let published = published.then(|| show::published::sections(Workload::Training, &models, &measured));
        text::text(result, price, published, medium)
    };
    match format {
        ExtractFormat::Table => Ok(text(Medium::Terminal { width: WIDTH, is_explained })),
        ExtractFormat::Markdown => Ok(text(Medium::Markdown)),
        ExtractFormat::Json => {
            let published = if published { published::rates(Workload::Training, &models) } else { Vec::new() };
            JsonResult { published, ..JsonResult::new(result, price) }.text()
        }
        _ if published => Err(has_no_published(format)),
        ExtractFormat::Csv => csv::csv(result, price),
        _ if price.is_some() => {
            Err(usage(anyhow!("--price: --format {format} cannot include costs: choose table, markdown, json or csv")))
        }
        ExtractFormat::Dlperf => dlperf::json(result),
        ExtractFormat::DlperfLines => Ok(dlperf::lines(result)),
        ExtractFormat::PytorchDdp => Ok(serde_json::to_string(&pytorch_ddp::benchmark(result)?)? + "\n"),
        ExtractFormat::PytorchDdpLines => Ok(pytorch_ddp::lines(result)),
    }
}

/// Returns the result of the sweep in `folder`, for its end: PyTorch's lines of a DDP suite, the speeds of each network,
/// precision and batch size, and the cause of most of the scaling loss. `None` if the files cannot be read.
pub fn summary(folder: &Path, is_ddp_suite: bool) -> Option<String> {
    let result = results::read_training(folder, None).ok()?;
    let lines = if is_ddp_suite { pytorch_ddp::lines(&result) + "\n" } else { String::new() };
    Some(lines + &text::summary(&result))
}

/// Prints why figures are unreliable, for a format that cannot contain it.
pub fn print_unreliable(result: &ResultFolder) {
    let sentences = result.assessment().unreliable_sentences();
    sentences.iter().for_each(|sentence| print_error(&format!("warning: unreliable: {sentence}")));
}

/// Returns the tables of the inference sweep in `folder`, for its end; `None` if the files cannot be read.
pub fn score_summary(folder: &Path) -> Option<String> {
    let result = results::read_sweep(folder, folder::find(folder, Reader::Extract).ok()?, None).ok()?;
    Some(show::score::text::summary(&result))
}

/// Writes the files of `folder` to `out`, which is created if necessary.
fn write(folder: &Path, out: &Path, result: &ResultFolder) -> anyhow::Result<()> {
    let advice = || format!("cannot write the result into {}: choose another folder with --out", out.display());
    fs::create_dir_all(out).with_context(advice)?;
    let common = folder::name_of(folder)?;
    let mut written = Vec::new();
    for (name, text) in files(folder, result)? {
        let path = out.join(&name);
        atomic_file::write(&path, |output| Ok(output.write_all(text.as_bytes())?)).with_context(advice)?;
        written.push(match written.is_empty() {
            true => path.display().to_string(),
            false => name.strip_prefix(&common).unwrap_or(&name).to_owned(),
        });
    }
    print_error(&format!("wrote {}", written.join(", ")));
    Ok(())
}
