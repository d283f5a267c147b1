//! Description of the ranks and of rank 0's machine for records: locations, libraries, devices, topology and variables.

use std::path::Path;

use anyhow::{Result, anyhow};
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::{Bytes, DeviceKind};
use ringmark_core::host::environment::{LOAD_BEFORE_VARIABLE, plain_lines};
use ringmark_core::host::{Environment, RankPlace, processors};
use ringmark_core::number_text::count;
use ringmark_core::options::usage::usage;
use tch::Device;

use crate::ffi::cuda;
use crate::ffi::nccl::Nccl;
use crate::ffi::process::libraries;
use crate::ffi::torch::shim;
use crate::host::facts;
use crate::job::device::DeviceOfRank;
use crate::job::world::World;

/// Returns the location of every rank. All ranks call this together.
pub fn places(world: &World, own: &DeviceOfRank) -> Result<Vec<RankPlace>> {
    let numbers = [f64::from(world.local_rank()), f64::from(own.cores.threads), f64::from(std::process::id())];
    let numbers = world.gather(&numbers);
    let hosts = world.gather_text(world.host());
    let devices = world.gather_text(&own.name);
    let bindings = world.gather_values(&own.cores.binding)?;
    let memory = match own.device {
        Device::Cuda(index) => Bytes(shim::device_memory(index)?.total),
        _ => Bytes(facts::memory().0 / u64::from(world.local_ranks())),
    };
    let memory = world.gather_values(&memory)?;
    let place = |(rank, ((numbers, host), device_name)): (usize, ((Vec<f64>, String), String))| RankPlace {
        rank: rank as u32,
        local_rank: numbers[0] as u32,
        host,
        device: own.kind,
        device_name,
        threads: numbers[1] as u32,
        process: numbers[2] as u32,
        binding: None,
        memory: None,
    };
    let places = numbers.into_iter().zip(hosts).zip(devices).enumerate().map(place);
    let complete = |(place, (binding, memory))| RankPlace { binding, memory: Some(memory), ..place };
    Ok(places.zip(bindings.into_iter().zip(memory)).map(complete).collect())
}

/// Describes the environment of this rank.
pub fn environment(own: &DeviceOfRank, nccl: Option<&Nccl>) -> Result<Environment> {
    let is_cuda = own.kind == DeviceKind::Cuda;
    Ok(Environment {
        ringmark_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: shim::libtorch_version(),
        mpi_version: libraries::mpi_version(),
        nccl_version: nccl.map(Nccl::version).transpose()?,
        cuda_version: cuda::runtime_version().map(|version| version.to_string()),
        driver_version: is_cuda
            .then(|| facts::output("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"])?.pop())
            .flatten(),
        cuda_missing: own.cuda_missing.clone(),
        cuda_remarks: own.cuda_remarks.clone(),
        system: facts::system(),
        processor: facts::processor_name(),
        instruction_sets: processors::instruction_sets(),
        cores: own.cores.of_process,
        memory: facts::memory(),
        topology: if is_cuda {
            facts::output("nvidia-smi", &["topo", "-m"]).map(|lines| plain_lines(&lines).collect())
        } else {
            facts::output("lstopo-no-graphics", &["--no-io", "--no-legend"])
        }
        .unwrap_or_else(|| facts::numa_nodes(Path::new(processors::SYSTEM))),
        variables: facts::variables(),
        load_before: facts::variable(LOAD_BEFORE_VARIABLE)
            .map(|text| text.parse().map_err(|error: String| usage(anyhow!(error))))
            .transpose()?,
    })
}

/// Returns the first lines of the log of a sweep's run; `title` describes the benchmark.
pub fn title_lines(environment: &Environment, title: &str, label: RunLabel) -> Vec<String> {
    let RunLabel { case, run, profile } = label;
    let mut lines = vec![format!("ringmark {} {title} {case} run {run}", environment.ringmark_version)];
    if profile == RunProfile::Quick {
        lines.push("quick profile: for a first impression, not a reliable result".to_owned());
    }
    lines
}

/// Returns the log lines about libraries, machine, ranks and variables.
pub fn lines(environment: &Environment, ranks: &[RankPlace]) -> Vec<String> {
    let mut lines = vec![format!("libtorch {}, {}", environment.libtorch_version, environment.mpi_version)];
    if let (Some(nccl), Some(driver)) = (&environment.nccl_version, &environment.driver_version) {
        lines.push(format!("NCCL {nccl}, NVIDIA driver {driver}"));
    }
    if let Some(missing) = &environment.cuda_missing {
        lines.push(format!("CUDA not used: {missing}"));
    }
    lines.extend(environment.cuda_remarks.iter().map(|remark| format!("warning: {remark}")));
    lines.push(format!(
        "rank 0: {}, {}, {} cores, {:.1} GB",
        environment.system,
        environment.processor,
        environment.cores,
        environment.memory.gigabytes()
    ));
    for place in ranks {
        let binding = place.binding.as_ref().map(|binding| format!(" on {binding}")).unwrap_or_default();
        lines.push(format!(
            "rank {}: host {} local rank {} {} {} with {}{binding}",
            place.rank,
            place.host,
            place.local_rank,
            place.device,
            place.device_name,
            count(place.threads, "thread")
        ));
    }
    lines.extend(environment.topology.iter().map(|line| format!("topology: {line}")));
    lines.extend(environment.variables.iter().map(|(name, value)| format!("{name}={value}")));
    lines
}
