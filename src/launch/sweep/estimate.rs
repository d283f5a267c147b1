//! Estimates the memory and the approximate time of jobs before they run. Rejects jobs for which this machine has too
//! little memory. Pure. [`session_progress`](crate::launch::sweep::live::session_progress) measures the time while they
//! run.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use anyhow::bail;
use ringmark_core::dimension::{Bytes, Case, DeviceKind, Dtype, Seconds, Strategy, device_peak};
use ringmark_core::file::run_name::RunName;
use ringmark_core::host::{memory, processors};
use ringmark_core::number_text::{count, gigabytes};

use crate::launch::cluster::hosts::Hosts;
use crate::launch::job::job_launch::{NeededMemory, process_hosts};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::sweep::benchmark::PlannedJob;
use crate::launch::sweep::cost::{ALTERNATIVES, MemoryCost};
use crate::launch::sweep::plan::joined;

/// Shortest and longest time of a job before its first iteration, on the CPU and on GPUs: libraries, MPI, weights, kernels.
/// Measured: 2 to 4 s on two cores (results/cpu-2-cores), 9 s on an H200 (results/h200).
const START: [[Duration; 2]; 2] =
    [[Duration::from_secs(2), Duration::from_secs(8)], [Duration::from_secs(8), Duration::from_secs(25)]];

/// Longest additional time of a job's start for each rank: connections of MPI and NCCL.
const START_OF_RANK: Duration = Duration::from_millis(100);

/// A GPU of the estimates for unknown GPUs.
struct KnownGpu {
    name: &'static str,
    memory: Bytes,
    /// Speed in 1e9 multiply-accumulates a second in training, by [`Dtype`]; `None` for a precision that it lacks.
    speeds: fn(Dtype) -> Option<f64>,
}

/// GPUs of the estimates for unknown GPUs, the slowest first. Speeds are those of ResNet50: a V100 (384 images/s in fp32, 834
/// in fp16: DLPerf's report of MXNet), an A100 (1022 images/s in tf32, 2470 in mixed precision: NVIDIA
/// DeepLearningExamples; in fp32 the V100's share of the peak) and an H200 (1005, 4021 and 9489 images/s: results/h200),
/// whose processors are those of an H100.
const KNOWN_GPUS: [KnownGpu; 4] = [
    KnownGpu { name: "V100", memory: Bytes(32_000_000_000), speeds: speed_of_v100 },
    KnownGpu { name: "A100", memory: Bytes(80_000_000_000), speeds: speed_of_a100 },
    KnownGpu { name: "H100", memory: Bytes(80_000_000_000), speeds: speed_of_h100 },
    KnownGpu { name: "H200", memory: Bytes(141_000_000_000), speeds: speed_of_h100 },
];

fn speed_of_v100(dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::Fp32 => Some(4.7e3),
        Dtype::Fp16 => Some(10e3),
        Dtype::Tf32 | Dtype::Bf16 => None,
    }
}

fn speed_of_a100(dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::Fp32 => Some(5.8e3),
        Dtype::Tf32 => Some(12.5e3),
        Dtype::Fp16 | Dtype::Bf16 => Some(30e3),
    }
}

fn speed_of_h100(dtype: Dtype) -> Option<f64> {
    match dtype {
        Dtype::Fp32 => Some(12.5e3),
        Dtype::Tf32 => Some(49e3),
        Dtype::Fp16 | Dtype::Bf16 => Some(116e3),
    }
}

/// Memory that a job should not exceed if the GPUs are unknown: most have less than an H200.
const USUAL_MEMORY: Bytes = Bytes(80_000_000_000);

/// Gb/s of a host's slow and fast network, with ranks on the CPU and on GPUs. Hosts of eight H100 have 3200.
const NETWORKS: [[f64; 2]; 2] = [[1.0, 10.0], [100.0, 3200.0]];

/// Factor by which bf16 and fp16 are slower than fp32 on a processor without instructions for them. Measured: 18 and 22
/// (5.65, 0.32 and 0.26 images/s of ResNet50 in training on two cores).
const EMULATION: f64 = 20.0;

/// Returns the lowest and highest speed of a network on a core, relative to [`ThisMachine::core_speed`]. Measured in
/// training on a core with AVX-512: 0.8 (AlexNet) to 1.2 (ResNet18) in fp32, and 2.1 times as much in bf16. The product of
/// matrices uses AVX2, which other processors exceed twofold with AVX-512, and further with AMX.
fn network_speed(dtype: Dtype, is_emulated: bool) -> (f64, f64) {
    match dtype {
        Dtype::Fp32 | Dtype::Tf32 => (0.6, 2.0),
        _ if is_emulated => (0.6 / EMULATION, 2.0 / EMULATION),
        Dtype::Fp16 | Dtype::Bf16 => (0.6, 4.0),
    }
}

/// Returns true if a processor has no instructions for `dtype`. Few processors have them for fp16, and libtorch uses
/// them for few operations.
fn is_emulated(dtype: Dtype, environment: &LaunchEnvironment) -> bool {
    dtype == Dtype::Fp16 || (dtype == Dtype::Bf16 && !environment.has_bf16)
}

/// Returns the lowest and highest share of a GPU's published peak that training reaches. Measured with ResNet50: 0.37 to
/// 0.6 in fp32, 0.16 to 0.2 in tf32 and 0.16 to 0.24 in fp16 (the GPUs of [`KNOWN_GPUS`]); language models reach up to
/// half of the peak in bf16.
fn share_of_peak(dtype: Dtype) -> (f64, f64) {
    match dtype {
        Dtype::Fp32 => (0.35, 0.65),
        Dtype::Tf32 => (0.15, 0.4),
        Dtype::Fp16 | Dtype::Bf16 => (0.15, 0.5),
    }
}

impl PlannedJob {
    /// Returns the memory of one rank on the CPU.
    pub fn memory_of_rank(&self) -> Option<Bytes> {
        self.cost.on_cpu.map(|cost| cost.bytes())
    }

    /// Returns the memory of all ranks on one host.
    pub fn memory_of_host(&self) -> Option<Bytes> {
        Some(Bytes(self.memory_of_rank()?.0 * u64::from(self.case.gpus_per_node)))
    }
}

/// Returns the memory that ranks and servers need on each host, by host name, for the job that needs most there. Ranks
/// with unknown memory count as 0.
pub fn memory_by_host<'a>(jobs: impl Iterator<Item = &'a PlannedJob>, hosts: &Hosts) -> BTreeMap<String, NeededMemory> {
    let mut most: BTreeMap<String, NeededMemory> = BTreeMap::new();
    for job in jobs {
        let (of_rank, ranks) = (job.memory_of_rank().unwrap_or_default(), job.case.ranks() as usize);
        let mut by_host: BTreeMap<&str, NeededMemory> = BTreeMap::new();
        for (number, host) in process_hosts(hosts.for_case(job.case), job.case, &job.servers).into_iter().enumerate() {
            let needed = by_host.entry(host).or_default();
            match number < ranks {
                true => needed.ranks.0 += of_rank.0,
                false => needed.servers.0 += job.servers.memory.0,
            }
        }
        for (host, needed) in by_host {
            let most = most.entry(host.to_owned()).or_default();
            *most = std::cmp::max_by_key(*most, needed, |needed| needed.total().0);
        }
    }
    most
}

/// This machine among the hosts of a sweep.
#[derive(Debug, Clone, Copy)]
pub struct ThisMachine<'a> {
    /// Properties of this machine.
    pub environment: &'a LaunchEnvironment,
    /// All hosts.
    pub hosts: &'a Hosts,
    /// Memory that is available to a job.
    pub available: Bytes,
    /// Memory that is available if no other program runs.
    pub total: Bytes,
    /// Measures the speed of a core: [`core_speed`](ringmark_core::host::processors::core_speed).
    pub core_speed: fn() -> f64,
}

impl<'a> ThisMachine<'a> {
    /// Reads the memory; measures nothing yet.
    pub fn new(environment: &'a LaunchEnvironment, hosts: &'a Hosts) -> ThisMachine<'a> {
        let (available, total, core_speed) = (memory::available(), memory::total(), processors::core_speed);
        ThisMachine { environment, hosts, available, total, core_speed }
    }

    /// Returns true if ranks of `job` run on this machine.
    fn runs(&self, job: &PlannedJob) -> bool {
        self.hosts.for_case(job.case).iter().any(|host| self.environment.is_here(&host.name))
    }
}

/// Rejects a job whose ranks on this machine need more memory than is available.
pub fn check_memory<'a>(jobs: impl Iterator<Item = &'a PlannedJob>, machine: &ThisMachine) -> anyhow::Result<()> {
    let available = machine.available;
    let jobs_here = jobs.filter(|job| machine.runs(job));
    let needs = jobs_here.filter_map(|job| Some((job, job.cost.on_cpu?, job.memory_of_host()?)));
    let Some((job, cost, needed)) = needs.max_by_key(|(.., needed)| needed.0) else { return Ok(()) };
    if needed.0 <= available.0 {
        return Ok(());
    }
    let ranks = job.case.gpus_per_node;
    let of_rank = Bytes(needed.0 / u64::from(ranks));
    // Fewer ranks hold larger shards of the weights.
    let has_shards = job.run.is_some_and(|run| run.strategy.divides_update());
    let largest = cost.largest_batch(Bytes(available.0 / u64::from(ranks)));
    let ways = [
        (largest > 0, format!("--batch-size {largest} or less")),
        (ranks > 1 && !has_shards && of_rank.0 <= available.0, "--cases with fewer ranks per host".to_owned()),
        (largest == 0, "a smaller --model".to_owned()),
    ];
    let stop = if largest == 0 && needed.0 <= machine.total.0 { ", or stop other processes" } else { "" };
    bail!(
        "{} with --batch-size {} needs about {} for the {} on this machine, which has {} available: choose {}{stop}; \
         --device cuda --dry-run plans for GPUs",
        job.case,
        cost.batch_size,
        gigabytes(needed),
        count(ranks, "rank"),
        gigabytes(available),
        alternatives(ways)
    )
}

/// Joins the ways that apply: `A, or B`.
fn alternatives<const N: usize>(ways: [(bool, String); N]) -> String {
    let ways: Vec<String> = ways.into_iter().filter(|(is_way, _)| *is_way).map(|(_, way)| way).collect();
    ways.join(", or ")
}

/// Returns the time of a whole job whose iterations took `iterations`.
pub fn with_start(job: &PlannedJob, iterations: Seconds) -> Duration {
    start(job)[0] + Duration::try_from_secs_f64(iterations.0).unwrap_or_default()
}

/// Returns the shortest and the longest time of a job before its first iteration.
pub fn start(job: &PlannedJob) -> [Duration; 2] {
    let [shortest, longest] = START[usize::from(job.cost.on_cpu.is_none())];
    [shortest, longest + START_OF_RANK * job.case.ranks()]
}

/// Returns the lines that estimate memory and time of `jobs`, assuming that all hosts are like this one; empty if
/// nothing is known. `measured` is their time at the speed of earlier jobs.
pub fn lines<'a>(
    jobs: impl Iterator<Item = &'a PlannedJob> + Clone,
    machine: &ThisMachine,
    cooldown: Duration,
    measured: Option<Duration>,
) -> Vec<String> {
    let available = jobs.clone().any(|job| machine.runs(job)).then_some(machine.available);
    let largest = jobs.clone().filter_map(|job| Some((job, job.memory_of_rank()?, job.memory_of_host()?)));
    let memory = largest.max_by_key(|(.., of_host)| of_host.0).map(|(job, of_rank, of_host)| {
        let of_host = match job.case.gpus_per_node {
            1 => String::new(),
            ranks => format!(", {} for {ranks} ranks on a host", gigabytes(of_host)),
        };
        let available = available.map(|available| format!("; {} available here", gigabytes(available)));
        format!("memory: about {} per rank{of_host}{}", gigabytes(of_rank), available.unwrap_or_default())
    });
    let on_gpus: Vec<_> = jobs.clone().filter_map(|job| Some((job, job.cost.on_gpu?))).collect();
    let gpus = GpuClass::all(machine.environment, &on_gpus);
    let memory = memory.map_or_else(|| gpu_memory(&on_gpus, &gpus), |line| vec![line]);
    let on_cpu = jobs.clone().filter(|job| job.cost.on_cpu.is_some());
    let emulated = on_cpu.filter_map(|job| job.cost.dtype).find(|dtype| is_emulated(*dtype, machine.environment));
    let emulation = emulated.map(|dtype| {
        format!(
            "warning: {dtype} is emulated on the CPU, about {EMULATION} times slower than fp32: choose --dtype fp32"
        )
    });
    let crowded = jobs.clone().filter(|job| machine.runs(job)).find_map(|job| {
        let (threads, cores, ranks) = (job.threads?, machine.environment.cores, job.case.gpus_per_node);
        let (all, cores_text) = (threads * ranks, count(cores, "core"));
        if job.cost.on_cpu.is_some() && ranks > cores {
            return Some(format!(
                "warning: {ranks} ranks of {} share {cores_text}, so that its figures will be unreliable: choose --cases with at \
                 most {}; --device cuda plans for GPUs",
                job.case,
                count(cores, "rank")
            ));
        }
        (threads > 1 && all > cores).then(|| {
            format!(
                "warning: {all} threads of {} share {cores_text}: choose --threads {} or less",
                count(ranks, "rank"),
                cores / ranks
            )
        })
    });
    let is_without_gpu =
        machine.environment.gpu.is_none() && jobs.clone().any(|job| job.cost.on_gpu.is_some() && machine.runs(job));
    let without_gpu = is_without_gpu.then(|| {
        "warning: the driver lists no NVIDIA GPU on this machine (/proc/driver/nvidia/gpus): --device cpu uses its cores"
            .to_owned()
    });
    let most = gpus.last().map_or(u64::MAX, |gpu| gpu.memory.0);
    let fits = |job: &&PlannedJob| job.cost.on_gpu.is_none_or(|cost| cost.bytes().0 <= most);
    let fitting: Vec<&PlannedJob> = jobs.clone().filter(fits).collect();
    let is_partial = fitting.len() < jobs.clone().count();
    let from_flops = || match fitting.is_empty() && is_partial {
        true => Some("time: not estimated, because no case fits a GPU".to_owned()),
        false => {
            let time = time(fitting.into_iter(), machine, cooldown)?;
            Some(format!("{time}{}", if is_partial { "; only the cases that fit a GPU are counted" } else { "" }))
        }
    };
    let from_runs = measured.filter(|time| !time.is_zero());
    let from_runs = from_runs.map(|time| format!("time: about {}, at the speed of the finished runs", roughly(time)));
    let time = from_runs.or_else(from_flops);
    memory.into_iter().chain(time).chain(emulation).chain(crowded).chain(without_gpu).collect()
}

/// GPUs with the same memory.
struct GpuClass {
    /// Name, or `an A100 or H100`.
    name: String,
    memory: Bytes,
}

impl GpuClass {
    /// Returns the GPUs on which the jobs can run, the smallest first: that of this machine if its memory is known.
    fn all(environment: &LaunchEnvironment, jobs: &[(&PlannedJob, MemoryCost)]) -> Vec<GpuClass> {
        let here = environment.gpu.as_deref().and_then(|name| Some((name, device_peak::memory(name)?)));
        if let Some((name, memory)) = here {
            return vec![GpuClass { name: name.to_owned(), memory }];
        }
        let gpus: Vec<&KnownGpu> = gpus_for(jobs.iter().map(|(job, _)| *job)).collect();
        let of_memory = |gpus: &[&KnownGpu]| GpuClass { name: name_of(gpus), memory: gpus[0].memory };
        gpus.chunk_by(|one, other| one.memory == other.memory).map(of_memory).collect()
    }
}

impl fmt::Display for GpuClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({:.0} GB)", self.name, self.memory.gigabytes())
    }
}

/// Returns the known GPUs with the precisions of the jobs, the slowest first.
fn gpus_for<'a>(jobs: impl Iterator<Item = &'a PlannedJob> + Clone) -> impl Iterator<Item = &'static KnownGpu> {
    let dtypes: Vec<Dtype> = jobs.filter_map(|job| job.cost.dtype).collect();
    KNOWN_GPUS.iter().filter(move |gpu| dtypes.iter().all(|dtype| (gpu.speeds)(*dtype).is_some()))
}

/// Returns `an A100 or H100`.
fn name_of(gpus: &[&KnownGpu]) -> String {
    let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name).collect();
    let article = if names.first().is_some_and(|name| name.starts_with(['A', 'H'])) { "an" } else { "a" };
    format!("{article} {}", names.join(" or "))
}

/// Returns a line about the job that needs the most memory of a GPU, and a warning about those that probably do not fit,
/// with the options that help.
fn gpu_memory(jobs: &[(&PlannedJob, MemoryCost)], gpus: &[GpuClass]) -> Vec<String> {
    let bytes = |(_, cost): &&(&PlannedJob, MemoryCost)| cost.bytes().0;
    let (Some(largest), Some(smallest)) = (jobs.iter().max_by_key(bytes), jobs.iter().min_by_key(bytes)) else {
        return Vec::new();
    };
    let mut strategies: BTreeSet<Strategy> = jobs.iter().filter_map(|(job, _)| Some(job.run?.strategy)).collect();
    let has_several = strategies.len() > 1;
    if !has_several {
        strategies.clear();
    }
    let place = |job: &PlannedJob| {
        let run = job.run?;
        let strategy = if has_several { format!(" with {}", run.strategy) } else { String::new() };
        Some(format!("{}{strategy} in {}", run.model.facts().title, run.case))
    };
    let amount = |(job, cost): &(&PlannedJob, MemoryCost), unit: &str| {
        let place = place(job).map(|place| format!(" for {place}")).unwrap_or_default();
        format!("{}{unit}{place}", gigabytes(cost.bytes()))
    };
    let line = format!("memory: at most about {}", amount(largest, " per GPU"));
    let usual = gpus.iter().find(|gpu| gpu.memory.0 >= USUAL_MEMORY.0).or(gpus.last());
    let Some(limit) = usual.map(|gpu| gpu.memory).filter(|limit| largest.1.bytes().0 > limit.0) else {
        let smallest = gpus.iter().find(|gpu| gpu.memory.0 >= largest.1.bytes().0);
        return vec![format!("{line}{}", smallest.map(|gpu| format!(", which fits {gpu}")).unwrap_or_default())];
    };
    let line = match smallest.1.bytes() == largest.1.bytes() {
        true => line,
        false => format!("{line}, and {}", amount(smallest, "")),
    };
    // The most of any job of a case, for each strategy if there are several.
    let mut most: BTreeMap<(Case, Option<Strategy>), u64> = BTreeMap::new();
    for (job, cost) in jobs {
        let strategy = job.run.map(|run| run.strategy).filter(|_| has_several);
        let most = most.entry((job.case, strategy)).or_default();
        *most = cost.bytes().0.max(*most);
    }
    let cases = |is_shown: &dyn Fn(u64) -> bool| {
        let shown = most.iter().filter(|(_, bytes)| is_shown(**bytes)).map(|((case, strategy), _)| match strategy {
            Some(strategy) => format!("{strategy} in {case}"),
            None => case.to_string(),
        });
        joined(&shown.collect::<Vec<_>>(), if has_several { ", " } else { "," })
    };
    let mut above = u64::MAX;
    let mut too_large = Vec::new();
    for gpu in gpus.iter().rev().filter(|gpu| gpu.memory.0 >= limit.0) {
        let cases = cases(&|bytes| bytes > gpu.memory.0 && bytes <= above);
        too_large.extend((!cases.is_empty()).then(|| format!("{cases} may need more than {gpu}")));
        above = gpu.memory.0;
    }
    let all_fit = |is_of: &dyn Fn(Case, Option<Strategy>) -> bool| {
        most.iter().filter(|((case, strategy), _)| is_of(*case, *strategy)).all(|(_, bytes)| *bytes <= limit.0)
    };
    let fitting: BTreeSet<Case> =
        most.keys().map(|(case, _)| *case).filter(|case| all_fit(&|of, _| of == *case)).collect();
    let fitting = joined(&fitting.into_iter().collect::<Vec<_>>(), ",");
    strategies.retain(|strategy| all_fit(&|_, of| of == Some(*strategy)));
    let too_large_jobs = || jobs.iter().filter(|(_, cost)| cost.bytes().0 > limit.0);
    let titles = |run: Option<RunName>| run.map(|run| run.model.facts().title);
    let models: BTreeSet<_> = too_large_jobs().filter_map(|(job, _)| titles(job.run)).collect();
    let is_every_model = jobs.iter().filter_map(|(job, _)| titles(job.run)).all(|title| models.contains(title));
    let models =
        if is_every_model { String::new() } else { format!("{}: ", models.into_iter().collect::<Vec<_>>().join(", ")) };
    let fits_all = |option: &str| too_large_jobs().all(|(_, cost)| cost.options_that_fit(limit).any(|it| it == option));
    let options = ALTERNATIVES.into_iter().filter(|option| fits_all(option));
    // Two options are needed only if neither is enough.
    let options: Vec<&str> = options.collect();
    let is_needed = |option: &&&str| !options.iter().any(|other| other != *option && option.contains(other));
    let mut options: Vec<String> = options.iter().filter(is_needed).map(|option| (*option).to_owned()).collect();
    if !strategies.is_empty() {
        options = vec![format!("--strategies {}", joined(&strategies.into_iter().collect::<Vec<_>>(), ","))];
    } else if options.is_empty() {
        options.extend(option_for_most_cases(jobs, limit));
    }
    let largest_batch = too_large_jobs().map(|(_, cost)| cost.largest_batch(limit)).min().unwrap_or_default();
    let is_global = too_large_jobs().any(|(job, _)| job.run.is_some_and(|run| run.batch.size.is_global()));
    let ways = [
        (!fitting.is_empty(), format!("--cases {fitting}")),
        (largest_batch > 0 && !is_global, format!("--batch-size {largest_batch} or less")),
        (largest_batch > 0 && is_global, "a smaller --global-batch".to_owned()),
        (!options.is_empty(), options.join(", or ")),
        (fitting.is_empty() && largest_batch == 0 && options.is_empty(), "a smaller --model".to_owned()),
    ];
    let (separator, advice) = (if too_large.len() > 1 { ", and " } else { "" }, alternatives(ways));
    vec![line, format!("warning: {models}{}: choose {advice}", too_large.join(separator))]
}

/// Returns the first option with which the most cases fit, with these cases; `None` if no option is enough for any.
fn option_for_most_cases(jobs: &[(&PlannedJob, MemoryCost)], limit: Bytes) -> Option<String> {
    let fits = |cost: &MemoryCost, option: &str| {
        cost.bytes().0 <= limit.0 || cost.options_that_fit(limit).any(|fitting| fitting == option)
    };
    let cases = |option: &str| {
        let cases: BTreeSet<Case> = jobs.iter().map(|(job, _)| job.case).collect();
        let all_fit =
            |case: &Case| jobs.iter().filter(|(job, _)| job.case == *case).all(|(_, cost)| fits(cost, option));
        cases.into_iter().filter(all_fit).collect::<Vec<Case>>()
    };
    let without = cases("").len();
    let candidates = ALTERNATIVES.into_iter().map(|option| (option, cases(option)));
    let candidates = candidates.filter(|(_, cases)| cases.len() > without);
    let (option, cases) = candidates.rev().max_by_key(|(_, cases)| cases.len())?;
    Some(format!("{option} with --cases {}", joined(&cases, ",")))
}

/// Estimate of the time of jobs.
#[derive(Debug, PartialEq)]
struct TimeEstimate {
    shortest: Duration,
    longest: Duration,
    /// Devices to which the two times apply, the slower first, if they are assumed.
    devices: Option<[String; 2]>,
    /// Source of the speed.
    source: String,
    /// Gb/s of a slow and of a fast network, with the time that the exchange between hosts takes there.
    exchange: [(f64, Duration); 2],
}

impl fmt::Display for TimeEstimate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shortest, longest) = (roughly(self.shortest), roughly(self.longest));
        match &self.devices {
            Some([slow, fast]) if slow == fast => write!(formatter, "time: about {shortest} to {longest} on {fast}")?,
            Some([slow, fast]) => write!(formatter, "time: about {shortest} on {fast}, {longest} on {slow}")?,
            None if shortest == longest => write!(formatter, "time: about {shortest}")?,
            None => write!(formatter, "time: about {shortest} to {longest}")?,
        }
        write!(formatter, ", from FLOPs{}", self.source)?;
        let [(slow, longer), (fast, shorter)] = self.exchange;
        if longer.as_secs_f64() < NEGLIGIBLE_EXCHANGE * self.shortest.as_secs_f64() {
            return Ok(());
        }
        let text = |time: Duration| if time.as_secs() == 0 { "under 1 s".to_owned() } else { roughly(time) };
        let [longer, shorter] = [longer, shorter].map(text);
        write!(
            formatter,
            "; communication between hosts: at most {longer} more at {slow} Gb/s per host, {shorter} at {fast} Gb/s"
        )
    }
}

/// Share of the time below which the exchange between hosts is not printed.
const NEGLIGIBLE_EXCHANGE: f64 = 0.02;

/// Estimates the time of the jobs, assuming that all hosts are like this one; `None` if the work of a job is unknown.
fn time<'a>(
    jobs: impl Iterator<Item = &'a PlannedJob> + Clone,
    machine: &ThisMachine,
    cooldown: Duration,
) -> Option<TimeEstimate> {
    let environment = machine.environment;
    let core_speed = LazyCell::new(machine.core_speed);
    let (mut shortest, mut longest, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    let (mut devices, mut source, mut exchanged, mut networks) = (None, String::new(), 0.0, NETWORKS[1]);
    let most = jobs.clone().filter_map(|job| job.cost.on_gpu).map(|cost| cost.bytes().0).max().unwrap_or_default();
    let gpus: Vec<&KnownGpu> = gpus_for(jobs.clone()).filter(|gpu| gpu.memory.0 >= most).collect();
    for job in jobs {
        let dtype = job.cost.dtype?;
        let peak = environment.gpu.as_deref().and_then(|gpu| Some((gpu, device_peak::published(gpu, dtype)?)));
        let (slow, fast) = match peak {
            _ if job.cost.on_cpu.is_some() => {
                // Threads beyond the number of cores share them.
                let share = f64::from(environment.cores) / f64::from(job.case.gpus_per_node);
                let cores = job.threads.map_or(share, |threads| share.min(f64::from(threads)));
                let (slow, fast) = network_speed(dtype, is_emulated(dtype, environment));
                (source, networks) = (" and the speed of these cores".to_owned(), NETWORKS[0]);
                (slow * cores * *core_speed, fast * cores * *core_speed)
            }
            Some((gpu, peak)) => {
                let (slow, fast) = share_of_peak(dtype);
                source = format!(" and the peak of {gpu}");
                // A multiply-accumulate is two operations.
                (slow * peak.0 * 500.0, fast * peak.0 * 500.0)
            }
            None => {
                let speed = |gpu: &KnownGpu| (gpu.speeds)(dtype);
                let (slow, fast) = (speed(gpus.first()?)?, speed(gpus.last()?)?);
                let named = |wanted: f64| {
                    name_of(&gpus.iter().copied().filter(|gpu| speed(gpu) == Some(wanted)).collect::<Vec<_>>())
                };
                devices = Some([named(slow), named(fast)]);
                (slow, fast)
            }
        };
        exchanged += job.cost.between_hosts.gigabytes();
        let start = start(job);
        shortest += start[0] + Duration::try_from_secs_f64(job.cost.work / fast).ok()?;
        longest += start[1] + Duration::try_from_secs_f64(job.cost.work / slow).ok()?;
        count += 1;
    }
    let pauses = cooldown * u32::saturating_sub(count, 1);
    let (shortest, longest) = (shortest + pauses, longest + pauses);
    let exchange = networks.map(|rate| (rate, Duration::try_from_secs_f64(8.0 * exchanged / rate).unwrap_or_default()));
    (count > 0).then_some(TimeEstimate { shortest, longest, devices, source, exchange })
}

/// Returns the shortest and the longest time of the jobs; `None` if the work of a job is unknown.
pub fn shortest_and_longest(jobs: &[PlannedJob], machine: &ThisMachine, cooldown: Duration) -> Option<[Duration; 2]> {
    time(jobs.iter(), machine, cooldown).map(|estimate| [estimate.shortest, estimate.longest])
}

/// Returns the time of `jobs` jobs that together move `bytes` at `rate` (GB/s), with the start of each.
pub fn time_of_transfer(bytes: f64, rate: f64, jobs: usize, device: DeviceKind) -> Duration {
    let [start, _] = START[usize::from(device == DeviceKind::Cuda)];
    start * jobs as u32 + Duration::try_from_secs_f64(bytes / rate / 1e9).unwrap_or_default()
}

/// Formats a duration as `50 s`, `12 min` or `3.5 h`.
pub fn roughly(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 90.0 => format!("{seconds:.0} s"),
        seconds if seconds < 5400.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use ringmark_core::benchmark::optimizer::Optimizer;
    use ringmark_core::benchmark::strategy::StrategyConfig;
    use ringmark_core::benchmark::train::config::TrainConfig;
    use ringmark_core::dimension::Model;

    use super::*;
    use crate::launch::job::job_launch::{JobFiles, ServerRanks};
    use crate::launch::sweep::cost::JobCost;

    fn job(case: &str, train: &TrainConfig) -> PlannedJob {
        let files = JobFiles { log: "a.log".into(), record: "/a.jsonl".into() };
        let case: Case = case.parse().expect("a case");
        let cost = JobCost::for_training(train, case);
        PlannedJob { threads: Some(1), cost, ..PlannedJob::new(case.to_string(), case, files, Vec::new()) }
    }

    fn train(batch_size: u32) -> TrainConfig {
        TrainConfig { batch_size, iterations: 25, ..TrainConfig::default() }
    }

    fn here() -> LaunchEnvironment {
        LaunchEnvironment { cores: 2, ..LaunchEnvironment::default() }
    }

    fn machine<'a>(environment: &'a LaunchEnvironment, hosts: &'a Hosts) -> ThisMachine<'a> {
        let available = Bytes(18_240_000_000);
        ThisMachine { environment, hosts, available, total: available, core_speed: || 40.0 }
    }

    #[test]
    fn oversized_batch_error_suggests_one_that_fits() {
        let check = |case: &str, batch_size: u32, hosts: &str, gigabytes: u64| {
            let hosts = Hosts::parse_list(hosts).expect("hosts");
            let plan = [job("1n1g", &train(1)), job(case, &train(batch_size))];
            let available = Bytes(gigabytes * 1_000_000_000);
            let environment = here();
            let machine = ThisMachine { available, total: Bytes(2 * available.0), ..machine(&environment, &hosts) };
            check_memory(plan.iter(), &machine).map_err(|error| error.to_string())
        };
        assert_eq!(check("1n2g", 8, "localhost:2", 8), Ok(()));
        let error = check("1n2g", 128, "localhost:2", 8).expect_err("does not fit");
        expect!["1n2g with --batch-size 128 needs about 28.3 GB for the 2 ranks on this machine, which has 8.0 GB available: choose --batch-size 30 or less; --device cuda --dry-run plans for GPUs"].assert_eq(&error);
        let (_, advice) = error.split_once("choose --batch-size ").expect("advice");
        let largest: u32 = advice.split(' ').next().expect("a number").parse().expect("a number");
        assert_eq!(check("1n2g", largest, "localhost:2", 8), Ok(()));
        assert!(check("1n2g", largest + 1, "localhost:2", 8).is_err());
        let error = check("1n8g", 1, "localhost:8", 1).expect_err("no batch fits");
        expect!["1n8g with --batch-size 1 needs about 7.6 GB for the 8 ranks on this machine, which has 1.0 GB available: choose --cases with fewer ranks per host, or a smaller --model; --device cuda --dry-run plans for GPUs"].assert_eq(&error);
        let error = check("1n1g", 2000, "localhost:1", 8).expect_err("does not fit");
        expect!["1n1g with --batch-size 2000 needs about 208.8 GB for the 1 rank on this machine, which has 8.0 GB available: choose --batch-size 68 or less; --device cuda --dry-run plans for GPUs"].assert_eq(&error);
        // The shards of the weights are on this machine in any case.
        let sharded = |gigabytes: u64| {
            let (hosts, environment) = (Hosts::parse_list("localhost:4").expect("hosts"), here());
            let strategy = StrategyConfig { strategy: Strategy::Fsdp, ..StrategyConfig::default() };
            let train = TrainConfig { model: Model::Llama1b, batch_size: 1, strategy, ..TrainConfig::default() };
            let run = "1n4g/llama-1b_b1_s2048_fp32_fsdp_1.log".parse().expect("a name");
            let plan = [PlannedJob { run: Some(run), ..job("1n4g", &train) }];
            let available = Bytes(gigabytes * 1_000_000_000);
            let machine = ThisMachine { available, total: Bytes(2 * available.0), ..machine(&environment, &hosts) };
            check_memory(plan.iter(), &machine).expect_err("does not fit").to_string()
        };
        expect![[r#"
            1n4g with --batch-size 1 needs about 65.4 GB for the 4 ranks on this machine, which has 12.0 GB available: choose a smaller --model; --device cuda --dry-run plans for GPUs
            1n4g with --batch-size 1 needs about 65.4 GB for the 4 ranks on this machine, which has 40.0 GB available: choose a smaller --model, or stop other processes; --device cuda --dry-run plans for GPUs"#]].assert_eq(&[sharded(12), sharded(40)].join("\n"));
        // The memory of other hosts is unknown here.
        assert_eq!(check("1n2g", 128, "a:2", 8), Ok(()));
    }

    #[test]
    fn host_memory_is_the_sum_of_ranks_and_servers() {
        let hosts = Hosts::parse_list("a:2,b:2").expect("hosts");
        let of_rank = job("1n1g", &train(8)).memory_of_rank().expect("known");
        let with_servers = |case: &str, on: &[&str]| {
            let hosts = on.iter().map(|host| (*host).to_owned()).collect();
            let servers = ServerRanks { number: 3, hosts, may_lose_ranks: false, memory: Bytes(1_000_000) };
            PlannedJob { servers, ..job(case, &train(8)) }
        };
        let needed = memory_by_host([job("1n1g", &train(8)), with_servers("2n2g", &["s", "t"])].iter(), &hosts);
        let needs =
            |ranks: u64, servers: u64| NeededMemory { ranks: Bytes(ranks * of_rank.0), servers: Bytes(servers) };
        let expected = [("a", needs(2, 0)), ("b", needs(2, 0)), ("s", needs(0, 2_000_000)), ("t", needs(0, 1_000_000))];
        assert_eq!(needed, expected.map(|(host, needed)| (host.to_owned(), needed)).into());
        let shared = memory_by_host([with_servers("2n1g", &[])].iter(), &hosts);
        assert_eq!((shared["a"], shared["b"]), (needs(1, 2_000_000), needs(1, 1_000_000)));
    }

    #[test]
    fn shared_cores_increase_the_time_estimate() {
        let (hosts, environment) = (Hosts::parse_list("localhost:2").expect("hosts"), here());
        let times = |jobs: &[PlannedJob], cooldown| {
            let estimate = time(jobs.iter(), &machine(&environment, &hosts), cooldown)?;
            Some((estimate.shortest, estimate.longest))
        };
        let two = |case: &str| {
            let jobs = [job(case, &train(8)), job(case, &train(8))];
            times(&jobs, Duration::from_secs(30)).expect("the work is known")
        };
        let (shortest, longest) = two("1n2g");
        // 25 iterations of 8 images, 4.089 GMAC each, three times for training, on a core of 40 GMAC/s.
        let iterations = 25.0 * 8.0 * 4.089 * 3.0 / 40.0;
        let seconds = |start: Duration, speed: f64| 2.0 * (start.as_secs_f64() + iterations / speed) + 30.0;
        assert!((shortest.as_secs_f64() - seconds(START[0][0], 2.0)).abs() < 1.0, "{shortest:?}");
        assert!((longest.as_secs_f64() - seconds(START[0][1], 0.6)).abs() < 1.0, "{longest:?}");
        let alone = two("1n1g");
        assert!(alone.0 == shortest && longest - alone.1 < Duration::from_secs(1), "{alone:?}");
        // Four ranks of one thread on two cores take twice as long.
        assert!(two("1n4g").1 > longest * 19 / 10 - Duration::from_secs(60));
        let time_of = |job: PlannedJob| times(&[job], Duration::ZERO);
        let all_threads = PlannedJob { threads: None, ..job("1n2g", &train(8)) };
        assert_eq!(time_of(all_threads), time_of(job("1n2g", &train(8))));
        assert_eq!(time_of(PlannedJob { cost: JobCost::EQUAL, ..job("1n1g", &train(8)) }), None);
        // Each of two hosts sends 25.6 million gradients of 4 bytes 25 times: 2.6 GB.
        let jobs = [job("2n1g", &train(8))];
        let exchange = time(jobs.iter(), &machine(&environment, &hosts), Duration::ZERO).expect("known").exchange;
        let near = |(rate, time): (f64, Duration), expected: f64| {
            assert!((time.as_secs_f64() * rate / 8.0 - expected).abs() < 0.1, "{exchange:?}");
        };
        exchange.iter().for_each(|of| near(*of, 25.0 * 25.6e6 * 4.0 / 1e9));
        assert_eq!(
            [30.0, 100.0, 7200.0].map(|time| roughly(Duration::from_secs_f64(time))),
            ["30 s", "2 min", "2.0 h"]
        );
    }

    #[test]
    fn estimate_lines_contain_only_known_values() {
        let jobs = [job("1n1g", &train(8)), job("1n2g", &train(8))];
        let of_hosts = |hosts: &str, jobs: &[PlannedJob]| {
            let (hosts, environment) = (Hosts::parse_list(hosts).expect("hosts"), here());
            let machine = machine(&environment, &hosts);
            lines(jobs.iter(), &machine, Duration::ZERO, None)
        };
        let lines = of_hosts("localhost:2", &jobs);
        assert_eq!(lines.len(), 2, "{lines:?}");
        expect!["memory: about 1.7 GB per rank, 3.4 GB for 2 ranks on a host; 18.2 GB available here"]
            .assert_eq(&lines[0]);
        expect!["time: about 65 s to 4 min, from FLOPs and the speed of these cores"].assert_eq(&lines[1]);
        let on_gpu = PlannedJob { cost: jobs[0].cost.on_gpus(), ..jobs[0].clone() };
        expect![[r#"
            memory: at most about 1.0 GB per GPU, which fits a V100 (32 GB)
            time: about 8 s on an H100 or H200, 26 s on a V100, from FLOPs
            warning: the driver lists no NVIDIA GPU on this machine (/proc/driver/nvidia/gpus): --device cpu uses its cores"#]]
        .assert_eq(&of_hosts("localhost:2", &[on_gpu]).join("\n"));
        let on_gpu = |gpu: &str, dtype| {
            let hosts = Hosts::parse_list("a:8,b:8").expect("hosts");
            let environment = LaunchEnvironment { gpu: Some(gpu.to_owned()), ..here() };
            let two_hosts = job("2n8g", &TrainConfig { dtype, iterations: 1000, ..train(128) });
            let two_hosts = PlannedJob { cost: two_hosts.cost.on_gpus(), ..two_hosts };
            super::lines([two_hosts].iter(), &machine(&environment, &hosts), Duration::ZERO, None)
                .pop()
                .expect("a line")
        };
        expect![[r#"
            time: about 14 s to 48 s, from FLOPs and the peak of NVIDIA H200; communication between hosts: at most 15 s more at 100 Gb/s per host, under 1 s at 3200 Gb/s
            time: about 22 s on an H100 or H200, 79 s on an A100, from FLOPs; communication between hosts: at most 15 s more at 100 Gb/s per host, under 1 s at 3200 Gb/s"#]]
        .assert_eq(&[on_gpu("NVIDIA H200", Dtype::Bf16), on_gpu("Tesla V100-SXM2-16GB", Dtype::Bf16)].join("\n"));
        let large =
            TrainConfig { model: Model::Llama8b, batch_size: 1, sequence_length: Some(2048), ..TrainConfig::default() };
        let with_strategy = |case: &str, strategy: Strategy| {
            let run = format!("{case}/llama-8b_b1_s2048_fp32_{strategy}_1.log").parse().expect("a name");
            let strategy = StrategyConfig { strategy, ..large.strategy };
            let cost = JobCost::for_training(&TrainConfig { strategy, ..large.clone() }, case.parse().expect("a case"));
            PlannedJob { run: Some(run), cost: cost.on_gpus(), ..job(case, &train(1)) }
        };
        let jobs_of_gpus = ["1n1g", "1n2g", "1n8g"].map(|case| with_strategy(case, Strategy::Fsdp));
        expect![[r#"
            memory: at most about 185.3 GB per GPU for Llama 3.1 8B in 1n1g, and 57.6 GB for Llama 3.1 8B in 1n8g
            warning: 1n1g may need more than an H200 (141 GB), and 1n2g may need more than an A100 or H100 (80 GB): choose --cases 1n8g"#]].assert_eq(&of_hosts("a:8", &jobs_of_gpus)[..2].join("\n"));
        let strategies = [Strategy::Zero1, Strategy::Fsdp].map(|strategy| with_strategy("1n8g", strategy));
        expect![[r#"
            memory: at most about 185.3 GB per GPU for Llama 3.1 8B with zero1 in 1n8g, and 57.6 GB for Llama 3.1 8B with fsdp in 1n8g
            warning: zero1 in 1n8g may need more than an H200 (141 GB): choose --strategies fsdp"#]].assert_eq(&of_hosts("a:8", &strategies)[..2].join("\n"));
        expect!["time: not estimated, because no case fits a GPU"]
            .assert_eq(of_hosts("a:8", &jobs_of_gpus[..1]).last().expect("lines"));
        let images = |batch_size: u32, hosts: &str| {
            let jobs = ["1n1g", "1n4g"].map(|case| {
                let run = format!("{case}/rn50_b{batch_size}_fp32_1.log").parse().expect("a name");
                let job = job(case, &train(batch_size));
                PlannedJob { run: Some(run), cost: job.cost.on_gpus(), ..job }
            });
            of_hosts(hosts, &jobs).join("\n")
        };
        expect![[r#"
            memory: at most about 53.4 GB per GPU for ResNet50-v1b in 1n4g, which fits an A100 or H100 (80 GB)
            time: about 41 s on an H100 or H200, 2 min on an A100, from FLOPs

            memory: at most about 104.2 GB per GPU for ResNet50-v1b in 1n4g
            warning: 1n1g,1n4g may need more than an A100 or H100 (80 GB): choose --batch-size 767 or less
            time: about 65 s to 2 min on an H200, from FLOPs

            memory: at most about 213.1 GB per GPU for ResNet50-v1b in 1n4g
            warning: 1n1g,1n4g may need more than an H200 (141 GB): choose --batch-size 767 or less
            time: not estimated, because no case fits a GPU"#]]
        .assert_eq(&[images(512, "a:4"), images(1000, "a:4"), images(2048, "a:4")].join("\n\n"));
        // The weights of a small network are not what fills the memory, but those of a large one are.
        let adamw = TrainConfig { optimizer: Optimizer::AdamW, dtype: Dtype::Bf16, ..large.clone() };
        let of_ranks = |case: &str| {
            let run = format!("{case}/llama-8b_b1_s2048_bf16_1.log").parse().expect("a name");
            let job = job(case, &adamw);
            PlannedJob { run: Some(run), cost: job.cost.on_gpus(), ..job }
        };
        expect![[r#"
            memory: at most about 211.2 GB per GPU for Llama 3.1 8B in 2n8g
            warning: 1n8g,2n8g may need more than an H200 (141 GB): choose --strategy fsdp
            time: not estimated, because no case fits a GPU"#]]
        .assert_eq(&of_hosts("a:8,b:8", &[of_ranks("1n8g"), of_ranks("2n8g")]).join("\n"));
        let emulated = job("1n1g", &TrainConfig { dtype: Dtype::Bf16, ..train(8) });
        expect![[r#"
            memory: about 1.3 GB per rank; 18.2 GB available here
            time: about 10 min to 34 min, from FLOPs and the speed of these cores
            warning: bf16 is emulated on the CPU, about 20 times slower than fp32: choose --dtype fp32"#]]
        .assert_eq(&of_hosts("localhost:2", &[emulated]).join("\n"));
        let measured = |time| {
            let (hosts, environment) = (Hosts::parse_list("a:2").expect("hosts"), here());
            let machine = machine(&environment, &hosts);
            super::lines(jobs.iter(), &machine, Duration::ZERO, Some(time)).pop().expect("a line")
        };
        expect!["time: about 7 min, at the speed of the finished runs"]
            .assert_eq(&measured(with_start(&jobs[0], Seconds(400.0))));
        // No case uses this machine, though it is among the hosts.
        assert!(!of_hosts("a:2,localhost:2", &jobs)[0].contains("available here"));
    }
}
