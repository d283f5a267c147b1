//! Device of a rank: the choice between CPU and CUDA, identical on all ranks, and this rank's device.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ringmark_core::dimension::{DeviceChoice, DeviceKind, Dtype};
use tch::{Device, Kind, Tensor};

use crate::ffi::cuda::{ComputeCapability, Cuda, DeviceFacts, NoCuda};
use crate::ffi::nccl::Nccl;
use crate::ffi::torch::shim;
use crate::host::facts;
use crate::job::cores::{self, CoreRequest, RankCores};
use crate::job::world::World;

#[derive(Debug, Clone)]
pub struct DeviceOfRank {
    pub device: Device,
    pub kind: DeviceKind,
    pub name: String,
    pub cores: RankCores,
    pub cuda_missing: Option<String>,
    pub cuda_remarks: Vec<String>,
    /// PCI address of the GPU, in nvidia-smi's format.
    pub bus_id: Option<String>,
    pub compute_capability: Option<ComputeCapability>,
}

impl DeviceOfRank {
    /// Chooses the device, verifies that all ranks made the same choice, makes the device current, and binds the rank. If
    /// there is a GPU that cannot be used, `auto` fails too: otherwise CPU results could be mistaken for the GPU's. A rank
    /// that does not compute knows its GPU's name but does not use it: tensors would be on the CPU.
    pub fn choose(
        choice: DeviceChoice,
        request: CoreRequest,
        world: &World,
        cuda: Result<&Cuda, &NoCuda>,
        computes: bool,
    ) -> Result<DeviceOfRank> {
        let own = match (choice, cuda) {
            (_, Ok(cuda)) => on_cuda(world, cuda, computes)?,
            (DeviceChoice::Cuda, Err(missing)) => bail!("cannot use --device cuda: {}", missing.reason()),
            (_, Err(NoCuda::Unusable(reason))) => {
                bail!("host {}: {reason}; or use --device cpu", world.host())
            }
            (_, Err(NoCuda::Absent(reason))) => DeviceOfRank {
                device: Device::Cpu,
                kind: DeviceKind::Cpu,
                name: facts::processor_name(),
                cores: RankCores::default(),
                cuda_missing: Some(reason.clone()),
                cuda_remarks: Vec::new(),
                bus_id: None,
                compute_capability: None,
            },
        };
        check_same_device(world, &own)?;
        let cores = request.bind(world, own.bus_id.as_deref())?;
        tch::set_num_threads(cores.threads as i32);
        world.agree_on_cores(cores::has_cores_for(cores.threads, world));
        Ok(DeviceOfRank { cores, ..own })
    }

    /// Loads NCCL if this rank is on a GPU.
    pub fn nccl(&self, cuda: Result<&Cuda, &NoCuda>) -> Result<Option<Arc<Nccl>>> {
        match cuda {
            Ok(cuda) if self.device.is_cuda() => Ok(Some(Arc::new(Nccl::new(cuda.nccl)?))),
            _ => Ok(None),
        }
    }

    /// Returns libtorch's number of the GPU.
    pub fn device_index(&self) -> Option<usize> {
        match self.device {
            Device::Cuda(index) => Some(index),
            _ => None,
        }
    }

    pub fn check_dtype(&self, dtype: Dtype) -> Result<()> {
        match (dtype, self.compute_capability) {
            // Older GPUs emulate bf16 in fp32, which is slower than fp32 itself.
            (Dtype::Tf32 | Dtype::Bf16, Some(capability)) if capability < ComputeCapability::new(8, 0) => bail!(
                "--dtype {dtype} needs compute capability 8.0, but {} has {capability}: use fp32 or fp16",
                self.name
            ),
            _ => Ok(()),
        }
    }
}

fn on_cuda(world: &World, cuda: &Cuda, computes: bool) -> Result<DeviceOfRank> {
    let count = cuda.devices.len();
    let local = world.local_rank() as usize;
    // A launcher may show each rank only its own GPU, which is then number 0 on every rank.
    let index = if count == 1 && facts::variable("CUDA_VISIBLE_DEVICES").is_some() { 0 } else { local };
    ensure!(
        index < count,
        "host {} has {count} GPUs, but {} ranks were started on it: start at most one rank per GPU",
        world.host(),
        world.local_ranks()
    );
    let facts = &cuda.devices[index];
    if computes {
        set_up(index, facts, world.host())?;
    }
    Ok(DeviceOfRank {
        device: if computes { Device::Cuda(index) } else { Device::Cpu },
        kind: DeviceKind::Cuda,
        name: facts.name.clone(),
        cores: RankCores::default(),
        cuda_missing: None,
        cuda_remarks: cuda.remarks.clone(),
        bus_id: Some(facts.bus_id.clone()),
        compute_capability: Some(facts.compute_capability),
    })
}

/// Makes a GPU current and runs a first kernel.
fn set_up(index: usize, facts: &DeviceFacts, host: &str) -> Result<()> {
    shim::set_device(index)?;
    run_first_kernel(index).with_context(|| {
        format!(
            "GPU {index} of host {} ({}, compute capability {}) failed a test computation: check nvidia-smi and dmesg, \
             or use --device cpu",
            host, facts.name, facts.compute_capability
        )
    })?;
    tch::Cuda::cudnn_set_benchmark(true);
    Ok(())
}

/// Runs a first kernel, which fails here, rather than deep in the model, if the GPU is in an error state, is used
/// exclusively by another process, or has no kernels in libtorch.
fn run_first_kernel(index: usize) -> Result<()> {
    let one = Tensor::f_ones([1], (Kind::Float, Device::Cuda(index)))?;
    let two = one.f_add(&one)?.f_double_value(&[0])?;
    ensure!(two == 2.0, "1 + 1 is {two}");
    Ok(())
}

/// Verifies that all ranks use the same kind of device: otherwise they would wait for each other in different
/// libraries.
fn check_same_device(world: &World, own: &DeviceOfRank) -> Result<()> {
    let own_choice = match &own.cuda_missing {
        None => format!("{} {}", env!("CARGO_PKG_VERSION"), own.kind),
        Some(missing) => format!("{} {}: {missing}", env!("CARGO_PKG_VERSION"), own.kind),
    };
    let choices = world.gather_text(&own_choice);
    let choice = |text: &str| text.split(':').next().unwrap_or_default().to_owned();
    let hosts = world.gather_text(world.host());
    if let Some(other) = choices.iter().position(|text| choice(text) != choice(&choices[0])) {
        bail!(
            "ranks differ in version or device: rank 0 on host {} has {}, rank {other} on host {} has {}: install the \
             same ringmark-worker on all hosts, or set --device",
            hosts[0],
            choices[0],
            hosts[other],
            choices[other]
        );
    }
    Ok(())
}
