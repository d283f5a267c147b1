//! Runs in a folder, found by file name and manifest. Files that look like a log but are not a run become a
//! [`Problem`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use ringmark_core::benchmark::{BenchmarkKind, RECORDS, RecordFormat};
use ringmark_core::dimension::{BatchShape, BatchSize, Case, DeviceChoice, Dtype, KvStore, Model};
use ringmark_core::file::run_name::{BASELINE, MANIFEST, RunName};
use ringmark_core::host::MemoryShortage;
use ringmark_core::keyword_enum;
use ringmark_core::manifest::{Manifest, RunState};
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;
use ringmark_core::shell;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::load::content::{benchmark_of, files_below, model_of};
use crate::read::load::problem::Problem;

/// Returns the naming pattern of logs, with an example.
fn pattern() -> String {
    let example = RunName {
        baseline: false,
        case: Case::SINGLE,
        model: Model::default(),
        batch: BatchShape::of_images(128),
        dtype: Dtype::Fp32,
        kv_store: KvStore::Ring,
        run: 1,
    };
    format!("<case>/<model>_b<batch>_<dtype>_<run>.log, for example {example}")
}

/// A log whose name identifies its run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    /// Run parsed from the path.
    pub name: RunName,
    /// Path of the log relative to the folder.
    pub log: PathBuf,
}

/// A batch size that does not fit into memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shortage {
    /// Network.
    pub model: Model,
    /// Precision.
    pub dtype: Dtype,
    /// Kv-store; absent for `ring`.
    #[serde(default = "KvStore::ring", skip_serializing_if = "KvStore::is_ring")]
    pub kv_store: KvStore,
    /// Nodes, and ranks per node.
    pub case: Case,
    /// True for a baseline run, whose ranks do not communicate.
    pub is_baseline: bool,
    /// Images or sequences per rank, or of all ranks if `is_global`.
    pub batch_size: u32,
    /// Batch size that was tried: this one or a smaller one.
    pub tried_batch_size: u32,
    /// True if the batch sizes are those of all ranks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_global: bool,
    /// Tokens of a sequence; absent for images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u32>,
    /// Memory of the device.
    pub memory: MemoryShortage,
}

impl Shortage {
    /// Returns the batch that does not fit.
    pub fn batch(&self) -> BatchShape {
        let size = if self.is_global { BatchSize::Global } else { BatchSize::PerRank };
        BatchShape { size: size(self.batch_size), sequence_length: self.sequence_length }
    }

    /// Returns the batch that was tried.
    pub fn tried_batch(&self) -> BatchShape {
        let batch = self.batch();
        BatchShape { size: batch.size.with_number(self.tried_batch_size), ..batch }
    }
}

impl fmt::Display for Shortage {
    /// `ResNet-18, fp32, 1n1g: out of memory at batch 512: 1.4 of 1.5 GB`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortage { model, dtype, kv_store, case, is_baseline, .. } = self;
        let kv_store = if kv_store.is_ring() { String::new() } else { format!(", {kv_store}") };
        let baseline = if *is_baseline { " baseline" } else { "" };
        let reason = self.memory.at_batch(self.tried_batch());
        write!(formatter, "{}, {dtype}{kv_store}, {case}{baseline}: {reason}", model.facts().title)
    }
}

/// Facts about the whole sweep from its manifest; empty if there is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SweepFacts {
    /// Command line that resumes the sweep.
    pub resume_command: Option<String>,
    /// Requested device; `None` if the worker chose it.
    pub device: Option<DeviceChoice>,
    /// Batch sizes that do not fit into memory, without duplicates.
    pub shortages: Vec<Shortage>,
    /// True if the sweep did not include 1n1g.
    pub is_without_single: bool,
}

/// Contents of a folder.
#[derive(Debug, Default)]
pub struct Found {
    /// Runs in the order of their paths.
    pub runs: Vec<FoundRun>,
    /// Logs that are not runs, records without a log, unreadable folders, and planned runs that are missing.
    pub problems: Vec<Problem>,
    /// Facts from the manifest.
    pub sweep: SweepFacts,
    /// Benchmarks found, each with the first file that names it.
    measured: BTreeMap<BenchmarkKind, PathBuf>,
}

keyword_enum!(
    /// Command that reads a folder; the error for a folder of several results suggests it for each of them.
    Reader {
        /// Also for `ringmark diff` and `ringmark input`, which need more than a folder.
        Extract = "extract",
        /// `ringmark report`.
        Report = "report",
        /// `ringmark check`.
        Check = "check",
        /// `ringmark predict`.
        Predict = "predict",
    }
);

/// Finds `<case>/<model>_b<batch>_<dtype>_<run>.log` below `root` and below its folder of baselines. Fails if there is
/// no run at all.
pub fn find(root: &Path, reader: Reader) -> anyhow::Result<Found> {
    let mut found = scan(root)?;
    found.remove_duplicate_logs();
    found.find_benchmarks(root);
    found.apply_manifest(root);
    if found.runs.is_empty() && found.has_manifest() {
        let shortages = found.sweep.shortages.iter().map(Shortage::to_string);
        let lines = shortages.chain(found.problems.iter().map(Problem::to_string));
        let lines: String = lines.map(|line| format!("\n  {line}")).collect();
        let reason = if lines.is_empty() { format!(" its {MANIFEST} lists none") } else { lines };
        bail!("{} contains no run that counts:{reason}", root.display());
    }
    if found.runs.is_empty() {
        bail!("{} contains no runs: looked for {}{}", root.display(), pattern(), hint(root, &found.problems, reader));
    }
    Ok(found)
}

fn scan(root: &Path) -> anyhow::Result<Found> {
    check_is_folder(root).map_err(usage)?;
    let mut found = Found::default();
    let paths = entries(root).with_context(|| format!("{} cannot be read", root.display()))?;
    let baselines = root.join(BASELINE);
    for path in &paths {
        if *path == baselines
            && let Ok(below) = entries(path)
        {
            below.iter().for_each(|path| found.add_path(root, path));
        } else {
            found.add_path(root, path);
        }
    }
    Ok(found)
}

/// Returns every log below `root` whose name identifies a run, whether the run counts or not.
pub fn logs(root: &Path) -> anyhow::Result<Vec<FoundRun>> {
    Ok(scan(root)?.runs)
}

/// Returns the error for a folder that cannot be read.
pub fn unreadable(root: &Path, error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => anyhow!("folder not found: {}: pass the folder that a sweep wrote", root.display()),
        _ => anyhow!(error).context(format!("{} cannot be read: pass the folder that a sweep wrote", root.display())),
    }
}

fn check_is_folder(root: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(root).map_err(|error| unreadable(root, error))?;
    ensure!(metadata.is_dir(), "{} is a file: pass the folder with {}", root.display(), pattern());
    Ok(())
}

impl Found {
    /// Adds a file, or the files in a folder.
    fn add_path(&mut self, root: &Path, path: &Path) {
        if !path.is_dir() {
            return self.add_file(root, path);
        }
        match entries(path) {
            Ok(files) => files.iter().for_each(|file| self.add_file(root, file)),
            Err(error) => self.problems.push(Problem::in_file(
                below(root, path),
                format!("the folder cannot be read: {error}: change its permissions"),
            )),
        }
    }

    /// Adds one file to the runs or the problems, or ignores it.
    fn add_file(&mut self, root: &Path, file: &Path) {
        let path = below(root, file);
        // Parsed relative to the root, so that a log directly in a root named 1n1g is not mistaken for a run.
        let name = RunName::parse(&path);
        match (file.extension().and_then(OsStr::to_str), name) {
            (Some("log"), Some(name)) => self.runs.push(FoundRun { name, log: path }),
            // Written by another benchmark, which may share a folder with a sweep.
            (Some("log"), None) if RECORDS.iter().any(|format| format.has_file(&path)) => {}
            (Some("log"), None) if in_case(&path) || is_named_like_a_run(&path) => {
                self.problems.push(Problem::in_file(path, format!("not a run name: expected {}", pattern())));
            }
            (Some("jsonl"), Some(_)) if !file.with_extension("log").exists() => {
                self.problems.push(Problem::in_file(path, "record without a log: repeat the run"));
            }
            _ => {}
        }
    }

    /// Keeps one log per run: run numbers `1` and `01` name the same run, and the first log by path wins.
    fn remove_duplicate_logs(&mut self) {
        let mut first: HashMap<RunName, PathBuf> = HashMap::new();
        let problems = &mut self.problems;
        self.runs.retain(|run| match first.get(&run.name) {
            None => first.insert(run.name, run.log.clone()).is_none(),
            Some(other) => {
                let what = format!("names the same run as {}: assign it another run number", other.display());
                problems.push(Problem::in_file(&run.log, what));
                false
            }
        });
    }
}

impl Found {
    /// Returns true if `file` is the record of one of the runs in `root`, or of a run that a problem excludes.
    pub fn has_record(&self, root: &Path, file: &Path) -> bool {
        let problems = self.problems.iter().map(|problem| &problem.path);
        self.runs
            .iter()
            .map(|run| &run.log)
            .chain(problems)
            .any(|path| root.join(path).with_extension("jsonl") == *file)
    }

    /// Returns the benchmark of these runs; training if no record and no manifest names one, as with DLPerf's logs.
    /// Fails if the folder mixes benchmarks.
    pub fn benchmark(&self, root: &Path) -> anyhow::Result<BenchmarkKind> {
        if self.measured.len() > 1 {
            let each = self.measured.iter().map(|(kind, file)| format!("runs of {kind} ({})", file.display()));
            return Err(usage(anyhow!(
                "{} mixes benchmarks: {}: use one folder per benchmark",
                root.display(),
                each.collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(self.measured.keys().next().copied().unwrap_or(BenchmarkKind::Train))
    }

    /// Notes the benchmarks of the records next to the logs.
    fn find_benchmarks(&mut self, root: &Path) {
        for run in &self.runs {
            let record = run.log.with_extension("jsonl");
            if let Some(benchmark) = benchmark_of(&root.join(&record)) {
                self.measured.entry(benchmark).or_insert(record);
            }
        }
    }

    /// Returns true if a readable manifest was found.
    fn has_manifest(&self) -> bool {
        self.sweep.resume_command.is_some()
    }

    /// Compares the runs with the sweep's manifest, if there is one. Runs that changed since the sweep wrote them, and
    /// runs that the sweep did not write, do not count.
    fn apply_manifest(&mut self, root: &Path) {
        let manifest = match Manifest::find(root) {
            Ok(None) => return,
            Ok(Some(manifest)) => manifest,
            Err(error) => {
                // Skips the path, which the problem contains already.
                let what: Vec<String> = error.chain().skip(1).map(ToString::to_string).collect();
                let remedy = "restore the file from a copy; without it runs cannot be checked, and the sweep cannot be \
                              resumed";
                return self.problems.push(Problem::in_file(MANIFEST, format!("{}: {remedy}", what.join(": "))));
            }
        };
        self.measured.entry(manifest.benchmark).or_insert(MANIFEST.into());
        let command = shell::join(with_out_folder(&manifest.command, root));
        let there: HashSet<RunName> = self.runs.iter().map(|run| run.name).collect();
        let mut counts = HashSet::new();
        let mut shortages = Vec::new();
        let mut missing = 0;
        // Runs without a log, by reason.
        let mut without_log: Vec<(String, Vec<RunName>)> = Vec::new();
        for run in &manifest.runs {
            let has_log = there.contains(&run.name);
            let change = run.change(root).filter(|_| has_log);
            if run.state != RunState::Finished
                && let Some((tried, memory)) = manifest.shortage(run.name)
            {
                let RunName { model, dtype, kv_store, case, baseline: is_baseline, batch, .. } = run.name;
                let shortage = Shortage {
                    model,
                    dtype,
                    kv_store,
                    case,
                    is_baseline,
                    batch_size: batch.size.number(),
                    tried_batch_size: tried.size.number(),
                    is_global: matches!(batch.size, BatchSize::Global(_)),
                    sequence_length: batch.sequence_length,
                    memory,
                };
                if !shortages.contains(&shortage) {
                    shortages.push(shortage);
                }
                continue;
            }
            let what = match &run.state {
                RunState::Finished if has_log && change.is_none() => {
                    counts.insert(run.name);
                    continue;
                }
                RunState::Planned => "not yet run".to_owned(),
                RunState::Running { .. } => "running or interrupted".to_owned(),
                RunState::Failed { reason } => format!("the run failed: {reason}"),
                RunState::Finished => "finished, but its log is missing".to_owned(),
                RunState::OutOfMemory { memory } => memory.at_batch(run.name.batch),
            };
            missing += 1;
            if let Some((file, what)) = change {
                self.problems.push(Problem::in_file(below(root, &file), what));
            } else if !has_log {
                match without_log.iter_mut().find(|(known, _)| *known == what) {
                    Some((_, runs)) => runs.push(run.name),
                    None => without_log.push((what, vec![run.name])),
                }
            } else {
                // The log explains the failure in more detail.
                counts.insert(run.name);
            }
        }
        let known: HashSet<RunName> = manifest.runs.iter().map(|run| run.name).collect();
        for run in self.runs.iter().filter(|run| !known.contains(&run.name)) {
            self.problems.push(unlisted_run(run));
        }
        self.runs.retain(|run| counts.contains(&run.name));
        if missing > 0 {
            let runs = format!("{} {}", count(missing, "run"), if missing == 1 { "is" } else { "are" });
            let reasons: Vec<String> =
                without_log.iter().map(|(what, runs)| format!("{what}: {}", listed(runs))).collect();
            let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            self.problems.push(Problem::in_file(MANIFEST, format!("{runs} missing{reasons}: resume with: {command}")));
        }
        let device = manifest.conditions.options.get("--device").and_then(|device| device.parse().ok());
        self.sweep = SweepFacts {
            resume_command: Some(command),
            device: device.filter(|device| *device != DeviceChoice::Auto),
            shortages,
            is_without_single: manifest.runs.iter().all(|run| run.name.case != Case::SINGLE),
        };
    }
}

/// Maximum number of missing runs that a message lists.
const MAX_LISTED: usize = 4;

/// Lists runs: `1n1g/rn50_b4_fp32_2.log, 1n2g/rn50_b4_fp32_1.log and 3 more`.
fn listed(runs: &[RunName]) -> String {
    let names: Vec<String> = runs.iter().take(MAX_LISTED).map(RunName::to_string).collect();
    let more = runs.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.join(", ") + &more
}

/// Returns the error of a command that reads training, for runs of another benchmark.
pub fn not_training(root: &Path, benchmark: BenchmarkKind) -> anyhow::Error {
    usage(anyhow!(
        "{} contains a {benchmark} sweep, but this command reads training: `ringmark extract {path}` reads it, `ringmark \
         report {path}` shows it, `ringmark diff` compares two",
        root.display(),
        path = shell::quote(&root.display().to_string())
    ))
}

/// Returns the last component of the path, after resolving paths such as `.` and `results/..`.
pub fn name_of(folder: &Path) -> anyhow::Result<String> {
    let whole = fs::canonicalize(folder).with_context(|| format!("{} cannot be resolved", folder.display()))?;
    let last = whole.file_name().unwrap_or(whole.as_os_str());
    Ok(last.to_string_lossy().into_owned())
}

/// Returns the resume command for the sweep in `root`, even if the folder was moved or copied.
fn with_out_folder(command: &[String], root: &Path) -> Vec<String> {
    let is_root = |out: &str| fs::canonicalize(out).ok() == fs::canonicalize(root).ok();
    let out = || root.display().to_string();
    let mut is_value = false;
    let word = |word: &String| match (std::mem::replace(&mut is_value, word == "--out"), word.strip_prefix("--out=")) {
        (true, _) if !is_root(word) => out(),
        (false, Some(typed)) if !is_root(typed) => format!("--out={}", out()),
        _ => word.clone(),
    };
    command.iter().map(word).collect()
}

/// Returns the problem for a run that the sweep in its folder did not write.
pub fn unlisted_run(run: &FoundRun) -> Problem {
    Problem::in_file(&run.log, "not written by the sweep in this folder: move it to another folder")
}

/// Returns the sorted paths in a folder, with plain run numbers (`_1`) before those with leading zeros (`_01`).
fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    paths.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
    Ok(paths)
}

fn below(root: &Path, path: &Path) -> PathBuf {
    path.strip_prefix(root).unwrap_or(path).to_owned()
}

fn is_case(folder: &Path) -> bool {
    folder.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<Case>().is_ok())
}

fn in_case(file: &Path) -> bool {
    file.parent().is_some_and(is_case)
}

fn is_named_like_a_run(file: &Path) -> bool {
    file.file_name().and_then(OsStr::to_str).is_some_and(|name| model_of(name).is_some())
}

/// Maximum number of result folders that a message lists.
const MAX_RESULTS: usize = 16;

/// Levels of subfolders in which results are looked for.
const RESULT_LEVELS: u32 = 2;

/// Lists commands that read the results below a folder, one per line: `reader` for results that it reads. `None` without
/// results.
fn commands_for_results_below(root: &Path, reader: Reader) -> Option<String> {
    let all = results_below(root, RESULT_LEVELS);
    let line = |(benchmark, folder): &(BenchmarkKind, PathBuf)| {
        let command = match (benchmark, reader) {
            (BenchmarkKind::Score, Reader::Predict) => Reader::Extract,
            (BenchmarkKind::Train | BenchmarkKind::Score, _) => reader,
            _ => Reader::Report,
        };
        format!("\n  ringmark {command} {}", shell::quote(&folder.display().to_string()))
    };
    let lines: String = all.iter().take(MAX_RESULTS).map(line).collect();
    let more = all.len().saturating_sub(MAX_RESULTS);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    (!all.is_empty()).then_some(lines + &more)
}

/// Returns the folders with results below a folder, sorted, each with its benchmark.
fn results_below(root: &Path, levels: u32) -> Vec<(BenchmarkKind, PathBuf)> {
    let mut folders: Vec<PathBuf> =
        entries(root).unwrap_or_default().into_iter().filter(|path| path.is_dir() && !is_case(path)).collect();
    folders.sort();
    let of_folder = |folder: PathBuf| {
        let holds_cases = entries(&folder).is_ok_and(|paths| paths.iter().any(|path| is_case(path)));
        if holds_cases
            && let Ok(mut found) = scan(&folder)
            && !found.runs.is_empty()
        {
            found.find_benchmarks(&folder);
            vec![(found.benchmark(&folder).unwrap_or(BenchmarkKind::Train), folder)]
        } else if let Some(format) = record_below(&folder, RecordFormat::has_file) {
            vec![(format.benchmark, folder)]
        } else if levels > 1 {
            results_below(&folder, levels - 1)
        } else {
            Vec::new()
        }
    };
    folders.into_iter().flat_map(of_folder).collect()
}

/// Returns the format of the first benchmark without sweeps that has files in a folder by this rule.
fn record_below(root: &Path, is_of: impl Fn(&RecordFormat, &Path) -> bool) -> Option<&'static RecordFormat> {
    let files: Vec<PathBuf> = files_below(root, 1).iter().map(|file| below(root, file)).collect();
    RECORDS.iter().find(|format| files.iter().any(|file| is_of(format, file)))
}

/// Suggests the intended folder if this one contains no runs.
fn hint(root: &Path, problems: &[Problem], reader: Reader) -> String {
    if fs::canonicalize(root).is_ok_and(|root| is_case(&root)) {
        return "; this is the folder of one case: pass its parent folder".to_owned();
    }
    if let Some(commands) = commands_for_results_below(root, reader) {
        return format!("; results are in its subfolders:{commands}");
    }
    let has_name = |format: &RecordFormat, file: &Path| format.folder.as_ref().is_some_and(|it| (it.has_name)(file));
    if let Some(folder) = record_below(root, has_name).and_then(|format| format.folder.as_ref()) {
        return format!("; it contains {}", folder.description);
    }
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}
