//! Output in the formats of PyTorch's DDP benchmark: the JSON that its `diff.py` reads, and its lines. The iterations
//! after warm-up of all runs of a case are pooled, as PyTorch pools those of all ranks.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{Case, DeviceKind};
use ringmark_core::line::pytorch_ddp;

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::analyze::training::grouping::settings;
use crate::read::analyze::training::title::title;
use crate::read::load::formats::pytorch_ddp::{
    DdpBenchmark, GroupResult, ModelResult, RingmarkConditions, RingmarkResult,
};
use crate::read::load::run::{Recorded, RecordedConditions};

/// Returns these runs in the format of PyTorch's benchmark. Fails if a required record is missing.
///
/// `diff.py` pairs models and groups of ranks by position and skips the first group: it must be a single rank without
/// DistributedDataParallel, followed by a single rank with it. In ringmark, a single rank exchanges nothing in either
/// case unless a backend was chosen for it. So 1n1g fills both positions if it has no baseline; without 1n1g the first
/// group is empty.
pub fn benchmark(result: &ResultFolder) -> anyhow::Result<DdpBenchmark> {
    let counted = |group: &&TrainingGroup| group.cases.iter().any(has_counted);
    let groups: Vec<&TrainingGroup> = result.training().iter().filter(counted).collect();
    let conditions = |group: &&TrainingGroup| {
        let what = "has only logs: PyTorch's file needs the version and bucket size from records";
        group.conditions.recorded.clone().with_context(|| format!("{} {what}", group.label))
    };
    let conditions = groups.iter().map(conditions).collect::<anyhow::Result<Vec<RecordedConditions>>>()?;
    let cases = || groups.iter().flat_map(|group| &group.cases);
    let recorded: Vec<&Recorded> = cases().flat_map(recorded).collect();
    let several: Vec<&Recorded> = cases().filter(|case| case.case.ranks() > 1).flat_map(self::recorded).collect();
    let exchanging = if several.is_empty() { &recorded } else { &several };

    let mut buckets: Vec<u64> = conditions.iter().map(|each| each.config.exchange.bucket().0).collect();
    buckets.dedup();
    let bucket_size = match buckets[..] {
        [] => bail!("{} has no run that counts", result.name),
        [bytes] => bytes as f64 / pytorch_ddp::MEBIBYTE,
        _ => {
            bail!("{} has runs of several bucket sizes, but PyTorch's file contains one: separate them", result.name)
        }
    };
    // A libtorch built with CUDA reports a version even if no rank used it, and readers infer the device from it.
    let on_gpus = recorded.iter().filter(|recorded| recorded.conditions.device == DeviceKind::Cuda);
    let versions = on_gpus.filter_map(|recorded| recorded.environment.cuda_version.clone());
    let cuda_version = join(versions);
    Ok(DdpBenchmark {
        pytorch_version: join(recorded.iter().map(|recorded| recorded.environment.libtorch_version.clone())),
        cuda_version: (!cuda_version.is_empty()).then_some(cuda_version),
        distributed_backend: join(exchanging.iter().map(|recorded| recorded.facts.backend.to_string())),
        bucket_size,
        ours: Some(RingmarkConditions {
            precision: join(groups.iter().map(|group| group.conditions.point.dtype.to_string())),
            image_size: join(conditions.iter().map(|each| each.config.sample_size().number().to_string())),
            device: join(groups.iter().flat_map(|group| group.device_names.clone())),
            profile: join(
                conditions
                    .iter()
                    .map(|each| if each.profile == RunProfile::Quick { "quick" } else { "full" }.to_owned()),
            ),
        }),
        benchmark_results: groups.into_iter().map(model).collect(),
    })
}

fn has_counted(case: &TrainingCase) -> bool {
    case.counted().next().is_some()
}

/// Returns the records of the runs that count.
fn recorded(case: &TrainingCase) -> impl Iterator<Item = &Recorded> {
    case.runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref())
}

fn join(values: impl Iterator<Item = String>) -> String {
    values.collect::<BTreeSet<String>>().into_iter().collect::<Vec<String>>().join(" / ")
}

fn model(group: &TrainingGroup) -> ModelResult {
    let sound = group.cases.iter().filter(|case| has_counted(case));
    let baseline = |case: &TrainingCase| Some(measurements(case.baseline.as_ref().filter(|case| has_counted(case))?));
    let single = group.cases.iter().find(|case| case.case == Case::SINGLE);
    let first = single.map(|case| baseline(case).unwrap_or_else(|| measurements(case)));
    let first = first.unwrap_or(GroupResult { ranks: vec![0], case: None, measurements: Vec::new() });
    let several = group.cases.iter().filter(|case| case.case != Case::SINGLE);
    ModelResult {
        model: group.conditions.point.model.facts().source_name.to_owned(),
        batch_size: group.conditions.point.batch.size.number(),
        ringmark: Some(RingmarkResult {
            label: group.label.clone(),
            dtype: group.conditions.point.dtype,
            config: settings(&group.conditions),
            without_communication: several.filter_map(baseline).collect(),
            reliability_warnings: group.assessment().unreliable_sentences(),
        }),
        result: std::iter::once(first).chain(sound.map(measurements)).collect(),
    }
}

/// Returns every iteration that counts.
fn measurements(case: &TrainingCase) -> GroupResult {
    GroupResult {
        ranks: (0..case.case.ranks()).collect(),
        case: Some(case.case),
        measurements: case.counted().flat_map(|measured| measured.figures.pooled_steps()).collect(),
    }
}

/// Returns the header of PyTorch's benchmark, from the record of the run with the most ranks; empty without records.
fn head(result: &ResultFolder) -> Vec<String> {
    let cases = result.training().iter().flat_map(|group| &group.cases);
    let with_records = cases.filter_map(|case| Some((case.case.ranks(), recorded(case).next()?)));
    let Some((_, largest)) = with_records.max_by_key(|(ranks, _)| *ranks) else { return Vec::new() };
    let Recorded { conditions, environment, facts, .. } = largest;
    pytorch_ddp::Head::new(environment, conditions.device, facts.backend, conditions.config.exchange.bucket()).lines()
}

/// Returns the lines that PyTorch's benchmark prints, a block per group; baselines are its `no ddp`.
pub fn lines(result: &ResultFolder) -> String {
    let block = |group: &TrainingGroup| {
        let batch_size = group.conditions.point.batch.size.number();
        let line = |case: &TrainingCase, baseline: bool| {
            pytorch_ddp::write(case.case, baseline, batch_size, &measurements(case).measurements)
        };
        let lines = group.cases.iter().flat_map(|case| {
            let baseline = case.baseline.as_ref().and_then(|baseline| line(baseline, true));
            let is_without_ddp = pytorch_ddp::is_without_ddp(case.case, false, baseline.is_some());
            baseline.into_iter().chain(line(case, is_without_ddp))
        });
        format!(
            "{}\n\n{}\n",
            title(group).join("\n"),
            pytorch_ddp::block(group.conditions.point.model, batch_size, lines).join("\n")
        )
    };
    let head = head(result).into_iter().map(|line| line + "\n");
    head.collect::<String>() + &result.training().iter().map(block).collect::<Vec<String>>().join("\n")
}
