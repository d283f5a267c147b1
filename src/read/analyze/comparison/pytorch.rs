//! Files of PyTorch's DDP benchmark, written by PyTorch or ringmark, as one side of a comparison. A file is one run of
//! every model and group of ranks in it.

use std::collections::BTreeMap;

use anyhow::ensure;
use ringmark_core::dimension::{DeviceKind, Seconds};
use ringmark_core::number_text::count;
use ringmark_core::stats::summary::{mean, step_percentiles};

use crate::read::analyze::comparison::side::{RunFigures, Side, SideGroup, word};
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::load::formats::pytorch_ddp::{DdpFile, GroupResult, ModelResult};

/// Keys of a file that are compared as conditions or results, not as settings.
const TOLD_ELSEWHERE: [&str; 7] =
    ["benchmark_results", "precision", "image_size", "model", "batch_size", "dtype", "bucket_mb"];

/// Adds a file to `side`.
pub fn add(side: &mut Side, DdpFile { benchmark: file, fields }: &DdpFile) -> anyhow::Result<()> {
    let mut settings: BTreeMap<String, String> =
        fields.iter().map(|(name, value)| (name.clone(), word(value))).collect();
    for told_elsewhere in TOLD_ELSEWHERE {
        settings.remove(told_elsewhere);
    }
    // PyTorch's files do not contain it; if a file of ringmark contains several, they cannot be assigned to the models.
    let image_size = file.ours.as_ref().map(|ours| ours.image_size.clone()).filter(|size| !size.contains('/'));
    let device = if file.cuda_version.is_some() { DeviceKind::Cuda } else { DeviceKind::Cpu };
    let is_quick = file.ours.as_ref().is_some_and(|ours| ours.profile.contains("quick"));
    let reliability_warnings: Vec<ReliabilityWarning> =
        is_quick.then(reliability::quick_profile_warning).into_iter().collect();
    let mut seen = Vec::new();
    for model in &file.benchmark_results {
        let mut settings = settings.clone();
        let requested = model.ringmark.iter().flat_map(|ours| &ours.config);
        settings.extend(
            requested
                .filter(|(name, _)| !TOLD_ELSEWHERE.contains(&name.as_str()))
                .map(|(name, value)| (name.clone(), word(value))),
        );
        let like = SideGroup {
            name: model.model.clone(),
            must: vec![
                ("precision", model.ringmark.as_ref().map(|ours| ours.dtype.to_string())),
                ("batch size", Some(model.batch_size.to_string())),
                ("image size", image_size.clone()),
                ("device", Some(device.to_string())),
            ],
            settings,
            ..SideGroup::default()
        };
        ensure!(!seen.contains(&like.title()), "ambiguous: two results of {}", like.title());
        seen.push(like.title());
        let of_model = side.group(like);
        let mut left_out = Vec::new();
        let named = named(model);
        for (place, (name, group)) in named.iter().enumerate() {
            let is_twice = named[..place].iter().any(|(other, _)| other == name);
            ensure!(!is_twice, "two results of {} with {name}", model.model);
            let samples = f64::from(model.batch_size) * group.ranks.len() as f64;
            let Some(mean) = mean(&group.measurements).filter(|_| samples > 0.0) else {
                // The first group of a ringmark file is empty if there was no 1n1g.
                if place > 0 || !group.measurements.is_empty() {
                    let what = if samples > 0.0 { "measurements" } else { "ranks, or images" };
                    left_out.push(format!("{} with {name} has no {what}", model.model));
                }
                continue;
            };
            match RunFigures::new(samples / mean, Seconds(mean), step_percentiles(group.measurements.as_slice())) {
                Some(figures) => {
                    let case = of_model.case(name);
                    case.runs.push(figures);
                    case.reliability_warnings.clone_from(&reliability_warnings);
                }
                None => {
                    left_out.push(format!("{} with {name} has an invalid iteration time: {mean} s", model.model));
                }
            }
        }
        side.left_out.extend(left_out);
    }
    Ok(())
}

/// Names the groups of a model by their number of ranks. The first group, if of one rank, runs without
/// DistributedDataParallel; only its position shows that. In ringmark's files, the case distinguishes groups of the
/// same size.
fn named(model: &ModelResult) -> Vec<(String, &GroupResult)> {
    let name = |group: &GroupResult, others: &[GroupResult]| {
        let ranks = group.ranks.len();
        let ranks_text = count(ranks, "rank");
        let alike = others.iter().filter(|other| other.ranks.len() == ranks).count();
        group.case.filter(|_| alike > 1).map_or(ranks_text.clone(), |case| format!("{ranks_text}, {case}"))
    };
    let is_without_ddp = |group: &&GroupResult| group.ranks.len() == 1;
    let (first, others) = match model.result.split_first().filter(|(first, _)| is_without_ddp(first)) {
        Some((first, others)) => (Some(("1 rank, no DDP".to_owned(), first)), others),
        None => (None, &model.result[..]),
    };
    let silent = model.ringmark.iter().flat_map(|ours| {
        let groups = &ours.without_communication;
        groups.iter().map(|group| (format!("{}, baseline", name(group, groups)), group))
    });
    first.into_iter().chain(others.iter().map(|group| (name(group, others), group))).chain(silent).collect()
}
