//! What the run's record says of this machine: versions, devices, topology, and the variables that may be shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::environment::{DeviceKind, Environment, RankPlace, is_allowed};
use ringmark_record::run::{RunHeader, SCHEMA, Tuning};
use ringmark_record::units::{Bytes, Seconds};
use xxhash_rust::xxh3::xxh3_64;

use crate::cli::RunLabel;
use crate::ffi::nccl::Nccl;
use crate::ffi::{libraries, shim};
use crate::job::device::DeviceOfRank;
use crate::job::world::World;

/// The record's first line; every rank calls it, because it gathers where all of them are.
pub fn header(
    config: &TrainConfig,
    label: RunLabel,
    world: &World,
    own: &DeviceOfRank,
    nccl: Option<&Nccl>,
    (collective, buckets, tuning): (&str, Vec<Bytes>, Option<Tuning>),
) -> Result<RunHeader> {
    let ranks = places(world, own);
    let nodes = ranks.iter().filter(|place| place.local_rank == 0).count() as u32;
    if let Some(case) = label.case {
        // Ranks whose launcher and MPI library do not speak to each other are each a job of its own, and train.
        ensure!(
            case.ranks() == world.ranks(),
            "case {case} has {} ranks and MPI shows {}: start it by the mpirun of the MPI library that ringmark-worker has \
             (ldd tells), or by an srun with its PMIx",
            case.ranks(),
            world.ranks()
        );
    }
    let case = label.case.unwrap_or(Case { nodes, gpus_per_node: world.ranks().div_ceil(nodes) });
    Ok(RunHeader {
        schema: SCHEMA,
        case,
        run: label.run,
        profile: label.profile,
        started: now(),
        config: config.clone(),
        collective: collective.to_owned(),
        buckets,
        tuning,
        environment: environment(own, nccl)?,
        ranks,
    })
}

/// Where every rank is; all ranks call it together.
pub fn places(world: &World, own: &DeviceOfRank) -> Vec<RankPlace> {
    let numbers = [f64::from(world.local_rank()), f64::from(own.threads), f64::from(std::process::id())];
    let numbers = world.gather(&numbers);
    let hosts = world.gather_text(world.host());
    let devices = world.gather_text(&own.name);
    let place = |(rank, ((numbers, host), device_name)): (usize, ((Vec<f64>, String), String))| RankPlace {
        rank: rank as u32,
        local_rank: numbers[0] as u32,
        host,
        device: own.kind,
        device_name,
        threads: numbers[1] as u32,
        process: numbers[2] as u32,
    };
    numbers.into_iter().zip(hosts).zip(devices).enumerate().map(place).collect()
}

/// What this rank found.
pub fn environment(own: &DeviceOfRank, nccl: Option<&Nccl>) -> Result<Environment> {
    let is_cuda = own.kind == DeviceKind::Cuda;
    Ok(Environment {
        ringmark_version: env!("CARGO_PKG_VERSION").to_owned(),
        libtorch_version: shim::libtorch_version(),
        mpi_version: mpi_version(),
        nccl_version: nccl.map(Nccl::version).transpose()?,
        cuda_version: libraries::cuda_runtime_version(),
        driver_version: is_cuda
            .then(|| output("nvidia-smi", &["--query-gpu=driver_version", "--format=csv,noheader"])?.pop())
            .flatten(),
        cuda_missing: own.cuda_missing.clone(),
        system: format!("{} {}", system_name(), first_line("/proc/sys/kernel/osrelease")),
        processor: processor_name(),
        cores: cores(),
        memory: Bytes(proc_kilobytes("/proc/meminfo", "MemTotal:") * 1024),
        topology: if is_cuda {
            output("nvidia-smi", &["topo", "-m"])
        } else {
            output("lstopo-no-graphics", &["--no-io", "--no-legend"])
        }
        .unwrap_or_default(),
        variables: variables(),
    })
}

/// What the MPI library says of itself, without its long end.
pub fn mpi_version() -> String {
    let version = mpi::environment::library_version().unwrap_or_default();
    let first = version.lines().next().unwrap_or_default();
    first.split(", ident").next().unwrap_or_default().to_owned()
}

/// The value of a variable that is set and not empty.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The processor as the kernel names it.
pub fn processor_name() -> String {
    let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = information.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}

/// Seconds since 1970 UTC.
pub fn now() -> Seconds {
    Seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

/// What a log shows of libraries, machine, ranks and variables.
pub fn lines(environment: &Environment, ranks: &[RankPlace]) -> Vec<String> {
    let mut lines = vec![format!("libtorch {}, {}", environment.libtorch_version, environment.mpi_version)];
    if let (Some(nccl), Some(driver)) = (&environment.nccl_version, &environment.driver_version) {
        lines.push(format!("NCCL {nccl}, NVIDIA driver {driver}"));
    }
    if let Some(missing) = &environment.cuda_missing {
        lines.push(format!("CUDA not used: {missing}"));
    }
    lines.push(format!(
        "rank 0: {}, {}, {} cores, {:.1} GB",
        environment.system,
        environment.processor,
        environment.cores,
        environment.memory.0 as f64 / 1e9
    ));
    for place in ranks {
        lines.push(format!(
            "rank {}: host {} local rank {} {} {} with {} threads",
            place.rank, place.host, place.local_rank, place.device, place.device_name, place.threads
        ));
    }
    lines.extend(environment.topology.iter().map(|line| format!("topology: {line}")));
    lines.extend(environment.variables.iter().map(|(name, value)| format!("{name}={value}")));
    lines
}

/// Processors that this process may run on.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// Whether this host's ranks, of `threads` threads each, have cores enough; all ranks call it together.
pub fn has_cores_for(threads: u32, world: &World) -> bool {
    world.local_ranks() * threads <= cores_of_ranks(world)
}

/// Cores that this host's ranks may use together; all ranks call it together.
pub fn cores_of_ranks(world: &World) -> u32 {
    let hosts = world.gather_text(world.host());
    let lists = world.gather_text(&first_line_with("/proc/self/status", "Cpus_allowed_list:"));
    let groups = world.gather_text(&fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    let times = world.gather(&[f64::from(cores())]).concat();
    let ranks = lists.iter().zip(groups).zip(times).zip(&hosts).filter(|(_, host)| *host == world.host());
    cores_together(ranks.map(|(((list, group), cores), _)| (processors(list), group, cores as u32)))
}

/// Of ranks with these processors, control groups, and cores that [`cores`] tells each: ranks may be bound to a core each,
/// and what they have together counts; a group may allow its ranks together less time than there are processors.
fn cores_together(ranks: impl Iterator<Item = (Vec<u32>, String, u32)>) -> u32 {
    let mut all = BTreeSet::new();
    let mut groups = BTreeMap::new();
    for (processors, group, cores) in ranks {
        let quota = if (cores as usize) < processors.len() { cores } else { u32::MAX };
        groups.insert(group, quota);
        all.extend(processors);
    }
    groups.into_values().fold(0, u32::saturating_add).min(all.len() as u32)
}

/// `0-3,8` is 0, 1, 2, 3 and 8.
fn processors(list: &str) -> Vec<u32> {
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Memory that this process may still take: the host's, or less where a control group says so.
pub fn available_memory() -> Bytes {
    let host = proc_kilobytes("/proc/meminfo", "MemAvailable:") * 1024;
    // What a group uses includes files that the kernel keeps only while nobody needs the memory.
    let left = |folder: &str, limit: &str, used: &str, files: [&str; 2]| {
        let number = |name: &str| first_line(&format!("{folder}/{name}")).trim().parse::<u64>().ok();
        let kept = |key: &&str| first_line_with(&format!("{folder}/memory.stat"), key).parse::<u64>().unwrap_or(0);
        Some((number(limit)? + files.iter().map(kept).sum::<u64>()).saturating_sub(number(used)?))
    };
    let groups = [
        left("/sys/fs/cgroup", "memory.max", "memory.current", ["inactive_file ", "active_file "]),
        left(
            "/sys/fs/cgroup/memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            ["total_inactive_file ", "total_active_file "],
        ),
    ];
    Bytes(groups.into_iter().flatten().fold(host, u64::min))
}

/// A number that hardly two processes share.
pub fn random_mark() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    xxh3_64(&[now.as_nanos().to_le_bytes(), u128::from(std::process::id()).to_le_bytes()].concat())
}

/// Most memory that this process has held.
pub fn peak_resident() -> Bytes {
    Bytes(proc_kilobytes("/proc/self/status", "VmHWM:") * 1024)
}

/// This process's number among the ranks, as the launcher counts them; for the time before MPI tells it.
pub fn launched_rank() -> u32 {
    const NAMES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    NAMES.iter().find_map(|name| variable(name)?.parse().ok()).unwrap_or(0)
}

/// Name of this host.
pub fn host_name() -> String {
    first_line("/proc/sys/kernel/hostname")
}

/// What the kernel calls the program of a process; nothing where it is gone.
pub fn program_of(process: i32) -> String {
    first_line(&format!("/proc/{process}/comm"))
}

fn variables() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_allowed(name))
        .collect()
}

/// The number behind `key` in one of the kernel's tables of kB.
fn proc_kilobytes(path: &str, key: &str) -> u64 {
    first_line_with(path, key).trim_end_matches(" kB").parse().unwrap_or(0)
}

/// What stands behind `key` in the first line that begins with it; nothing where there is none.
fn first_line_with(path: &str, key: &str) -> String {
    let table = fs::read_to_string(path).unwrap_or_default();
    table.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}

/// Of a file; nothing where it cannot be read.
pub fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn system_name() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

/// Lines that a program prints, or `None` where it is missing or fails.
pub fn output(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().map(|line| line.trim_end().to_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_together_what_affinity_and_quotas_leave() {
        let rank = |list: &str, group: &str, cores| (processors(list), group.to_owned(), cores);
        let together = |ranks: &[(Vec<u32>, String, u32)]| cores_together(ranks.iter().cloned());
        assert_eq!(together(&[rank("0-3", "/", 4), rank("0-3", "/", 4)]), 4);
        assert_eq!(together(&[rank("0", "/", 1), rank("1", "/", 1)]), 2);
        assert_eq!(together(&[rank("0", "/", 1), rank("0", "/", 1)]), 1);
        // A container with a quota of two cores, however many ranks it has; groups of their own.
        assert_eq!(together(&[rank("0-63", "/docker/a", 2), rank("0-63", "/docker/a", 2)]), 2);
        assert_eq!(together(&[rank("0-3", "/a", 1), rank("0-3", "/b", 1)]), 2);
        assert_eq!(together(&[rank("0-1", "/a", 1), rank("0-1", "/", 2)]), 2);
    }

    #[test]
    fn lists_of_processors_are_counted_out() {
        assert_eq!(processors("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(processors("7"), [7]);
        assert_eq!(processors(""), Vec::<u32>::new());
        assert!(available_memory().0 > 0 && !first_line_with("/proc/self/status", "Cpus_allowed_list:").is_empty());
    }
}
