//! Files of PyTorch's DDP benchmark as a side: each is one run of every model and group of ranks in it.

use std::collections::BTreeMap;
use std::io::Read;

use anyhow::ensure;
use ringmark_record::environment::DeviceKind;
use ringmark_record::stats::summary::{mean, step_percentiles};
use ringmark_record::units::Seconds;
use serde_json::Value;

use crate::read::diff::side::{RunFigures, Set, Side};
use crate::read::diff::training::word;
use crate::read::peers::pytorch_ddp::{DdpBenchmark, GroupResult};

/// Takes in one file.
pub fn take(side: &mut Side, mut input: impl Read) -> anyhow::Result<()> {
    let mut text = Vec::new();
    input.read_to_end(&mut text)?;
    let file = DdpBenchmark::read(&text[..])?;
    // What diff.py shows side by side: every field but the results.
    let mut fields: BTreeMap<String, Value> = serde_json::from_slice(&text)?;
    let results = fields.remove("benchmark_results").unwrap_or_default();
    let mut settings: BTreeMap<String, String> =
        fields.iter().map(|(name, value)| (name.clone(), word(value))).collect();
    // PyTorch's own files do not name these, ringmark's do.
    let precision = settings.remove("precision");
    let image_size = settings.remove("image_size");
    let device = if file.cuda_version.is_some() { DeviceKind::Cuda } else { DeviceKind::Cpu };
    let mut seen = Vec::new();
    for (place, model) in file.benchmark_results.iter().enumerate() {
        let own_precision = results[place]["ringmark"]["dtype"].as_str().map(str::to_owned);
        let must = vec![
            ("precision", own_precision.or_else(|| precision.clone())),
            ("batch size", Some(model.batch_size.to_string())),
            ("image size", image_size.clone()),
            ("device", Some(device.to_string())),
        ];
        let set = Set { name: model.model.clone(), must, settings: settings.clone(), ..Set::default() };
        ensure!(!seen.contains(&set.title()), "two results of {}: which is meant is not clear", set.title());
        seen.push(set.title());
        let mut left_out = Vec::new();
        let set = side.set(set);
        let names = names(&model.result, &results[place]["result"]);
        for (place, (group, name)) in model.result.iter().zip(&names).enumerate() {
            ensure!(!names[..place].contains(name), "two results of {} with {name}", model.model);
            let images = f64::from(model.batch_size) * group.ranks.len() as f64;
            let figures = mean(&group.measurements)
                .and_then(|mean| RunFigures::of(images / mean, Seconds(mean), step_percentiles(&group.measurements)));
            match figures {
                Some(figures) => set.case(name).runs.push(figures),
                // Of ringmark, where there was no 1n1g to stand in this place.
                None if place == 0 && group.measurements.is_empty() => {}
                None => left_out.push(format!("{} with {name} has no measurements", model.model)),
            }
        }
        side.left_out.extend(left_out);
    }
    Ok(())
}

/// By number of ranks. The first of one rank runs without DistributedDataParallel: by its place, as the file says it
/// nowhere else. Of ringmark's files the case tells several of the same number apart.
fn names(groups: &[GroupResult], fields: &Value) -> Vec<String> {
    let name = |(place, group): (usize, &GroupResult)| {
        let ranks = group.ranks.len();
        let alike = groups.iter().skip(1).filter(|other| other.ranks.len() == ranks).count();
        match (place, ranks, fields[place]["case"].as_str()) {
            (0, 1, _) => "1 rank, no DDP".to_owned(),
            (_, 1, _) => "1 rank".to_owned(),
            (_, several, Some(case)) if alike > 1 => format!("{several} ranks, {case}"),
            (_, several, _) => format!("{several} ranks"),
        }
    };
    groups.iter().enumerate().map(name).collect()
}
