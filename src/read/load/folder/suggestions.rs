//! Suggestions for a folder without runs: commands that read the results in its subfolders.

use std::fs;
use std::path::{Path, PathBuf};

use ringmark_core::accept::{JOURNAL, journal};
use ringmark_core::benchmark::{BenchmarkKind, RECORDS, RecordFormat};
use ringmark_core::file::schema::kind_of;
use ringmark_core::goodput::{self, GOODPUT};
use ringmark_core::keyword_enum;
use ringmark_core::shell;

use crate::read::load::content::files_below;
use crate::read::load::folder::found::{below, entries, is_case, scan};
use crate::read::load::problem::Problem;

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

/// Maximum number of result folders that a message lists.
const MAX_RESULTS: usize = 16;

/// Levels of subfolders in which results are looked for.
const RESULT_LEVELS: u32 = 2;

/// Lists commands that read the results below a folder, one per line: `reader` for results that it reads. `None` without
/// results.
fn commands_for_results_below(root: &Path, reader: Reader) -> Option<String> {
    let all = results_below(root, RESULT_LEVELS);
    let line = |(benchmark, folder): &(Option<BenchmarkKind>, PathBuf)| {
        let command = match (benchmark, reader) {
            (None, _) => Reader::Report,
            (Some(BenchmarkKind::Train), _) => reader,
            (Some(BenchmarkKind::Score), Reader::Predict) => Reader::Extract,
            (_, Reader::Predict) => Reader::Report,
            _ => reader,
        };
        format!("\n  ringmark {command} {}", shell::quote(&folder.display().to_string()))
    };
    let lines: String = all.iter().take(MAX_RESULTS).map(line).collect();
    let more = all.len().saturating_sub(MAX_RESULTS);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    (!all.is_empty()).then_some(lines + &more)
}

/// Returns the folders with results below a folder, sorted, each with its benchmark; `None` if only `report` reads it.
fn results_below(root: &Path, levels: u32) -> Vec<(Option<BenchmarkKind>, PathBuf)> {
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
            vec![(Some(found.benchmark(&folder).unwrap_or(BenchmarkKind::Train)), folder)]
        } else if let Some(format) = record_below(&folder, |format, file| {
            format.has_file(file) && kind_of(&folder.join(file)).as_deref() == Some(format.kind)
        }) {
            vec![(Some(format.benchmark), folder)]
        } else if reported_only(&folder).is_some() {
            vec![(None, folder)]
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

/// Returns the command that wrote a result which only `ringmark report` reads.
pub(super) fn reported_only(root: &Path) -> Option<&'static str> {
    [(GOODPUT, goodput::KIND, "goodput"), (JOURNAL, journal::KIND, "accept")]
        .into_iter()
        .find(|(file, kind, _)| kind_of(&root.join(file)).as_deref() == Some(kind))
        .map(|(.., command)| command)
}

/// Lists the JSON files in a folder, each with the kind in its header.
fn other_files(root: &Path) -> String {
    let files: Vec<PathBuf> = files_below(root, 0).into_iter().filter(|file| is_json(file)).collect();
    let line = |file: &PathBuf| {
        let kind = kind_of(file).map_or_else(|| "no file of ringmark".to_owned(), |kind| format!("kind {kind}"));
        format!("\n  {}: {kind}", below(root, file).display())
    };
    let more = files.len().saturating_sub(MAX_RESULTS);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    match files.is_empty() {
        true => "; it contains no results of ringmark".to_owned(),
        false => {
            "; its JSON files are no runs:".to_owned()
                + &files.iter().take(MAX_RESULTS).map(line).collect::<String>()
                + &more
        }
    }
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "json" || ending == "jsonl")
}

/// Suggests the intended folder if this one contains no runs.
pub(super) fn hint(root: &Path, problems: &[Problem], reader: Reader) -> String {
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
    match problems {
        [] => other_files(root),
        problems => problems.iter().map(|problem| format!("\n  {problem}")).collect(),
    }
}
