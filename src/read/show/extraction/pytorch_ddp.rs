//! Figures for users of PyTorch's DDP suite: the JSON that its `diff.py` reads, and its lines. Of several runs of a case
//! all iterations after warm-up are put together, as PyTorch does with those of all ranks.

use std::collections::BTreeSet;

use anyhow::{Context, bail};
use ringmark_core::benchmark::RunProfile;
use ringmark_core::dimension::{Case, DeviceKind};
use ringmark_core::line::pytorch_ddp;

use crate::read::analyse::figures::{Extraction, Group, TrainedCase};
use crate::read::analyse::grouping::settings;
use crate::read::analyse::title::title;
use crate::read::load::formats::pytorch_ddp::{DdpBenchmark, GroupResult, ModelResult, OurConditions, OurResult};
use crate::read::load::run::{Recorded, RecordedConditions};

/// What PyTorch's benchmark would have written of these runs; an error where the records that it needs are not there.
///
/// `diff.py` pairs models and groups of ranks by their places, and skips the first group: it has to be the one rank
/// without DistributedDataParallel, and the one rank with it has to follow. With us one rank exchanges nothing either
/// way unless a backend was chosen for it, so 1n1g stands in both places where it has no baseline of its own; without
/// any 1n1g the first is empty.
pub fn benchmark(extraction: &Extraction) -> anyhow::Result<DdpBenchmark> {
    let counted = |group: &&Group| group.cases.iter().any(has_counted);
    let groups: Vec<&Group> = extraction.groups.iter().filter(counted).collect();
    let conditions = |group: &&Group| {
        let what = "has logs alone, and no record that tells version and bucket size: PyTorch's file needs them";
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
        [] => bail!("{} has no run that counts", extraction.name),
        [bytes] => bytes as f64 / pytorch_ddp::MEBIBYTE,
        _ => {
            bail!("{} has runs of several bucket sizes, of which PyTorch's file holds one: part them", extraction.name)
        }
    };
    // libtorch's build has one also where nothing ran on it; who reads the file takes it for the device.
    let on_gpus = recorded.iter().filter(|recorded| recorded.conditions.device == DeviceKind::Cuda);
    let versions = on_gpus.filter_map(|recorded| recorded.environment.cuda_version.clone());
    let cuda_version = join(versions);
    Ok(DdpBenchmark {
        pytorch_version: join(recorded.iter().map(|recorded| recorded.environment.libtorch_version.clone())),
        cuda_version: (!cuda_version.is_empty()).then_some(cuda_version),
        distributed_backend: join(exchanging.iter().map(|recorded| recorded.facts.backend.to_string())),
        bucket_size,
        ours: Some(OurConditions {
            precision: join(groups.iter().map(|group| group.conditions.dtype.to_string())),
            image_size: join(conditions.iter().map(|each| each.config.image_size().to_string())),
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

fn has_counted(case: &TrainedCase) -> bool {
    case.counted().next().is_some()
}

/// Of its runs that count.
fn recorded(case: &TrainedCase) -> impl Iterator<Item = &Recorded> {
    case.runs.iter().filter(|run| run.outcome.is_ok()).filter_map(|run| run.recorded.as_ref())
}

/// Each value once.
fn join(values: impl Iterator<Item = String>) -> String {
    values.collect::<BTreeSet<String>>().into_iter().collect::<Vec<String>>().join(" / ")
}

fn model(group: &Group) -> ModelResult {
    let sound = group.cases.iter().filter(|case| has_counted(case));
    let baseline = |case: &TrainedCase| Some(measurements(case.baseline.as_ref().filter(|case| has_counted(case))?));
    let single = group.cases.iter().find(|case| case.case == Case::SINGLE);
    let first = single.map(|case| baseline(case).unwrap_or_else(|| measurements(case)));
    let first = first.unwrap_or(GroupResult { ranks: vec![0], case: None, measurements: Vec::new() });
    let several = group.cases.iter().filter(|case| case.case != Case::SINGLE);
    ModelResult {
        model: group.conditions.model.facts().source_name.to_owned(),
        batch_size: group.conditions.batch_size,
        ringmark: Some(OurResult {
            label: group.label.clone(),
            dtype: group.conditions.dtype,
            config: settings(&group.conditions),
            without_communication: several.filter_map(baseline).collect(),
        }),
        result: std::iter::once(first).chain(sound.map(measurements)).collect(),
    }
}

/// Every iteration that counts.
fn measurements(case: &TrainedCase) -> GroupResult {
    GroupResult {
        ranks: (0..case.case.ranks()).collect(),
        case: Some(case.case),
        measurements: case.counted().flat_map(|measured| measured.figures.pooled_steps()).collect(),
    }
}

/// The head of PyTorch's benchmark, by the record of the run with most ranks; none where no run has a record.
fn head(extraction: &Extraction) -> Vec<String> {
    let cases = extraction.groups.iter().flat_map(|group| &group.cases);
    let with_records = cases.filter_map(|case| Some((case.case.ranks(), recorded(case).next()?)));
    let Some((_, largest)) = with_records.max_by_key(|(ranks, _)| *ranks) else { return Vec::new() };
    let Recorded { conditions, environment, facts, .. } = largest;
    pytorch_ddp::Head::new(environment, conditions.device, facts.backend, conditions.config.exchange.bucket()).lines()
}

/// The lines that PyTorch's benchmark prints, a block for each group; ranks without communication are its `no ddp`.
pub fn lines(extraction: &Extraction) -> String {
    let block = |group: &Group| {
        let batch_size = group.conditions.batch_size;
        let line = |case: &TrainedCase, baseline: bool| {
            pytorch_ddp::write(case.case, baseline, batch_size, &measurements(case).measurements)
        };
        let lines = group.cases.iter().flat_map(|case| {
            let baseline = case.baseline.as_ref().and_then(|baseline| line(baseline, true));
            baseline.into_iter().chain(line(case, false))
        });
        format!(
            "{}\n\n{}\n",
            title(group).join("\n"),
            pytorch_ddp::block(group.conditions.model, batch_size, lines).join("\n")
        )
    };
    let head = head(extraction).into_iter().map(|line| line + "\n");
    head.collect::<String>() + &extraction.groups.iter().map(block).collect::<Vec<String>>().join("\n")
}
