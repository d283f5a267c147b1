//! Checks the devices: one for each rank, all of one model, idle and at full speed.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::dimension::{Bytes, DeviceChoice};
use ringmark_core::host::processors::has_part_of_two_nodes;
use ringmark_core::number_text::{count, gigabytes};

use crate::launch::doctor::checks::finding::{Check, Findings, Outlier, Severity, outliers, outliers_among, values};
use crate::launch::doctor::host::HostFacts;
use crate::launch::doctor::probe::{Gpu, Gpus};

/// GPU memory in use on an idle device: the driver's own.
const IDLE_MEMORY: Bytes = Bytes(1_500_000_000);

/// Fraction of the maximum clock below which a busy GPU is slow.
const MIN_CLOCK_FRACTION: f64 = 0.9;

/// NVML's bits for clock reductions, with description and fix.
const SLOW_REASONS: [(u64, &str, &str); 6] = [
    (0x2, "an application clock is set", "nvidia-smi -rac"),
    (0x4, "power cap", "raise the limit (nvidia-smi -pl), or compare only devices with the same limit"),
    (0x8, "hardware slowdown", "check cooling and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"),
    (0x20, "software thermal slowdown", "check cooling: nvidia-smi -q -d TEMPERATURE"),
    (0x40, "hardware thermal slowdown", "check cooling: nvidia-smi -q -d TEMPERATURE"),
    (0x80, "power brake", "check the power supply of the chassis: nvidia-smi -q -d POWER"),
];

/// Returns the number of devices that a rank could use there; `None` if the host runs no ranks, or the worker did not
/// report them.
fn usable_devices(host: &HostFacts) -> Option<u32> {
    let found = host.inspection.as_ref().filter(|_| host.has_ranks())?;
    Some(if found.cuda_missing.is_some() { 0 } else { found.devices })
}

/// Checks that each rank has a device, all of one model.
pub fn check_gpus(findings: &mut Findings, device: DeviceChoice) {
    let somewhere = findings.hosts.iter().any(|host| usable_devices(host).is_some_and(|devices| devices > 0));
    let needed = device == DeviceChoice::Cuda || somewhere;
    let severity = if needed { Severity::Error } else { Severity::Warning };
    for (number, host) in findings.hosts.iter().enumerate().filter(|(_, host)| host.has_ranks()) {
        let Some(probe) = &host.probe else { continue };
        const STUCK: &str = "check dmesg for Xid errors, then reset the device or reboot the host; or use --device cpu";
        match &probe.gpus {
            Gpus::Hang => {
                findings.add(number, Check::Gpus, severity, "nvidia-smi did not respond within 8 s", STUCK);
                continue;
            }
            Gpus::Fail(error) => {
                findings.add(number, Check::Gpus, severity, format!("nvidia-smi failed: {error}"), STUCK);
                continue;
            }
            Gpus::None if needed => {
                let what = if somewhere { "no GPU found, but other hosts have GPUs" } else { "no GPU found" };
                let others = if findings.hosts.len() > 1 { "remove the host from --hosts, " } else { "" };
                let fix = format!(
                    "{others}install the NVIDIA driver, start its container with --gpus all, or use --device cpu"
                );
                findings.error(number, Check::Gpus, what, fix);
                continue;
            }
            Gpus::None | Gpus::Unknown => continue,
            Gpus::Found(_) => {}
        }
        let missing = host.inspection.as_ref().and_then(|found| found.cuda_missing.as_ref());
        if let Some(missing) = missing {
            let what = format!("worker cannot use {}: {missing}", describe_gpus(probe.gpus.list()));
            let fix = "run scripts/setup.sh there to install libtorch's CUDA libraries, or use --device cpu";
            findings.add(number, Check::Gpus, severity, what, fix);
            continue;
        }
        let devices = usable_devices(host).unwrap_or_else(|| probe.gpus.list().len() as u32);
        if devices < host.slots {
            let what = format!("{} ranks planned, but only {devices} GPUs found", host.slots);
            let fix = "lower its slots in --hosts, or find the missing GPUs: nvidia-smi -L, CUDA_VISIBLE_DEVICES, \
                dmesg";
            findings.error(number, Check::Gpus, what, fix);
        }
    }
    let kinds = values(findings.hosts, |host| {
        let gpus = host.probe.as_ref().filter(|_| host.has_ranks())?.gpus.list();
        (!gpus.is_empty()).then(|| describe_gpus(gpus))
    });
    for Outlier { number, value: kind, usual, most } in outliers(&kinds) {
        let what = format!("GPUs are {kind}; {most} have {usual}");
        let fix = "use identical GPUs: the slowest one limits the job";
        findings.warning(number, Check::Gpus, what, fix);
    }
}

/// Lists the models of `gpus`, each once: `NVIDIA H100 80GB HBM3`.
pub fn gpu_models(gpus: &[Gpu]) -> String {
    let models: BTreeSet<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    models.into_iter().collect::<Vec<_>>().join(" and ")
}

/// Formats GPUs as `2 x NVIDIA H100 80GB HBM3`.
fn describe_gpus(gpus: &[Gpu]) -> String {
    let mut kinds: Vec<(&str, u32)> = Vec::new();
    for gpu in gpus {
        match kinds.iter_mut().find(|(name, _)| *name == gpu.name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&gpu.name, 1)),
        }
    }
    let kinds: Vec<String> = kinds.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    kinds.join(" and ")
}

/// Checks that the devices are idle, at full clock and without errors.
pub fn check_gpu_state(findings: &mut Findings) {
    for (number, host) in findings.hosts.iter().enumerate().filter(|(_, host)| host.has_ranks()) {
        let Some(probe) = &host.probe else { continue };
        for gpu in probe.gpus.list() {
            for (what, fix) in gpu_faults(gpu) {
                let what = format!("GPU {}: {what}", gpu.index);
                findings.warning(number, Check::GpuState, what, fix);
            }
        }
    }
}

/// Returns the faults of one GPU, each with its fix.
fn gpu_faults(gpu: &Gpu) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let used = gpu.memory_used.unwrap_or_default();
    if !gpu.processes.is_empty() {
        let what = format!("in use by other processes: {}", gpu.processes.join(", "));
        faults.push((what, "wait for them or stop them: they distort every measurement".to_owned()));
    } else if used.0 > IDLE_MEMORY.0 {
        let total = gpu.memory.unwrap_or_default();
        let what = format!("{} of {} in use, but nvidia-smi shows no process", gigabytes(used), gigabytes(total));
        faults.push((what, "check other containers and defunct processes: fuser -v /dev/nvidia*".to_owned()));
    }
    let reasons = gpu.slow_reasons.unwrap_or_default();
    let clocks = match (gpu.clock, gpu.clock_maximum) {
        (Some(clock), Some(maximum)) => format!(" ({clock} of {maximum} MHz)"),
        _ => String::new(),
    };
    for (_, reason, fix) in SLOW_REASONS.iter().filter(|(bit, ..)| reasons & bit != 0) {
        faults.push((format!("clock is throttled: {reason}{clocks}"), (*fix).to_owned()));
    }
    if let (Some(set), Some(default)) = (gpu.clock_set, gpu.clock_default)
        && set < default
        && reasons & 0x2 == 0
    {
        let what = format!("application clock is {set} MHz; the default is {default} MHz");
        faults.push((what, "nvidia-smi -rac".to_owned()));
    }
    // An idle device lowers its clock by itself.
    if let (Some(0), Some(clock), Some(maximum)) = (gpu.slow_reasons, gpu.clock, gpu.clock_maximum)
        && f64::from(clock) < MIN_CLOCK_FRACTION * f64::from(maximum)
    {
        let what = format!("clock is {clock} of {maximum} MHz for no reported reason");
        faults.push((what, "reset a locked clock: nvidia-smi -rgc".to_owned()));
    }
    if let Some(count) = gpu.uncorrected_errors.filter(|count| *count > 0) {
        let what = format!("{count} uncorrected ECC errors since the driver was loaded");
        faults.push((what, "reset the GPU (nvidia-smi --gpu-reset); replace it if the errors return".to_owned()));
    }
    if gpu.row_failed == Some(true) {
        faults.push(("a faulty memory row could not be replaced".to_owned(), "replace the GPU".to_owned()));
    } else if gpu.row_pending == Some(true) {
        let fix = "reset the GPU (nvidia-smi --gpu-reset), or restart the host";
        faults.push(("a faulty memory row is in use until the next reset".to_owned(), fix.to_owned()));
    }
    if let (Some(lanes), Some(maximum)) = (gpu.pcie_lanes, gpu.pcie_lanes_maximum)
        && lanes < maximum
    {
        let what = format!("PCIe link has {lanes} of {maximum} lanes");
        faults.push((what, "reseat the GPU and its riser; check lspci -vv".to_owned()));
    }
    faults
}

/// Checks that the GPUs of all hosts have the same generation of PCIe.
pub fn check_pcie(findings: &mut Findings) {
    let generations = values(findings.hosts, |host| {
        let gpus = host.probe.as_ref().filter(|_| host.has_ranks())?.gpus.list();
        gpus.iter().map(|gpu| gpu.pcie_generation).min().flatten()
    });
    for Outlier { number, value, usual, most } in outliers(&generations) {
        let what = format!("PCIe generation {value}; {most} have {usual}");
        let fix = "check the slots, the risers and the firmware's settings of PCIe";
        findings.warning(number, Check::GpuState, what, fix);
    }
}

/// Checks that all hosts have the same topology.
pub fn check_topology(findings: &mut Findings) {
    let topologies = values(findings.hosts, |host| {
        let probe = host.probe.as_ref().filter(|_| host.has_ranks())?;
        (!probe.topology.is_empty()).then(|| probe.topology.clone())
    });
    for Outlier { number, value, usual, most } in outliers(&topologies) {
        let differs = value.iter().zip(&usual).find(|(value, usual)| value != usual);
        let (value, usual) = differs.map_or(("more or fewer lines", "others"), |(value, usual)| (value, usual));
        let what = format!("GPU topology differs: `{value}`; {most} have `{usual}` (nvidia-smi topo -m)");
        let fix = "check for a device in another slot, a missing NVLink bridge or network card, or another NUMA \
            setting";
        findings.warning(number, Check::Topology, what, fix);
    }
}

/// Checks that each GPU has as many active NVLink links as most GPUs of its model.
pub fn check_nvlinks(findings: &mut Findings) {
    let hosts = findings.hosts.iter().enumerate().filter(|(_, host)| host.has_ranks());
    let probes = hosts.filter_map(|(number, host)| Some((number, host.probe.as_ref()?)));
    let gpus: Vec<(usize, &Gpu)> =
        probes.flat_map(|(number, probe)| probe.gpus.list().iter().map(move |gpu| (number, gpu))).collect();
    let mut models: BTreeMap<&str, Vec<(usize, u32)>> = BTreeMap::new();
    for (index, (_, gpu)) in gpus.iter().enumerate() {
        if let Some(active) = gpu.nvlinks_active {
            models.entry(&gpu.name).or_default().push((index, active));
        }
    }
    let fewer = models.values().flat_map(|links| outliers_among(links, "GPUs of this model"));
    for Outlier { number: index, value, usual, most } in fewer.filter(|gpu| gpu.value < gpu.usual) {
        let (number, gpu) = gpus[index];
        let what = format!("GPU {}: {value} NVLink links are active; {most} have {usual}", gpu.index);
        let fix = "check nvidia-smi nvlink -s and -e and the fabric manager (systemctl status nvidia-fabricmanager), \
            then reset the GPU; replace it, its board or its bridge if the link stays inactive";
        findings.error(number, Check::Topology, what, fix);
    }
}

/// Checks that all hosts have the same processor, which determines the speed of ranks on the CPU, a core for each rank,
/// and as many ranks on each NUMA node.
pub fn check_processors(findings: &mut Findings, device: DeviceChoice) {
    let any = |host: &HostFacts| usable_devices(host).is_some_and(|devices| devices > 0);
    if device == DeviceChoice::Cuda || findings.hosts.iter().any(any) {
        return;
    }
    let processors = values(findings.hosts, |host| {
        let found = host.inspection.as_ref().filter(|_| host.has_ranks())?;
        Some(format!("{} cores of {}", found.cores, found.processor))
    });
    for Outlier { number, value, usual, most } in outliers(&processors) {
        let what = format!("processor: {value}; {most} have {usual}");
        let fix = "use identical hosts: the slowest one limits the job";
        findings.warning(number, Check::Gpus, what, fix);
    }
    for (number, cores) in values(findings.hosts, |host| Some(host.inspection.as_ref()?.cores)) {
        let HostFacts { host, slots, .. } = &findings.hosts[number];
        if *slots > cores {
            let what = format!("{slots} ranks share {}", count(cores, "core"));
            let fix = format!("give it one rank per core, {host}:{cores}: ranks that share a core scale badly");
            findings.warning(number, Check::Load, what, fix);
        }
    }
    for (number, cores) in values(findings.hosts, |host| Some(host.inspection.as_ref()?.cores_per_node.clone())) {
        let (ranks, nodes) = (findings.hosts[number].slots, cores.len() as u32);
        if ranks > nodes && nodes > 0 && ranks % nodes > 0 && has_part_of_two_nodes(&cores, ranks) {
            let what = format!("{ranks} ranks share {nodes} NUMA nodes: some ranks use cores of two nodes");
            let fix = format!("choose --cases with a multiple of {nodes} ranks per host: a rank is faster on one node");
            findings.warning(number, Check::Numa, what, fix);
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::launch::doctor::checks::fixtures::{self, *};

    #[test]
    fn server_host_needs_no_gpu_or_matching_processor() {
        for device in [DeviceChoice::Auto, DeviceChoice::Cuda] {
            let mut hosts = gpu_hosts(3);
            probe(&mut hosts, 2).gpus = Gpus::None;
            inspection(&mut hosts, 2).cuda_missing = Some("no NVIDIA driver".to_owned());
            assert_finding(&hosts, "c", Check::Gpus, Severity::Error, "no GPU found, but other hosts have GPUs");
            hosts[2].slots = 0;
            assert_eq!(findings_for(&hosts, device), []);
        }
        let mut hosts = fixtures::hosts(3);
        inspection(&mut hosts, 2).cores = 64;
        hosts[2].slots = 0;
        assert_eq!(findings_for(&hosts, DeviceChoice::Cpu), []);
    }

    #[test]
    fn ranks_sharing_cores_are_reported() {
        let mut hosts = fixtures::hosts(2);
        hosts[1].slots = 8;
        assert_finding(&hosts, "b", Check::Load, Severity::Warning, "8 ranks share 2 cores");
        expect!["give it one rank per core, b:2: ranks that share a core scale badly"]
            .assert_eq(&findings_for(&hosts, DeviceChoice::Cpu)[0].fix);
    }

    #[test]
    fn missing_or_mixed_gpus_are_reported() {
        let mut hosts = gpu_hosts(3);
        hosts[1].slots = 4;
        assert_finding(&hosts, "b", Check::Gpus, Severity::Error, "4 ranks planned, but only 2 GPUs found");
        hosts[1].slots = 1;
        let old = Gpu { name: "Tesla V100-SXM2-16GB".to_owned(), ..h100(1) };
        probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0), old]);
        assert_finding(
            &hosts,
            "b",
            Check::Gpus,
            Severity::Warning,
            "GPUs are 1 x NVIDIA H100 80GB HBM3 and 1 x Tesla V100-SXM2-16GB; 2 of 3 hosts have 2 x NVIDIA H100",
        );

        let mut mixed = gpu_hosts(2);
        mixed.push(host(2));
        (0..2).for_each(|number| probe(&mut mixed, number).ports.clear());
        assert_finding(&mixed, "c", Check::Gpus, Severity::Error, "no GPU found, but other hosts have GPUs");
        assert_eq!(findings_for(&mixed, DeviceChoice::Cpu), []);
        assert_eq!(findings_for(&fixtures::hosts(2), DeviceChoice::Cuda).len(), 2);
    }

    #[test]
    fn unusable_gpu_is_reported_with_its_reason() {
        let mut hosts = gpu_hosts(2);
        inspection(&mut hosts, 1).cuda_missing = Some("no CUDA half of libtorch".to_owned());
        inspection(&mut hosts, 1).nccl = None;
        assert_finding(
            &hosts,
            "b",
            Check::Gpus,
            Severity::Error,
            "worker cannot use 2 x NVIDIA H100 80GB HBM3: no CUDA half of libtorch",
        );
        // Without a usable GPU on any host, a job runs on the CPU.
        let mut alone = hosts.split_off(1);
        assert_finding(&alone, "b", Check::Gpus, Severity::Warning, "worker cannot use 2 x NVIDIA H100");
        probe(&mut alone, 0).topology.clear();
        probe(&mut alone, 0).gpus = Gpus::Hang;
        assert_finding(&alone, "b", Check::Gpus, Severity::Warning, "nvidia-smi did not respond");
        probe(&mut alone, 0).gpus = Gpus::Fail("couldn't communicate with the NVIDIA driver".to_owned());
        assert_finding(&alone, "b", Check::Gpus, Severity::Warning, "nvidia-smi failed: couldn't communicate");
    }

    #[test]
    fn busy_throttled_or_faulty_gpu_is_reported() {
        type Fault = (&'static str, fn(&mut Gpu));
        let faults: [Fault; 13] = [
            ("GPU 1: in use by other processes: python3 (process 7, 900 MiB)", |gpu| {
                gpu.processes.push("python3 (process 7, 900 MiB)".to_owned());
            }),
            ("GPU 1: 40.0 GB of 85.5 GB in use, but nvidia-smi shows no process", |gpu| {
                gpu.memory_used = Some(Bytes(40_000_000_000))
            }),
            ("GPU 1: clock is throttled: hardware slowdown (345 of 1980 MHz)", |gpu| gpu.slow_reasons = Some(0x8)),
            ("software thermal slowdown", |gpu| gpu.slow_reasons = Some(0x20)),
            ("hardware thermal slowdown", |gpu| gpu.slow_reasons = Some(0x40)),
            ("power brake", |gpu| gpu.slow_reasons = Some(0x80)),
            ("power cap", |gpu| gpu.slow_reasons = Some(0x5)),
            ("an application clock is set", |gpu| (gpu.slow_reasons, gpu.clock_set) = (Some(0x2), Some(1200))),
            ("application clock is 1200 MHz; the default is 1980 MHz", |gpu| gpu.clock_set = Some(1200)),
            ("3 uncorrected ECC errors", |gpu| gpu.uncorrected_errors = Some(3)),
            ("GPU 1: PCIe link has 8 of 16 lanes", |gpu| gpu.pcie_lanes = Some(8)),
            ("a faulty memory row is in use until the next reset", |gpu| gpu.row_pending = Some(true)),
            ("a faulty memory row could not be replaced", |gpu| gpu.row_failed = Some(true)),
        ];
        for (text, break_it) in faults {
            let mut hosts = gpu_hosts(2);
            let mut gpu = h100(1);
            break_it(&mut gpu);
            probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0), gpu]);
            assert_finding(&hosts, "b", Check::GpuState, Severity::Warning, text);
            assert_eq!(findings_for(&hosts, DeviceChoice::Cpu), []);
        }
        let at_work = |clock| gpu_faults(&Gpu { slow_reasons: Some(0), clock: Some(clock), ..h100(0) });
        assert_eq!(at_work(1950), []);
        expect!["clock is 1410 of 1980 MHz for no reported reason"].assert_eq(&at_work(1410)[0].0);
        // Missing values of the driver are not a fault.
        assert_eq!(gpu_faults(&Gpu::default()), []);
    }

    #[test]
    fn ranks_that_use_cores_of_two_nodes_are_reported() {
        let found = |slots: u32, nodes: &[u32]| {
            let mut hosts = fixtures::hosts(2);
            for host in &mut hosts {
                host.slots = slots;
            }
            for number in 0..2 {
                let inspection = inspection(&mut hosts, number);
                (inspection.cores, inspection.cores_per_node) = (nodes.iter().sum(), nodes.to_vec());
            }
            findings_for(&hosts, DeviceChoice::Auto)
        };
        let three = found(3, &[16, 16]);
        assert_eq!((three.len(), three[1].check, three[1].severity), (2, Check::Numa, Severity::Warning));
        expect!["3 ranks share 2 NUMA nodes: some ranks use cores of two nodes"].assert_eq(&three[1].what);
        for slots in [1, 2, 4, 32] {
            assert_eq!(found(slots, &[16, 16]), []);
        }
        assert_eq!(found(3, &[32]), []);
        // Three ranks of two cores leave a core of each node unused.
        assert_eq!(found(3, &[4, 4]), []);
    }

    #[test]
    fn lower_pcie_generation_is_reported() {
        let mut hosts = gpu_hosts(3);
        probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0), Gpu { pcie_generation: Some(4), ..h100(1) }]);
        let text = "PCIe generation 4; 2 of 3 hosts have 5";
        assert_finding(&hosts, "b", Check::GpuState, Severity::Warning, text);
    }

    #[test]
    fn different_topology_is_reported() {
        let mut hosts = gpu_hosts(3);
        probe(&mut hosts, 0).topology[1] = "GPU0 X PHB".to_owned();
        let text = "`GPU0 X PHB`; 2 of 3 hosts have `GPU0 X NV18`";
        assert_finding(&hosts, "a", Check::Topology, Severity::Warning, text);
    }

    #[test]
    fn inactive_nvlink_is_an_error_unless_all_gpus_of_the_model_have_it() {
        let mut hosts = gpu_hosts(2);
        let one_inactive = Gpu { nvlinks_active: Some(17), ..h100(1) };
        probe(&mut hosts, 1).gpus = Gpus::Found(vec![h100(0), one_inactive]);
        let text = "GPU 1: 17 NVLink links are active; 3 of 4 GPUs of this model have 18";
        assert_finding(&hosts, "b", Check::Topology, Severity::Error, text);
        assert_eq!(findings_for(&hosts, DeviceChoice::Cpu), []);
        // GPUs without a bridge.
        for number in 0..2 {
            let without = |index| Gpu { nvlinks_active: Some(0), ..h100(index) };
            probe(&mut hosts, number).gpus = Gpus::Found(vec![without(0), without(1)]);
        }
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
    }

    #[test]
    fn processors_are_compared_only_without_gpus() {
        let mut hosts = hosts(3);
        inspection(&mut hosts, 2).cores = 4;
        assert_finding(
            &hosts,
            "c",
            Check::Gpus,
            Severity::Warning,
            "processor: 4 cores of AMD EPYC; 2 of 3 hosts \
             have 2 cores",
        );
        let mut hosts = gpu_hosts(3);
        inspection(&mut hosts, 2).cores = 1;
        assert_eq!(findings_for(&hosts, DeviceChoice::Auto), []);
    }
}
