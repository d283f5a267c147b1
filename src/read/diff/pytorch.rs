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
    let mut settings: BTreeMap<String, String> = serde_json::from_slice::<BTreeMap<String, Value>>(&text)?
        .into_iter()
        .filter(|(name, _)| name != "benchmark_results")
        .map(|(name, value)| (name, word(&value)))
        .collect();
    // PyTorch's own files do not name these, ringmark's do.
    let told = ["precision", "image_size"].map(|field| settings.remove(field));
    let device = if file.cuda_version.is_some() { DeviceKind::Cuda } else { DeviceKind::Cpu };
    for model in &file.benchmark_results {
        let [precision, image_size] = told.clone();
        let must = vec![
            ("precision", precision),
            ("batch size", Some(model.batch_size.to_string())),
            ("image size", image_size),
            ("device", Some(device.to_string())),
        ];
        let mut left_out = Vec::new();
        let set = side.set(Set { name: model.model.clone(), must, settings: settings.clone(), ..Set::default() });
        let names: Vec<String> = model.result.iter().enumerate().map(|(place, group)| name(place, group)).collect();
        for (place, (group, name)) in model.result.iter().zip(&names).enumerate() {
            ensure!(!names[..place].contains(name), "two results of {} with {name}", model.model);
            let images = f64::from(model.batch_size) * group.ranks.len() as f64;
            let figures = mean(&group.measurements)
                .and_then(|mean| RunFigures::of(images / mean, Seconds(mean), step_percentiles(&group.measurements)));
            match figures {
                Some(figures) => set.case(name).runs.push(figures),
                None => left_out.push(format!("{} with {name} has no measurements", model.model)),
            }
        }
        side.left_out.extend(left_out);
    }
    Ok(())
}

/// The first of one rank runs without DistributedDataParallel: by its place, as the file says it nowhere else.
fn name(place: usize, group: &GroupResult) -> String {
    match group.ranks.len() {
        1 if place == 0 => "1 rank, no DDP".to_owned(),
        1 => "1 rank".to_owned(),
        several => format!("{several} ranks"),
    }
}
