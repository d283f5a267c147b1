//! Runs in a folder.
//!
//! | module | content |
//! |---|---|
//! | `found` | runs, found by file name |
//! | `manifest` | comparison of the runs with the manifest of their sweep |
//! | `sweep_facts` | facts from the manifest: the command that resumes the sweep, batches without memory |
//! | `suggestions` | commands for the results in subfolders |

mod found;
mod manifest;
mod suggestions;
mod sweep_facts;

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use ringmark_core::benchmark::BenchmarkKind;
use ringmark_core::file::run_name::MANIFEST;
use ringmark_core::options::usage::usage;
use ringmark_core::shell;

pub use crate::read::load::folder::found::{Found, FoundRun, unreadable};
pub use crate::read::load::folder::manifest::unlisted_run;
pub use crate::read::load::folder::suggestions::Reader;
pub use crate::read::load::folder::sweep_facts::{Shortage, SweepFacts};
use crate::read::load::problem::Problem;

/// Finds `<case>/<model>_b<batch>_<dtype>_<run>.log` below `root` and below its folder of baselines. Fails if there is
/// no run at all.
pub fn find(root: &Path, reader: Reader) -> anyhow::Result<Found> {
    let mut found = found::scan(root)?;
    found.remove_duplicate_logs();
    found.find_benchmarks(root);
    manifest::apply(&mut found, root);
    if found.runs.is_empty() && found.sweep.resume_command.is_some() {
        let shortages = found.sweep.shortages.iter().map(Shortage::to_string);
        let lines = shortages.chain(found.problems.iter().map(Problem::to_string));
        let lines: String = lines.map(|line| format!("\n  {line}")).collect();
        let reason = if lines.is_empty() { format!(" its {MANIFEST} lists none") } else { lines };
        bail!("{} contains no run that counts:{reason}", root.display());
    }
    if found.runs.is_empty() {
        if let Some(command) = suggestions::reported_only(root) {
            let path = root.display().to_string();
            let quoted = shell::quote(&path);
            bail!(usage(anyhow!("{path} is a result of `ringmark {command}`: use `ringmark report {quoted}`")));
        }
        bail!(
            "{} contains no runs: looked for {}{}",
            root.display(),
            found::pattern(),
            suggestions::hint(root, &found.problems, reader)
        );
    }
    Ok(found)
}

/// Returns every log below `root` whose name identifies a run, whether the run counts or not.
pub fn logs(root: &Path) -> anyhow::Result<Vec<FoundRun>> {
    Ok(found::scan(root)?.runs)
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
