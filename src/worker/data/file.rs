//! A fixed batch from a safetensors file, divided in rank order: for comparisons with another program.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use ringmark_core::dimension::ImageRule;
use tch::{Device, Kind};

use crate::data::batch::{Batch, BatchRequest};
use crate::model::weights_file;

/// Reads `images` and `labels` of the file: this rank's number of images, starting at its first one.
pub fn batch(path: &Path, request: &BatchRequest, rank: u32, device: Device) -> Result<Batch> {
    let mut file = weights_file::read(path)?;
    let mut take = |wanted: &str| {
        let index = file.iter().position(|(name, _)| name == wanted);
        let index = index.with_context(|| format!("{} has no tensor {wanted:?}", path.display()))?;
        Ok::<_, anyhow::Error>(file.swap_remove(index).1)
    };
    let (images, labels) = (take("images")?, take("labels")?);

    let (count, size) = (i64::from(request.samples), i64::from(request.size.number()));
    let rule = request.model.facts().images().context("a language model reads no images")?;
    let &ImageRule { channels, classes, .. } = rule;
    let (channels, classes) = (i64::from(channels), i64::from(classes));
    let first = i64::from(request.first);
    let shape = images.size();
    ensure!(
        shape.len() == 4 && shape[1..] == [channels, size, size] && labels.size() == [shape[0]],
        "{}: images have shape {shape:?} and labels {:?}, expected (n, {channels}, {size}, {size}) and (n): set \
         --image-size to match",
        path.display(),
        labels.size()
    );
    ensure!(
        first + count <= shape[0],
        "{} has {} images, but rank {rank} needs {first} to {}: use a smaller --batch-size",
        path.display(),
        shape[0],
        first + count - 1
    );
    let labels = labels.f_narrow(0, first, count)?.f_to_kind(Kind::Int64)?;
    let (low, high) = (labels.f_min()?.int64_value(&[]), labels.f_max()?.int64_value(&[]));
    ensure!(
        (0..classes).contains(&low) && high < classes,
        "labels range from {low} to {high}, expected 0 to {}",
        classes - 1
    );
    Ok(Batch {
        inputs: images.f_narrow(0, first, count)?.f_to_device(device)?.f_to_kind(Kind::Float)?,
        targets: labels.f_to_device(device)?,
    })
}
