//! Weights in files: safetensors under torchvision's names, buffers included, so that a torchvision checkpoint loads.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ringmark_record::file::whole_file;
use tch::{Device, Kind, Tensor};

use crate::model::named_tensors::{Named, NamedTensors};

/// torchvision keeps a count of batches beside every pair of running statistics; nothing here depends on it.
const BATCH_COUNT: &str = "num_batches_tracked";

/// Fills every parameter and buffer of `network`, as torchvision calls it, from `path`; refuses missing, unknown and
/// differently shaped tensors.
pub fn load(path: &Path, tensors: &NamedTensors, network: &str) -> Result<()> {
    let file = read(path)?;
    let mut file: HashMap<String, Tensor> = file.into_iter().filter(|(name, _)| !name.ends_with(BATCH_COUNT)).collect();
    let _no_gradient = tch::no_grad_guard();
    for Named { name, tensor } in tensors.parameters.iter().chain(&tensors.buffers) {
        let Some(value) = file.remove(name) else {
            bail!("{} has no tensor {name}: it must hold torchvision's {network}", path.display());
        };
        ensure!(
            value.size() == tensor.size(),
            "{name} has shape {:?} in {}, the model's is {:?}",
            value.size(),
            path.display(),
            tensor.size()
        );
        tensor.shallow_clone().f_copy_(&value)?;
    }
    if let Some(name) = file.keys().min() {
        bail!("{} holds {name}, which {network} does not have", path.display());
    }
    Ok(())
}

/// Writes every parameter and buffer as contiguous fp32; the file is whole or absent.
pub fn save(path: &Path, tensors: &NamedTensors, batches: u32) -> Result<()> {
    let mut file = Vec::new();
    for Named { name, tensor } in tensors.parameters.iter().chain(&tensors.buffers) {
        file.push((name.clone(), tensor.detach().to_device(Device::Cpu).contiguous()));
        if let Some(layer) = name.strip_suffix("running_var") {
            file.push((format!("{layer}{BATCH_COUNT}"), Tensor::from(i64::from(batches))));
        }
    }
    whole_file::write_by_name(path, |part| Ok(Tensor::write_safetensors(&file, part)?)).context("weights")
}

/// Every tensor of a safetensors file by name, in host memory.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let file =
        Tensor::read_safetensors(path).with_context(|| format!("{} cannot be read as safetensors", path.display()))?;
    for (name, tensor) in &file {
        ensure!(tensor.kind() != Kind::Double, "{name} in {} is fp64: save it as fp32", path.display());
    }
    Ok(file)
}
