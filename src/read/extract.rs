//! `ringmark extract`: finds and reads the runs of a folder, computes, renders and writes the figures.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, anyhow};
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::dimension::Model;
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::file::sha256;
use ringmark_core::file::whole_file;
use ringmark_core::keyword_enum;
use ringmark_core::options::usage::{UsageError, usage};

use crate::output::{self, Json};
use crate::read::analyze::extraction::Extraction;
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::score;
use crate::read::analyze::score::figures::ScoreTable;
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::conclusion;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::{self, Group};
use crate::read::analyze::training::result_json;
use crate::read::analyze::training::title;
use crate::read::load::content::RESULT_ENDING;
use crate::read::load::folder::{self, Found};
use crate::read::load::problem::{self, Problem};
use crate::read::load::run::Run;
use crate::read::load::{bandwidth, input};
use crate::read::show;
use crate::read::show::extraction::{csv, dlperf, pytorch_ddp, text};
use crate::read::show::once::once;
use crate::read::show::text::{Medium, WIDTH};

/// Configuration of `ringmark extract`.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtractConfig {
    /// Folder that contains `<case>/<model>_b<batch>_<dtype>_<run>.log`.
    pub folder: PathBuf,
    /// Folder for the output files. `None` writes them next to the runs of a sweep, unless another output is requested.
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
        /// CSV with one line per case.
        Csv = "csv",
        /// The JSON that PyTorch's diff.py reads.
        PytorchDdp = "pytorch-ddp",
        /// The lines of PyTorch's DDP benchmark.
        PytorchDdpLines = "pytorch-ddp-lines",
    }
);

/// Files written next to the result file, by suffix; the last one only for training.
const FILES: [(&str, ExtractFormat); 3] = [
    ("_result.csv", ExtractFormat::Csv),
    ("_result.md", ExtractFormat::Markdown),
    ("_dlperf.json", ExtractFormat::Dlperf),
];

/// Additional printed output. It does not go to the files, which contain only measurements.
#[derive(Default)]
struct Extras<'a> {
    /// Published rates of the same networks.
    published: bool,
    /// Price of training.
    price: Option<&'a Price>,
    /// True to print explanations of columns and figures.
    is_explained: bool,
}

/// Extracts, prints and writes; returns an error at the end if anything was excluded.
pub fn run(config: &ExtractConfig) -> anyhow::Result<()> {
    config.json.check(&[])?;
    let folder = &config.folder;
    let extraction = read_any(folder, config.warmup)?;
    match extraction {
        AnyExtraction::Score(_) if config.price.is_some() => {
            let what = "--price is of training, and {} holds a sweep of scoring: leave it out";
            return Err(usage(anyhow!(what.replace("{}", &folder.display().to_string()))));
        }
        AnyExtraction::Training(_) if config.published => {
            let what = "--published: a result of training has its published rows in the report: ringmark report {} --published";
            return Err(usage(anyhow!(what.replace("{}", &folder.display().to_string()))));
        }
        _ => {}
    }
    let extras =
        Extras { published: config.published, price: config.price.as_ref(), is_explained: config.is_explained };
    if !config.json.write_text(|| extraction.render(ExtractFormat::Json, &extras))? {
        output::print(&extraction.render(config.format.unwrap_or(ExtractFormat::Table), &extras)?)?;
    }
    let left_out = extraction.problems().iter().map(|problem| format!("not in the figures: {problem}"));
    let complete = problem::check_complete(&format!("the figures of {} are", folder.display()), left_out);
    match &config.out {
        Some(out) => write(folder, out, &extraction)?,
        // An explicit format or `--json` replaces the files.
        None if config.format.is_some() || config.json != Json::No => {}
        None if folder.join(MANIFEST).exists() => write(folder, folder, &extraction)?,
        None => output::print_note(&format!(
            "no files written, for {} is no folder of a sweep: choose one by --out",
            folder.display()
        )),
    }
    complete
}

/// Figures of a folder of any benchmark.
pub enum AnyExtraction {
    /// Result of `ringmark sweep`, or of logs.
    Training(Extraction<Group>),
    /// Result of `ringmark score`.
    Score(Extraction<ScoreTable>),
}

impl AnyExtraction {
    /// Computes the figures of the runs `found` in `folder`, without printing or writing. `warmup` applies to training
    /// only.
    pub fn new(folder: &Path, found: Found, warmup: Option<u32>) -> anyhow::Result<AnyExtraction> {
        match found.benchmark(folder)? {
            BenchmarkKind::Score if warmup.is_some() => Err(usage(anyhow!(
                "--warmup: the scoring records in {} hold no dry passes: leave the option out",
                folder.display()
            ))),
            BenchmarkKind::Score => Ok(AnyExtraction::Score(of_scoring(folder, found)?)),
            BenchmarkKind::Train | BenchmarkKind::Bandwidth | BenchmarkKind::Input => {
                Ok(AnyExtraction::Training(of_training(folder, found, warmup)?))
            }
        }
    }

    /// Returns the runs that are excluded, with the reason.
    pub fn problems(&self) -> &[Problem] {
        match self {
            AnyExtraction::Training(extraction) => &extraction.problems,
            AnyExtraction::Score(extraction) => &extraction.problems,
        }
    }

    fn render(&self, format: ExtractFormat, extras: &Extras) -> anyhow::Result<String> {
        match self {
            AnyExtraction::Training(extraction) => render(extraction, format, extras.price, extras.is_explained),
            AnyExtraction::Score(extraction) => render_score(extraction, format, extras.published, extras.is_explained),
        }
    }

    /// Returns the suffixes and formats of the files next to the result file.
    pub fn other_files(&self) -> &'static [(&'static str, ExtractFormat)] {
        match self {
            AnyExtraction::Training(_) => &FILES,
            AnyExtraction::Score(_) => &FILES[..2],
        }
    }

    /// Returns the result file, with the hashes of the files next to it.
    pub fn result(&self, files_sha256: BTreeMap<String, String>) -> anyhow::Result<String> {
        match self {
            AnyExtraction::Training(extraction) => result_json::json(extraction, None, files_sha256),
            AnyExtraction::Score(extraction) => ScoreResult { files_sha256, ..ScoreResult::new(extraction) }.text(),
        }
    }

    /// Returns the files for the folder, as names and contents, beginning with the result file.
    fn files(&self, folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let name = name_of(folder)?;
        let file = |(ending, format): &(&str, ExtractFormat)| {
            Ok((format!("{name}{ending}"), self.render(*format, &Extras::default())?))
        };
        let others = self.other_files().iter().map(file).collect::<anyhow::Result<Vec<_>>>()?;
        let hash = |(name, text): &(String, String)| (name.clone(), sha256::of_text(text));
        let result = self.result(others.iter().map(hash).collect())?;
        Ok(std::iter::once((name + RESULT_ENDING, result)).chain(others).collect())
    }

    /// Returns the reasons why figures are unreliable, each sentence once.
    pub fn reliability_warnings(&self) -> Vec<String> {
        let texts = |warnings: Vec<ReliabilityWarning>| reliability::sentences(&warnings);
        let of_group = |group: &Group| (group.label.clone(), texts(group.all_reliability_warnings()));
        let of_table = |table: &ScoreTable| {
            let models = score::figures::models(slice::from_ref(table));
            let models: Vec<String> = models.iter().map(Model::to_string).collect();
            (models.join(", "), texts(table.all_reliability_warnings()))
        };
        once(&match self {
            AnyExtraction::Training(extraction) => extraction.groups.iter().map(of_group).collect::<Vec<_>>(),
            AnyExtraction::Score(extraction) => extraction.groups.iter().map(of_table).collect(),
        })
    }
}

/// Finds and reads every run below `folder` and computes the figures, without printing or writing. `warmup` applies to
/// training only.
fn read_any(folder: &Path, warmup: Option<u32>) -> anyhow::Result<AnyExtraction> {
    AnyExtraction::new(folder, folder::find(folder)?, warmup)
}

/// Reads everything in a folder except traces: runs of a sweep, of bandwidth and of input. Returns an error if there is
/// nothing.
pub fn read_all(folder: &Path, name: String, warmup: Option<u32>) -> anyhow::Result<ResultFolder> {
    let bandwidth = bandwidth::find(folder)?;
    let input = input::find(folder);
    let (command, groups, scoring, shortages, mut problems) = match read_any(folder, warmup) {
        Ok(AnyExtraction::Training(it)) => (it.resume_command, it.groups, Vec::new(), it.shortages, it.problems),
        Ok(AnyExtraction::Score(it)) => (it.resume_command, Vec::new(), it.groups, it.shortages, it.problems),
        Err(error) if error.is::<UsageError>() => return Err(error),
        // A folder of bandwidth or input runs contains no others.
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

/// Finds and reads every training run below `folder` and computes the figures, without printing or writing. Rejects a
/// folder of another benchmark.
pub fn read(folder: &Path, warmup: Option<u32>) -> anyhow::Result<Extraction<Group>> {
    of_training(folder, folder::find(folder)?, warmup)
}

fn of_training(folder: &Path, found: Found, warmup: Option<u32>) -> anyhow::Result<Extraction<Group>> {
    found.check_is_training(folder)?;
    let runs = found.runs.iter().map(|found| Run::read(folder, found, warmup)).collect();
    Ok(figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep))
}

fn of_scoring(folder: &Path, found: Found) -> anyhow::Result<Extraction<ScoreTable>> {
    let runs = found.runs.iter().map(|found| Run::read(folder, found, None)).collect();
    Ok(score::figures::extract(&name_of(folder)?, runs, found.problems, &found.sweep))
}

/// Renders a scoring sweep in one format, including `published` rates of the same networks if requested.
pub fn render_score(
    extraction: &Extraction<ScoreTable>,
    format: ExtractFormat,
    published: bool,
    is_explained: bool,
) -> anyhow::Result<String> {
    let text = |medium| {
        let published = if published { show::score::published::sections(extraction) } else { Vec::new() };
        show::score::text::text(extraction, published, medium)
    };
    match format {
        ExtractFormat::Table => Ok(text(Medium::Terminal { width: WIDTH, is_explained })),
        ExtractFormat::Markdown => Ok(text(Medium::Markdown)),
        ExtractFormat::Json if published => {
            let published = score::published::rates(&score::figures::models(&extraction.groups));
            ScoreResult { published, ..ScoreResult::new(extraction) }.text()
        }
        ExtractFormat::Json => ScoreResult::new(extraction).text(),
        _ if published => Err(usage(anyhow!(
            "--published: --format {format} has no place for what others measured: choose table, markdown or json"
        ))),
        ExtractFormat::Csv => show::score::csv::csv(extraction),
        ExtractFormat::Dlperf | ExtractFormat::PytorchDdp | ExtractFormat::PytorchDdpLines => Err(usage(anyhow!(
            "--format {format} is of training, and {} holds a sweep of scoring: choose table, \
             markdown, json or csv",
            extraction.name
        ))),
    }
}

/// Renders training results in one format, including the cost if there is a price.
pub fn render(
    extraction: &Extraction<Group>,
    format: ExtractFormat,
    price: Option<&Price>,
    is_explained: bool,
) -> anyhow::Result<String> {
    match format {
        ExtractFormat::Table => Ok(text::text(extraction, price, Medium::Terminal { width: WIDTH, is_explained })),
        ExtractFormat::Markdown => Ok(text::text(extraction, price, Medium::Markdown)),
        ExtractFormat::Json => result_json::json(extraction, price, BTreeMap::new()),
        ExtractFormat::Csv => csv::csv(extraction, price),
        _ if price.is_some() => {
            Err(usage(anyhow!("--price: --format {format} has no place for it: choose table, markdown, json or csv")))
        }
        ExtractFormat::Dlperf => dlperf::json(extraction),
        ExtractFormat::PytorchDdp => Ok(serde_json::to_string(&pytorch_ddp::benchmark(extraction)?)? + "\n"),
        ExtractFormat::PytorchDdpLines => Ok(pytorch_ddp::lines(extraction)),
    }
}

/// Returns a sentence for each network, precision and batch size of the sweep in `folder`: the result of its largest
/// case, and the cause of most of the scaling loss. Empty if the files cannot be read.
pub fn conclusions(folder: &Path) -> Vec<String> {
    let Ok(extraction) = read(folder, None) else { return Vec::new() };
    let names = title::distinctions(&extraction.groups.iter().collect::<Vec<_>>());
    let sentence = |(group, name): (&Group, &String)| {
        let name = if name.is_empty() { String::new() } else { format!("{name}, ") };
        Some(format!("{name}{}", conclusion::of_group(group)?))
    };
    let sentences = extraction.groups.iter().zip(&names).filter_map(sentence);
    sentences.map(|sentence| output::strip_control_characters(&sentence)).collect()
}

/// Returns the last component of the path, after resolving paths such as `.` and `results/..`.
pub fn name_of(folder: &Path) -> anyhow::Result<String> {
    let whole = fs::canonicalize(folder).with_context(|| format!("{} cannot be resolved", folder.display()))?;
    let last = whole.file_name().unwrap_or(whole.as_os_str());
    Ok(last.to_string_lossy().into_owned())
}

/// Writes the files of `folder` to `out`, which is created if necessary.
fn write(folder: &Path, out: &Path, extraction: &AnyExtraction) -> anyhow::Result<()> {
    let advice = || format!("cannot write the result into {}: choose another folder by --out", out.display());
    fs::create_dir_all(out).with_context(advice)?;
    let mut written = Vec::new();
    for (name, text) in extraction.files(folder)? {
        let path = out.join(name);
        whole_file::write(&path, |output| Ok(output.write_all(text.as_bytes())?)).with_context(advice)?;
        written.push(path.display().to_string());
    }
    output::print_note(&format!("wrote {}", written.join(", ")));
    Ok(())
}
