//! `ringmark diff`: comparison of two results. The kind of a path is detected from its content.

use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::file::atomic_file;
use ringmark_core::keyword_enum;
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;
use ringmark_core::stats::comparison::{Thresholds, Verdict};

use crate::output::{self, Json};
use crate::read::analyze::comparison::side::{Side, SideKind};
use crate::read::analyze::comparison::verdicts::ComparedResults;
use crate::read::analyze::comparison::{collectives, pairing, pytorch, training};
use crate::read::analyze::results::SweepGroups;
use crate::read::analyze::score;
use crate::read::analyze::score::result_json::ScoreResult;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::result_json;
use crate::read::benchmark::{READERS, record_side};
use crate::read::load::content::{self, Content, files_below};
use crate::read::load::folder::{self, Found, Reader};
use crate::read::load::formats::nccl_tests::NcclTests;
use crate::read::load::formats::pytorch_ddp::DdpFile;
use crate::read::load::problem::ProblemKind;
use crate::read::results;
use crate::read::show::comparison;
use crate::read::show::text::{Medium, WIDTH};

/// Configuration of `ringmark diff`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffConfig {
    /// Path of the result to compare with.
    pub base: PathBuf,
    /// Path of the result to compare.
    pub test: PathBuf,
    /// Limits for significant differences.
    pub thresholds: Thresholds,
    /// True if conditions that must be equal may differ.
    pub force: bool,
    /// True if equal settings are listed too.
    pub all_keys: bool,
    /// Price of training per hour.
    pub price: Option<Price>,
    /// Findings that make the exit status 1, in addition to errors.
    pub fail_on: Vec<FailOn>,
    /// Format of the printed comparison.
    pub format: DiffFormat,
    /// True if the figures are explained.
    pub is_explained: bool,
    /// Destination of the JSON output.
    pub json: Json,
}

impl DiffConfig {
    /// Compares two results with the default settings, and prints a table.
    pub fn new(base: PathBuf, test: PathBuf) -> DiffConfig {
        DiffConfig {
            base,
            test,
            thresholds: Thresholds::default(),
            force: false,
            all_keys: false,
            price: None,
            fail_on: Vec::new(),
            format: DiffFormat::Table,
            is_explained: false,
            json: Json::default(),
        }
    }
}

keyword_enum!(
    /// Finding that makes the exit status 1 although everything was compared.
    FailOn {
        /// A case is slower.
        Slower = "slower",
        /// The runs of a case vary too much for a verdict.
        Noisy = "noisy",
        /// A case of BASE is missing in TEST.
        Missing = "missing",
        /// The figures of a case are unreliable, on either side.
        Unreliable = "unreliable" | "unquotable",
    }
);

keyword_enum!(
    /// Output format of `ringmark diff`.
    DiffFormat {
        /// Aligned columns for a terminal.
        Table = "table",
        /// Markdown, for a pull request.
        Markdown = "markdown" | "md",
    }
);

/// Compares and prints both sides. After printing, returns an error if a side is incomplete or if there is a finding
/// that the exit status reports.
pub fn run(config: &DiffConfig) -> anyhow::Result<()> {
    config.json.check(&inputs(config).iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
    for path in [&config.base, &config.test] {
        fs::metadata(path).map_err(|error| usage(folder::unreadable(path, error)))?;
    }
    let base = read_side(&config.base).context("BASE")?;
    let test = read_side(&config.test).context("TEST")?;
    let pairing = pairing::pair([&base, &test], config.force)?;
    let outcome = ComparedResults::new([&base, &test], pairing, config.thresholds, config.price.as_ref());
    let outcome = if config.all_keys { outcome } else { outcome.without_conditions() };

    if !config.json.write(&outcome)? {
        output::print(&match config.format {
            DiffFormat::Table => {
                comparison::text(&outcome, Medium::Terminal { width: WIDTH, is_explained: config.is_explained })
            }
            DiffFormat::Markdown => comparison::text(&outcome, Medium::Markdown),
        })?;
    }
    let sides = [("BASE", &outcome.base), ("TEST", &outcome.test)];
    let left_out = sides.into_iter().flat_map(|(name, side)| side.left_out.iter().map(move |what| (name, what)));
    let left_out = left_out.map(|(name, what)| format!("not compared, {name}: {what}"));
    let incomplete = output::check_complete("the comparison is", left_out).err();
    let mut failures = failures(&outcome, &config.fail_on);
    failures.extend(incomplete.map(|error| error.to_string()));
    ensure!(failures.is_empty(), "{}", failures.join("; "));
    Ok(())
}

/// Returns the files that are read in addition to those of sweeps: the sides themselves, or the benchmark results in
/// their folders.
fn inputs(config: &DiffConfig) -> Vec<PathBuf> {
    let is_read = |file: &PathBuf| content_of(file).is_ok_and(|content| content.is_some());
    let of_side = |side: &PathBuf| match side.is_dir() {
        true => files_below(side, 2).into_iter().filter(is_read).collect(),
        false => vec![side.clone()],
    };
    match &config.json {
        Json::File(path) if path.exists() => [&config.base, &config.test].into_iter().flat_map(of_side).collect(),
        _ => Vec::new(),
    }
}

/// Returns the findings that the exit status reports.
fn failures(outcome: &ComparedResults, fail_on: &[FailOn]) -> Vec<String> {
    let of = |verdict: Verdict| {
        let cases =
            outcome.cases().filter(|(_, case)| case.verdict == verdict).map(|(table, case)| outcome.name(table, case));
        cases.collect::<Vec<_>>().join(", ")
    };
    let unreliable = || {
        let cases = outcome.cases().filter(|(_, case)| !case.is_reliable());
        cases.map(|(table, case)| outcome.name(table, case)).collect::<Vec<_>>().join(", ")
    };
    let requested = |what: FailOn| {
        let (what, cases) = match what {
            FailOn::Unreliable => ("unreliable", unreliable()),
            FailOn::Slower => ("slower", of(Verdict::Slower)),
            FailOn::Noisy => ("too noisy", of(Verdict::TooNoisy)),
            FailOn::Missing => ("not in TEST", outcome.only_in_base.join(", ")),
        };
        (!cases.is_empty()).then(|| format!("{what}: {cases}"))
    };
    fail_on.iter().filter_map(|what| requested(*what)).collect()
}

/// Returns the type of a file that can be compared; `None` for any other.
fn content_of(file: &Path) -> anyhow::Result<Option<Content>> {
    let is_compared = |content: &Content| match content {
        Content::Record(benchmark) => record_side(*benchmark).is_ok(),
        _ => true,
    };
    Ok(content::content_of(file)?.filter(is_compared))
}

/// Reads a side of any kind from `path`.
fn read_side(path: &Path) -> anyhow::Result<Side> {
    let mut side = match path.is_dir() {
        true => read_folder(path)?,
        false => match content_of(path).with_context(|| path.display().to_string())? {
            Some(content) => read_files(path, content, &[path.to_owned()], Vec::new())?,
            None => {
                let known = [Content::Result, Content::ScoreResult, Content::PytorchDdp, Content::NcclTests];
                let records = READERS.iter().filter(|reader| reader.side.is_some());
                let records = records.map(|reader| Content::Record(reader.benchmark));
                let known = known.into_iter().chain(records).map(Content::text).collect::<Vec<_>>().join(", ");
                let what = format!("{} is not a {known}: pass one, or a folder of them or of logs", path.display());
                return Err(usage(anyhow::Error::msg(what)));
            }
        },
    };
    if side.groups.iter().all(|group| group.cases.is_empty()) {
        let more: String = side.left_out.iter().map(|what| format!("\n  {what}")).collect();
        bail!("{} contains no run that counts{more}", path.display());
    }
    side.make_titles_unique();
    Ok(side)
}

fn read_folder(path: &Path) -> anyhow::Result<Side> {
    let runs = folder::find(path, Reader::Extract);
    let benchmark = runs.as_ref().ok().map(|found| found.benchmark(path)).transpose()?;
    let mut files: BTreeMap<Content, Vec<PathBuf>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for file in files_below(path, 2) {
        match content_of(&file) {
            Ok(Some(content)) => files.entry(content).or_default().push(file),
            Ok(None) => {}
            // Problems of a run's record are reported with the run.
            Err(_) if runs.as_ref().is_ok_and(|found| found.has_record(path, &file)) => {}
            Err(error) => left_out.push(format!("{}: {error:#}", file.display())),
        }
    }
    if runs.is_ok() {
        // These files are derived from the runs, or written next to them by another command.
        files.retain(|content, _| matches!(content, Content::PytorchDdp | Content::NcclTests));
    }
    let mut found: Vec<String> = files.iter().map(|(content, files)| counted(*content, files)).collect();
    let what = if benchmark == Some(BenchmarkKind::Score) { "inference" } else { "training" };
    found.splice(0..0, runs.as_ref().ok().map(|found| format!("{} {what} runs with logs", found.runs.len())));
    if found.len() > 1 {
        return Err(usage(anyhow::Error::msg(format!(
            "{} mixes file types: {}: pass one file, or a folder of one kind",
            path.display(),
            found.join("; ")
        ))));
    }
    match (runs, files.pop_first()) {
        (Ok(found), _) => {
            let mut side = read_runs(path, found)?;
            side.left_out.extend(left_out);
            Ok(side)
        }
        (Err(_), Some((content, files))) => read_files(path, content, &files, left_out),
        (Err(error), None) => {
            let more: String = left_out.iter().map(|file| format!("\n  {file}")).collect();
            Err(usage(anyhow::anyhow!("{error:#}; it contains no benchmark JSON either{more}")))
        }
    }
}

/// Reads every run of a folder, as `ringmark extract` does.
fn read_runs(folder: &Path, found: Found) -> anyhow::Result<Side> {
    let result = results::read_sweep(folder, found, None)?;
    let mut side;
    match &result.sweep {
        SweepGroups::Training(groups) => {
            side = Side::new(folder, SideKind::Training);
            training::add_rows(&mut side, result_json::rows(groups, None))?;
            // No speedup is shown, so a missing 1n1g is not a problem.
            let problems = result.problems.iter().filter(|problem| problem.kind != ProblemKind::MissingBase);
            side.left_out = problems.map(|problem| format!("{}/{problem}", folder.display())).collect();
        }
        SweepGroups::Score(_) => {
            side = Side::new(folder, SideKind::Score);
            score::side::add_result(&mut side, ScoreResult::new(&result))?;
        }
    }
    Ok(side)
}

fn counted(content: Content, files: &[PathBuf]) -> String {
    let first = files.first().map(|file| file.display().to_string()).unwrap_or_default();
    let text = content.text();
    let (noun, program) = text.split_once(" of ").unwrap_or((&text, ""));
    let more = if files.len() > 1 { ", .." } else { "" };
    format!("{} of {program} ({first}{more})", count(files.len(), noun))
}

/// Reads files of which each is one run, except results of `ringmark extract`, which contain several.
fn read_files(path: &Path, content: Content, files: &[PathBuf], left_out: Vec<String>) -> anyhow::Result<Side> {
    if let (Content::Result | Content::ScoreResult, [_, _, ..]) = (content, files) {
        let what = format!("{} contains {}: pass one of them", path.display(), counted(content, files));
        return Err(usage(anyhow::Error::msg(what)));
    }
    let kind = match content {
        Content::Result => SideKind::Training,
        Content::ScoreResult => SideKind::Score,
        Content::PytorchDdp => SideKind::PytorchDdp,
        Content::NcclTests => SideKind::Collectives,
        Content::Record(benchmark) => record_side(benchmark)?.kind,
    };
    let mut side = Side { left_out, ..Side::new(path, kind) };
    for file in files {
        let open = || Ok(BufReader::new(atomic_file::open(file)?));
        let mut part = Side::new(path, kind);
        let taken = open().and_then(|input| match content {
            Content::Result => training::add_rows(&mut part, result_json::read_rows(input)?),
            Content::ScoreResult => score::side::add_result(&mut part, ScoreResult::read(input)?),
            Content::PytorchDdp => pytorch::add(&mut part, &DdpFile::read(input)?),
            Content::Record(benchmark) => (record_side(benchmark)?.add)(&mut part, file, input),
            Content::NcclTests => collectives::add_nccl_tests(&mut part, file, &NcclTests::read(input)?),
        });
        match taken.with_context(|| file.display().to_string()) {
            // A damaged file does not prevent the use of the others.
            Err(error) if files.len() > 1 => side.left_out.push(format!("{error:#}")),
            taken => taken.map(|()| side.merge(part))?,
        }
    }
    Ok(side)
}
