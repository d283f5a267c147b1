//! `ringmark check`: validates a result for its recipients and for CI, as MLPerf's submission checker does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{anyhow, bail};
use ringmark_core::benchmark::score::ScoreRecord;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::Model;
use ringmark_core::file::run_name::{MANIFEST, RunName};
use ringmark_core::manifest::Manifest;
use ringmark_core::options::usage::usage;

use crate::output::{self, Json};
use crate::read::analyze::case_runs::CaseRuns;
use crate::read::analyze::checks;
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::analyze::results::{ResultFolder, SweepGroups};
use crate::read::analyze::run_group;
use crate::read::analyze::score::figures::ScoreGroup;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::extract;
use crate::read::load::folder::{self, Reader};
use crate::read::load::integrity::{Integrity, Outputs};
use crate::read::load::run::Readable;
use crate::read::load::sweep_run::SweepRun;
use crate::read::results;
use crate::read::show::check::CheckedResult;
use crate::read::show::once::once;

/// Options of `ringmark check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckConfig {
    /// Folder of a sweep.
    pub folder: PathBuf,
    /// Destination of the JSON output.
    pub json: Json,
}

/// Runs all checks and prints the outcome. Fails unless every check passes.
pub fn run(config: &CheckConfig) -> anyhow::Result<()> {
    config.json.check(&[&config.folder])?;
    config.json.forget()?;
    let checked = check(&config.folder)?;
    if !config.json.write(&checked)? {
        output::print(&checked.text())?;
    }
    checked.failure().map_or(Ok(()), |failure| bail!("check of {} {failure}", config.folder.display()))
}

fn check(root: &Path) -> anyhow::Result<CheckedResult> {
    let found = folder::find(root, Reader::Check)?;
    let manifest = Manifest::find(root)?.ok_or_else(|| {
        usage(anyhow!(
            "{} contains no {MANIFEST}: pass a folder of `ringmark sweep` or `ringmark score`",
            root.display()
        ))
    })?;
    let benchmark = found.benchmark(root)?;
    let usable: BTreeSet<RunName> = found.runs.iter().map(|run| run.name).collect();
    let result = results::read_sweep(root, found, None)?;
    let read = match &result.sweep {
        SweepGroups::Training(_) => SweepRun::read::<RunRecord>,
        SweepGroups::Score(_) => SweepRun::read::<ScoreRecord>,
    };
    let runs = manifest.runs.iter().filter_map(|run| read(root, run.name, &manifest.conditions.options));
    let runs: Vec<SweepRun> = runs.collect();
    let integrity = Integrity::read(root, &manifest, &folder::logs(root)?);
    let endings: Vec<&str> = extract::other_files(&result).iter().map(|(ending, _)| *ending).collect();
    let result_file = results::result_file(&result, BTreeMap::new())?;
    let outputs = Outputs::read(root, &folder::name_of(root)?, &result_file, &endings);
    let checks = vec![
        checks::complete(&manifest, &usable, &result.problems, &runs),
        checks::unedited(&integrity, &outputs),
        checks::rules(&runs),
        checks::reliable(reliability_warnings(&result), &cautions(&result), &single_runs(&result), &runs),
    ];
    Ok(CheckedResult::new(root.display().to_string(), benchmark, checks))
}

/// Returns the titles of the cases with one run that counts.
fn single_runs(result: &ResultFolder) -> Vec<String> {
    fn titles<'a, R: Readable + 'a, F: 'a>(cases: impl Iterator<Item = &'a CaseRuns<R, F>>) -> Vec<String> {
        cases.filter(|case| case.counted().count() == 1).map(|case| case.title.clone()).collect()
    }
    let scored = titles(result.scoring().iter().flat_map(|group| &group.cases));
    titles(result.training().iter().flat_map(TrainingGroup::with_baselines)).into_iter().chain(scored).collect()
}

/// Returns the reasons to use reliable figures with caution, as a report does.
fn cautions(result: &ResultFolder) -> Vec<String> {
    let trained = result.training().iter().flat_map(|group| &group.cases).filter_map(|case| case.speeds().cv());
    let scored = result.scoring().iter().flat_map(|group| &group.cases).filter_map(|case| case.speeds().cv());
    let of_scoring = result.scoring().iter().map(|group| group.all_warnings().count());
    let warnings = result.training().iter().map(TrainingGroup::number_of_warnings).chain(of_scoring).sum();
    let what = if result.scoring().is_empty() { "case" } else { "point" };
    let single_run = (!single_runs(result).is_empty()).then_some(what);
    reliability::cautions(single_run, warnings, trained.chain(scored).fold(f64::NAN, f64::max))
}

/// Returns the reasons why figures are unreliable, each sentence once.
fn reliability_warnings(result: &ResultFolder) -> Vec<String> {
    let texts = |warnings: Vec<ReliabilityWarning>| reliability::sentences(&warnings);
    let of_training = |group: &TrainingGroup| (group.label.clone(), texts(group.all_reliability_warnings()));
    let of_scoring = |group: &ScoreGroup| {
        let models = run_group::models(slice::from_ref(group));
        let models: Vec<String> = models.iter().map(Model::to_string).collect();
        (models.join(", "), texts(group.all_reliability_warnings()))
    };
    let of_groups = result.training().iter().map(of_training);
    once(&of_groups.chain(result.scoring().iter().map(of_scoring)).collect::<Vec<_>>())
}
