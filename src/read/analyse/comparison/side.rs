//! One side of a comparison, whatever it was read from: tables of cases, each with a figure for every run.
//!
//! What lies at a path is told by its content, never by its name. Reading the content is for the rooms beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ringmark_record::files::MODEL;
use ringmark_record::stats::summary::STEP_PERCENTS;
use ringmark_record::units::Seconds;
use ringmark_record::usage::usage;
use ringmark_record::whole_file;
use serde::Serialize;
use serde::de::IgnoredAny;

use crate::read::analyse::comparison::{collectives, pytorch, training};
use crate::read::load::environment::Surroundings;
use crate::read::load::folder;

/// BASE or TEST.
#[derive(Debug)]
pub struct Side {
    /// As it was typed.
    pub path: PathBuf,
    /// Only sides of one kind are compared.
    pub kind: Kind,
    /// Never mixed.
    pub sets: Vec<Set>,
    /// When runs began, as text, which sorts by time.
    pub started: BTreeSet<String>,
    /// What is not in the figures, and why.
    pub left_out: Vec<String>,
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Training, by ringmark or DLPerf.
    Training,
    /// Training, by PyTorch's DDP benchmark.
    PytorchDdp,
    /// All-reduce and the like alone, by `ringmark bandwidth` or nccl-tests.
    Collectives,
}

impl Kind {
    /// In a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Training => "training runs of ringmark or DLPerf",
            Kind::PytorchDdp => "PyTorch's DDP benchmark",
            Kind::Collectives => "collectives alone (ringmark bandwidth, nccl-tests)",
        }
    }

    /// Of the throughput.
    pub fn unit(self) -> &'static str {
        match self {
            Kind::Training | Kind::PytorchDdp => "images/s",
            Kind::Collectives => "GB/s",
        }
    }
}

/// Cases of equal conditions.
#[derive(Debug, Default)]
pub struct Set {
    /// What was measured, where there can be several: tables of different names are never compared.
    pub name: String,
    /// What must be equal to be compared, unless that is forced; a value may be unknown.
    pub must: Vec<Must>,
    /// Options. Which of several tables of one name is meant is told by them.
    pub settings: BTreeMap<String, String>,
    /// Those that tell it from others of its side, for its title.
    pub apart: Vec<String>,
    /// In the order in which they are shown.
    pub cases: Vec<Case>,
}

/// What it is, and its value; `None` where it is in nobody's way that it is not known.
pub type Must = (&'static str, Option<String>);

/// Value that differs from every known one.
pub const NOT_KNOWN: &str = "not known";

/// What is compared with its namesake.
#[derive(Debug, Default)]
pub struct Case {
    /// `1n2g`, `2 ranks`, `1048576 in-place`.
    pub name: String,
    /// That count.
    pub runs: Vec<RunFigures>,
    /// What its runs ran on and with; empty where that is not known.
    pub surroundings: Surroundings,
    /// What was seen in its runs.
    pub warnings: Vec<String>,
}

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFigures {
    /// Work over time, in the unit of its kind.
    pub throughput: f64,
    /// Mean time of an iteration.
    pub mean: Seconds,
    /// Of its iteration times, in seconds; `None` where only the mean is known.
    pub percentiles: Option<[f64; STEP_PERCENTS.len()]>,
}

/// What differs, with both values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// An option, a variable, a version.
    pub name: String,
    /// Of BASE.
    pub base: String,
    /// Of TEST.
    pub test: String,
}

impl Side {
    /// Of nothing yet.
    pub fn new(path: &Path, kind: Kind) -> Side {
        Side { path: path.to_owned(), kind, sets: Vec::new(), started: BTreeSet::new(), left_out: Vec::new() }
    }

    /// The table of these conditions, made where there is none.
    pub fn set(&mut self, like: Set) -> &mut Set {
        let is_like = |set: &Set| (&set.name, &set.must, &set.settings) == (&like.name, &like.must, &like.settings);
        let place = self.sets.iter().position(is_like).unwrap_or_else(|| {
            self.sets.push(like);
            self.sets.len() - 1
        });
        &mut self.sets[place]
    }

    /// Tables of one title get the settings into it that tell them apart.
    fn tell_apart(&mut self) {
        let apart = |set: &Set| {
            let others = || self.sets.iter().filter(|other| other.title() == set.title());
            let differs = |name: &String, value: &String| others().any(|other| other.settings.get(name) != Some(value));
            let settings = set.settings.iter().filter(|(name, value)| differs(name, value));
            settings.map(|(name, value)| format!("{name} {value}")).collect()
        };
        let all: Vec<Vec<String>> = self.sets.iter().map(apart).collect();
        self.sets.iter_mut().zip(all).for_each(|(set, apart)| set.apart = apart);
    }

    /// Takes in the runs of another part of the same side.
    fn absorb(&mut self, part: Side) {
        for set in part.sets {
            let like = Set { name: set.name, must: set.must, settings: set.settings, ..Set::default() };
            let known = self.set(like);
            for case in set.cases {
                let known = known.case(&case.name);
                known.runs.extend(case.runs);
                known.warnings.extend(case.warnings);
                for (name, words) in case.surroundings {
                    known.surroundings.entry(name).or_default().extend(words);
                }
            }
        }
        self.started.extend(part.started);
        self.left_out.extend(part.left_out);
    }

    /// Runs of its case that has most.
    pub fn runs(&self) -> usize {
        self.sets.iter().flat_map(|set| &set.cases).map(|case| case.runs.len()).max().unwrap_or_default()
    }
}

impl RunFigures {
    /// `None` where a time is none.
    pub fn of(throughput: f64, mean: Seconds, percentiles: Option<[f64; STEP_PERCENTS.len()]>) -> Option<RunFigures> {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        let times = [mean.0].into_iter().chain(percentiles.into_iter().flatten()).all(|time| is_time(&time));
        (times && throughput.is_finite()).then_some(RunFigures { throughput, mean, percentiles })
    }
}

impl Set {
    /// Name and conditions, as a heading.
    pub fn title(&self) -> String {
        let values = self.must.iter().filter_map(|(what, value)| {
            let value = value.as_ref().filter(|value| *value != NOT_KNOWN)?;
            Some(match *what {
                "precision" | "device" | "element type" => value.clone(),
                what => format!("{what} {value}"),
            })
        });
        let name = Some(self.name.clone()).filter(|name| !name.is_empty());
        name.into_iter().chain(values).chain(self.apart.clone()).collect::<Vec<_>>().join(", ")
    }

    /// The case of this name, made where there is none.
    pub fn case(&mut self, name: &str) -> &mut Case {
        let place = self.cases.iter().position(|case| case.name == name).unwrap_or_else(|| {
            self.cases.push(Case { name: name.to_owned(), ..Case::default() });
            self.cases.len() - 1
        });
        &mut self.cases[place]
    }
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    /// Of `ringmark extract`.
    Result,
    PytorchDdp,
    Bandwidth,
    NcclTests,
}

impl Content {
    fn words(self) -> &'static str {
        match self {
            Content::Result => "result of ringmark extract",
            Content::PytorchDdp => "JSON of PyTorch's DDP benchmark",
            Content::Bandwidth => "record of ringmark bandwidth",
            Content::NcclTests => "JSON of nccl-tests",
        }
    }
}

/// Reads whatever lies at `path`.
pub fn read(path: &Path) -> anyhow::Result<Side> {
    let metadata = fs::metadata(path)
        .with_context(|| format!("{} cannot be read: give a folder of results or a JSON file", path.display()))
        .map_err(usage)?;
    let mut side = match metadata.is_dir() {
        true => read_folder(path)?,
        false => match content(path).with_context(|| path.display().to_string())? {
            Some(content) => read_files(path, content, &[path.to_owned()], Vec::new())?,
            None => {
                let known = [Content::Result, Content::PytorchDdp, Content::NcclTests, Content::Bandwidth];
                let known = known.map(Content::words).join(", ");
                let what = format!("{} is no {known}: give one, or a folder of them or of logs", path.display());
                return Err(usage(anyhow::Error::msg(what)));
            }
        },
    };
    if side.sets.iter().all(|set| set.cases.is_empty()) {
        let more: String = side.left_out.iter().map(|what| format!("\n  {what}")).collect();
        bail!("{} holds no run that counts{more}", path.display());
    }
    side.tell_apart();
    Ok(side)
}

fn read_folder(path: &Path) -> anyhow::Result<Side> {
    let runs = folder::find(path);
    let mut files: BTreeMap<Content, Vec<PathBuf>> = BTreeMap::new();
    let mut left_out = Vec::new();
    for file in files_below(path, 2) {
        match content(&file) {
            Ok(Some(content)) => files.entry(content).or_default().push(file),
            Ok(None) => {}
            Err(error) => left_out.push(format!("{}: {error:#}", file.display())),
        }
    }
    if runs.is_ok() {
        // Made from the runs; and what a bandwidth command may have written beside them.
        files.remove(&Content::Result);
        files.remove(&Content::Bandwidth);
    }
    let mut found: Vec<String> = files.iter().map(|(content, files)| counted(*content, files)).collect();
    found.splice(0..0, runs.as_ref().ok().map(|found| format!("{} training runs with logs", found.runs.len())));
    if found.len() > 1 {
        return Err(usage(anyhow::Error::msg(format!(
            "{} is a mixture: {}: give one file, or a folder of one kind",
            path.display(),
            found.join("; ")
        ))));
    }
    match (runs, files.pop_first()) {
        (Ok(_), _) => {
            let mut side = training::of_folder(path)?;
            // What is wrong with a record is told with its run.
            let is_other = |what: &String| !what.contains(".jsonl: ");
            side.left_out.extend(left_out.into_iter().filter(is_other));
            Ok(side)
        }
        (Err(_), Some((content, files))) => read_files(path, content, &files, left_out),
        (Err(error), None) => {
            let more: String = left_out.iter().map(|file| format!("\n  {file}")).collect();
            Err(error.context(format!("nothing to compare: no JSON of a benchmark either{more}")))
        }
    }
}

fn counted(content: Content, files: &[PathBuf]) -> String {
    let first = files.first().map(|file| file.display().to_string()).unwrap_or_default();
    match files.len() {
        1 => format!("a {} ({first})", content.words()),
        several => format!("{several} times a {} ({first}, ..)", content.words()),
    }
}

/// Every file is one run, but that of `ringmark extract`, which holds several.
fn read_files(path: &Path, content: Content, files: &[PathBuf], left_out: Vec<String>) -> anyhow::Result<Side> {
    if let (Content::Result, [_, _, ..]) = (content, files) {
        let what = format!("{} holds {}: give one of them", path.display(), counted(content, files));
        return Err(usage(anyhow::Error::msg(what)));
    }
    let kind = match content {
        Content::Result => Kind::Training,
        Content::PytorchDdp => Kind::PytorchDdp,
        Content::Bandwidth | Content::NcclTests => Kind::Collectives,
    };
    let mut side = Side { left_out, ..Side::new(path, kind) };
    for file in files {
        let open = || Ok(BufReader::new(whole_file::open(file)?));
        let mut part = Side::new(path, kind);
        let taken = open().and_then(|input| match content {
            Content::Result => training::take_result(&mut part, input),
            Content::PytorchDdp => pytorch::take(&mut part, input),
            Content::Bandwidth => collectives::take_record(&mut part, file, input),
            Content::NcclTests => collectives::take_nccl_tests(&mut part, file, input),
        });
        match taken.with_context(|| file.display().to_string()) {
            // One of several that is broken takes nothing from the others.
            Err(error) if files.len() > 1 => side.left_out.push(format!("{error:#}")),
            taken => taken.map(|()| side.absorb(part))?,
        }
    }
    Ok(side)
}

/// Files in a folder and so many levels of folders below it, by name; none whose name begins with a point.
fn files_below(folder: &Path, levels: u32) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.retain(|path| !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".")));
    entries.sort();
    let below = |path: PathBuf| match path.is_dir() {
        true if levels > 0 => files_below(&path, levels - 1),
        true => Vec::new(),
        false => vec![path],
    };
    entries.into_iter().flat_map(below).collect()
}

/// What a file is, by the keys of the first JSON object in it; `None` for anything else.
fn content(file: &Path) -> anyhow::Result<Option<Content>> {
    // A pipe could be read only once.
    if !fs::metadata(file)?.is_file() {
        return Ok(None);
    }
    let mut input = BufReader::new(File::open(file)?);
    if input.fill_buf()?.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
        return Ok(None);
    }
    let mut objects = serde_json::Deserializer::from_reader(input).into_iter::<BTreeMap<String, IgnoredAny>>();
    let keys = match objects.next() {
        Some(object) => object.context("not JSON")?,
        None => return Ok(None),
    };
    let has = |key: &str| keys.contains_key(key);
    Ok(if has("benchmark_results") {
        Some(Content::PytorchDdp)
    } else if has("nccl_version") && has("args") {
        Some(Content::NcclTests)
    } else if has("kind") && has("collective") && has("results") {
        Some(Content::Bandwidth)
    } else if !keys.is_empty() && keys.keys().all(|key| key.starts_with(MODEL)) {
        Some(Content::Result)
    } else {
        None
    })
}
