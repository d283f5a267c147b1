//! Facts that a host reports without the worker: the probe script and the parser of its output.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ringmark_core::dimension::{Bytes, Seconds};
use ringmark_core::host::environment::plain_lines;
use schemars::JsonSchema;
use serde::Serialize;

/// Probe script, for `sh -s -- WORKER FOLDER SEVERAL DATA..`.
pub const SCRIPT: &str = include_str!("probe.sh");

/// The script's first line. The host may print a greeting before it.
const MARK: &str = "ringmark-probe=1";

/// Facts reported by one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Probe {
    /// Host name, as the host reports it.
    pub name: String,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Seconds since 1970 UTC when the script began.
    #[serde(rename = "clock_unix_seconds")]
    pub clock: Option<Seconds>,
    /// Load average of the last minute: threads running or waiting for a processor.
    pub load: Option<f64>,
    /// Threads running or waiting for a processor at this moment, including one of the probe.
    #[serde(rename = "runnable_threads")]
    pub runnable: Option<u32>,
    /// Addresses of the ssh client and the ssh server; `None` without ssh.
    pub connection: Option<(IpAddr, IpAddr)>,
    /// Memory that a process may lock; `None` if unlimited, by the limit itself or through CAP_IPC_LOCK.
    #[serde(rename = "memlock_bytes")]
    pub memlock: Option<Bytes>,
    /// The file at the worker's path.
    pub worker: WorkerFile,
    /// True if a command run by ssh finds mpirun's daemon.
    pub orted: bool,
    /// Version line of mpirun; empty if it is not installed.
    pub mpirun: String,
    /// Interface settings in the host's Open MPI configuration files, as `btl_tcp_if_exclude=lo in /etc/...`. Read
    /// only if there are several hosts.
    pub mpi_settings: Vec<String>,
    /// File system of /dev/shm.
    pub shared_memory: Option<FileSystemSpace>,
    /// File system of the temporary folder.
    pub temporary: Option<FileSystemSpace>,
    /// File system of the results.
    pub results: Option<FileSystemSpace>,
    /// True if the results folder is writable; `None` if it does not exist.
    pub results_folder: Option<bool>,
    /// State of each data path, in the order of the request.
    pub data: Vec<DataState>,
    /// InfiniBand and RoCE ports.
    pub ports: Vec<Port>,
    /// Frequency governors of the processors, each once; empty if the kernel does not set the frequency.
    pub governors: Vec<String>,
    /// Driver of the processors' frequency, as `intel_pstate`; empty without one.
    pub frequency_driver: String,
    /// True if the kernel module `nvidia_peermem` is loaded, with which InfiniBand reads the memory of GPUs.
    pub has_peer_memory: bool,
    /// Variant of NVIDIA's kernel module; `None` if it is not loaded.
    pub nvidia_module: Option<NvidiaModule>,
    /// Errors of GPUs in the kernel log; empty if the log cannot be read.
    pub xids: Vec<Xid>,
    /// NVIDIA devices.
    pub gpus: Gpus,
    /// Lines of `nvidia-smi topo -m`.
    pub topology: Vec<String>,
    /// Last output of the script if it did not finish.
    pub stopped_after: Option<String>,
}

/// State of the file at the worker's path.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(tag = "state", content = "sha256", rename_all = "snake_case")]
pub enum WorkerFile {
    /// The host has no program that computes a SHA-256.
    #[default]
    Unknown,
    /// No such file.
    Missing,
    /// The file is not executable.
    Refused,
    /// SHA-256 of the file.
    #[serde(rename = "found")]
    Hash(String),
}

/// State of a data path.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DataState {
    /// No answer in time.
    Unknown,
    /// No such file or folder.
    Missing,
    /// The path is not readable.
    Refused,
    /// A regular file.
    File {
        /// File size.
        #[serde(rename = "size_bytes")]
        size: Bytes,
    },
    /// Directory.
    Folder {
        /// Number of files and folders directly in it.
        entries: u64,
    },
}

impl DataState {
    /// Returns true for a readable file or folder.
    pub fn is_readable(&self) -> bool {
        matches!(self, DataState::File { .. } | DataState::Folder { .. })
    }
}

impl fmt::Display for DataState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataState::Unknown => formatter.write_str("unknown"),
            DataState::Missing => formatter.write_str("missing"),
            DataState::Refused => formatter.write_str("refused"),
            DataState::File { size } => write!(formatter, "a file of {} bytes", size.0),
            DataState::Folder { entries } => write!(formatter, "a folder with {entries} entries"),
        }
    }
}

/// Size of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct FileSystemSpace {
    /// Total space.
    #[serde(rename = "size_bytes")]
    pub size: Bytes,
    /// Free space.
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
}

/// A port of an InfiniBand or RoCE device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Port {
    /// Device and port number, as `mlx5_0:1`.
    pub name: String,
    /// Logical state: `ACTIVE`, `DOWN`, `INIT`.
    pub state: String,
    /// Physical state: `LinkUp`, `Disabled`, `Polling`.
    pub physical: String,
    /// Link layer: `InfiniBand`, or `Ethernet` for RoCE.
    pub layer: String,
    /// Rate, as `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// True if a program can open the device in `/dev/infiniband`. A container may show a port that it cannot open.
    pub can_be_opened: bool,
    /// Error counters of the kernel that are not 0, by name, as `symbol_error`.
    pub errors: BTreeMap<String, u64>,
}

/// Variant of NVIDIA's kernel module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NvidiaModule {
    /// The open kernel module, which supports dma-buf.
    Open,
    /// The proprietary kernel module.
    Closed,
}

/// An error of a GPU that the driver wrote to the kernel log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Xid {
    /// PCI address of the GPU, as `0000:3b:00`.
    pub address: String,
    /// Number of the error.
    pub number: u32,
    /// Times it occurred since boot.
    pub count: u32,
}

impl Port {
    /// Returns true if the port carries data.
    pub fn is_up(&self) -> bool {
        self.state == "ACTIVE"
    }
}

/// Result of nvidia-smi.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[serde(tag = "state", content = "answer", rename_all = "snake_case")]
pub enum Gpus {
    /// nvidia-smi was not run: the script stopped earlier.
    #[default]
    Unknown,
    /// nvidia-smi is not installed.
    None,
    /// nvidia-smi did not finish in time.
    #[serde(rename = "hangs")]
    Hang,
    /// nvidia-smi failed, with this error.
    #[serde(rename = "failed")]
    Fail(String),
    /// The devices.
    #[serde(rename = "found")]
    Found(Vec<Gpu>),
}

impl Gpus {
    /// Returns the usable devices.
    pub fn list(&self) -> &[Gpu] {
        match self {
            Gpus::Found(gpus) => gpus,
            _ => &[],
        }
    }
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct Gpu {
    /// Index in nvidia-smi.
    pub index: String,
    /// Unique identifier, as `GPU-8f...`.
    pub uuid: String,
    /// Product name, as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Version of the driver.
    pub driver: String,
    /// Total memory.
    #[serde(rename = "memory_bytes")]
    pub memory: Option<Bytes>,
    /// Memory in use.
    #[serde(rename = "memory_used_bytes")]
    pub memory_used: Option<Bytes>,
    /// Current clock of the multiprocessors, in MHz.
    #[serde(rename = "clock_mhz")]
    pub clock: Option<u32>,
    /// Maximum clock of the multiprocessors, in MHz.
    #[serde(rename = "clock_maximum_mhz")]
    pub clock_maximum: Option<u32>,
    /// Configured application clock, in MHz.
    #[serde(rename = "clock_set_mhz")]
    pub clock_set: Option<u32>,
    /// Default application clock, in MHz.
    #[serde(rename = "clock_default_mhz")]
    pub clock_default: Option<u32>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub uncorrected_errors: Option<u64>,
    /// Generation of PCIe that the GPU and its slot have in common.
    pub pcie_generation: Option<u32>,
    /// Lanes of the PCIe link in use.
    pub pcie_lanes: Option<u32>,
    /// Lanes of the PCIe link that the GPU and its slot have in common.
    pub pcie_lanes_maximum: Option<u32>,
    /// Active NVLink links; `None` for a GPU without NVLink.
    pub nvlinks_active: Option<u32>,
    /// NVLink links, active or not.
    pub nvlinks: Option<u32>,
    /// True if a faulty memory row is replaced at the next reset; `None` if the GPU has no spare rows.
    pub row_pending: Option<bool>,
    /// True if a faulty memory row could not be replaced.
    pub row_failed: Option<bool>,
    /// NVML's clock throttle reasons, as a bit mask.
    pub slow_reasons: Option<u64>,
    /// Programs that use it.
    pub processes: Vec<String>,
}

impl Probe {
    /// Parses the script's output, even if it is incomplete. `None` if the script did not start.
    pub fn parse(text: &str) -> Option<Probe> {
        let mut answers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut lines = text.lines().skip_while(|line| *line != MARK);
        lines.next()?;
        let mut last = None;
        for line in lines {
            if let Some((key, value)) = line.split_once('=') {
                answers.entry(key).or_default().push(value.trim());
                last = Some(key);
            }
        }
        let all = |key: &str| answers.get(key).map(Vec::as_slice).unwrap_or_default();
        let first = |key: &str| all(key).first().copied();
        let text = |key: &str| first(key).unwrap_or_default().to_owned();
        Some(Probe {
            name: text("name"),
            kernel: text("kernel"),
            clock: first("clock").and_then(|clock| clock.parse().ok()).map(Seconds),
            load: first("load").and_then(|load| load.parse().ok()),
            runnable: first("runnable").and_then(|threads| threads.parse().ok()),
            connection: first("connection").and_then(connection),
            memlock: first("memlock_kib").and_then(|limit| limit.parse().ok()).map(kibibytes),
            worker: match first("worker_sha256") {
                Some(hash) => WorkerFile::Hash(hash.to_owned()),
                None if first("worker_missing").is_some() => WorkerFile::Missing,
                None if first("worker_refused").is_some() => WorkerFile::Refused,
                None => WorkerFile::Unknown,
            },
            orted: first("orted").is_some(),
            mpirun: text("mpirun"),
            mpi_settings: all("mpi_setting").iter().map(|setting| (*setting).to_owned()).collect(),
            shared_memory: first("shm_kib").and_then(space),
            temporary: first("temporary_kib").and_then(space),
            results: first("results_kib").and_then(space),
            results_folder: first("results_present").map(|_| first("results_writable").is_some()),
            data: all("data").iter().map(|line| data(line)).collect(),
            ports: ports(all("port"), all("port_error")),
            governors: all("governor").iter().map(|governor| (*governor).to_owned()).collect(),
            frequency_driver: text("frequency_driver"),
            has_peer_memory: first("peer_memory").is_some(),
            nvidia_module: match first("nvidia_module") {
                Some("open") => Some(NvidiaModule::Open),
                Some("closed") => Some(NvidiaModule::Closed),
                _ => None,
            },
            xids: all("xid").iter().filter_map(|line| xid(line)).collect(),
            gpus: gpus(first("gpus"), all("gpus_error"), all("gpu"), all("process"), all("remapped"), all("nvlink")),
            topology: plain_lines(all("topology")).map(|line| words(&line)).collect(),
            stopped_after: first("end").is_none().then(|| last.unwrap_or("nothing").to_owned()),
        })
    }
}

/// Parses `SSH_CONNECTION`: the client's address and port, the server's address and port.
fn connection(text: &str) -> Option<(IpAddr, IpAddr)> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    Some((fields.first()?.parse().ok()?, fields.get(2)?.parse().ok()?))
}

fn kibibytes(count: u64) -> Bytes {
    Bytes(count.saturating_mul(1 << 10))
}

fn mebibytes(count: u64) -> Bytes {
    Bytes(count.saturating_mul(1 << 20))
}

/// Parses `SIZE FREE`, in KiB.
fn space(text: &str) -> Option<FileSystemSpace> {
    let (size, free) = text.split_once(' ')?;
    Some(FileSystemSpace { size: kibibytes(size.parse().ok()?), free: kibibytes(free.parse().ok()?) })
}

/// Parses `file 110024`, `folder 1000`, `missing`, `refused` or an empty string.
fn data(text: &str) -> DataState {
    let (state, number) = text.split_once(' ').unwrap_or((text, ""));
    let number = number.trim().parse();
    match (state, number) {
        ("missing", _) => DataState::Missing,
        ("refused", _) => DataState::Refused,
        ("file", Ok(bytes)) => DataState::File { size: Bytes(bytes) },
        ("folder", Ok(entries)) => DataState::Folder { entries },
        _ => DataState::Unknown,
    }
}

/// Parses ports and their errors, as `mlx5_0:1 symbol_error 12`.
fn ports(lines: &[&str], errors: &[&str]) -> Vec<Port> {
    let mut ports: Vec<Port> = lines.iter().filter_map(|line| port(line)).collect();
    for line in errors {
        let mut fields = line.split(' ');
        let (name, counter, errors) = (fields.next(), fields.next(), fields.next());
        let errors = errors.and_then(|errors| errors.parse().ok());
        let port = ports.iter_mut().find(|port| Some(port.name.as_str()) == name);
        if let (Some(port), Some(counter), Some(errors)) = (port, counter, errors) {
            port.errors.insert(counter.to_owned(), errors);
        }
    }
    ports
}

/// Parses `2 0000:3b:00 79`: how often, the address and the number.
fn xid(text: &str) -> Option<Xid> {
    let mut fields = text.split(' ');
    let (count, address, number) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Xid { address: address.to_owned(), number: number.parse().ok()?, count: count.parse().ok()? })
}

/// Parses `mlx5_0:1|4: ACTIVE|5: LinkUp|InfiniBand|400 Gb/sec (4X NDR)|open`.
fn port(text: &str) -> Option<Port> {
    let mut fields = text.split('|');
    let mut next = || fields.next().map(str::trim);
    let name = next()?.to_owned();
    let word = |text: &str| text.split_once(": ").map_or(text, |(_, word)| word).to_owned();
    Some(Port {
        name,
        state: word(next()?),
        physical: word(next()?),
        layer: next()?.to_owned(),
        rate: next()?.to_owned(),
        can_be_opened: next()? == "open",
        errors: BTreeMap::new(),
    })
}

fn gpus(
    kind: Option<&str>,
    error: &[&str],
    lines: &[&str],
    processes: &[&str],
    remapped: &[&str],
    nvlinks: &[&str],
) -> Gpus {
    let fields = match kind {
        None => return Gpus::Unknown,
        Some("hang") => return Gpus::Hang,
        Some("none") => return Gpus::None,
        Some("fail") => return Gpus::Fail(error.join(" ")),
        Some(fields) => fields,
    };
    let mut found: Vec<Gpu> = lines.iter().map(|line| gpu(fields, line)).collect();
    for line in processes {
        let mut fields = line.splitn(4, ',').map(str::trim);
        let (uuid, process, memory, name) = (fields.next(), fields.next(), fields.next(), fields.next());
        if let (Some(gpu), Some(process)) = (found.iter_mut().find(|gpu| Some(gpu.uuid.as_str()) == uuid), process) {
            let (name, memory) = (name.unwrap_or("?"), memory.unwrap_or("?"));
            gpu.processes.push(format!("{name} (process {process}, {memory} MiB)"));
        }
    }
    for line in remapped {
        let mut fields = line.split(',').map(str::trim);
        if let Some(gpu) = fields.next().and_then(|uuid| found.iter_mut().find(|gpu| gpu.uuid == uuid)) {
            // A driver prints words or numbers; `[N/A]` is neither.
            let mut flag = || match fields.next()? {
                "Yes" | "1" => Some(true),
                "No" | "0" => Some(false),
                _ => None,
            };
            (gpu.row_pending, gpu.row_failed) = (flag(), flag());
        }
    }
    for line in nvlinks {
        let mut fields = line.split(' ');
        if let Some(gpu) = fields.next().and_then(|uuid| found.iter_mut().find(|gpu| gpu.uuid == uuid)) {
            let mut number = || fields.next()?.parse().ok();
            (gpu.nvlinks_active, gpu.nvlinks) = (number(), number());
        }
    }
    Gpus::Found(found)
}

fn gpu(fields: &str, line: &str) -> Gpu {
    let values: BTreeMap<&str, &str> = fields.split(',').zip(line.split(',').map(str::trim)).collect();
    let text = |field: &str| values.get(field).copied().unwrap_or_default().to_owned();
    // Values such as `[N/A]` are not numbers.
    let number = |field: &str| values.get(field).and_then(|value| value.parse::<u64>().ok());
    let small = |field: &str| number(field).and_then(|value| u32::try_from(value).ok());
    let reasons = ["clocks_event_reasons.active", "clocks_throttle_reasons.active"];
    let reasons = reasons.iter().find_map(|field| values.get(field)?.strip_prefix("0x"));
    Gpu {
        index: text("index"),
        uuid: text("uuid"),
        name: text("name"),
        driver: text("driver_version"),
        memory: number("memory.total").map(mebibytes),
        memory_used: number("memory.used").map(mebibytes),
        clock: small("clocks.current.sm"),
        clock_maximum: small("clocks.max.sm"),
        clock_set: small("clocks.applications.graphics"),
        clock_default: small("clocks.default_applications.graphics"),
        uncorrected_errors: number("ecc.errors.uncorrected.volatile.total"),
        pcie_generation: small("pcie.link.gen.max"),
        pcie_lanes: small("pcie.link.width.current"),
        pcie_lanes_maximum: small("pcie.link.width.max"),
        nvlinks_active: None,
        nvlinks: None,
        row_pending: None,
        row_failed: None,
        slow_reasons: reasons.and_then(|reasons| u64::from_str_radix(reasons, 16).ok()),
        processes: Vec::new(),
    }
}

/// Reduces the space between columns to one blank.
fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_probe_output_is_parsed() {
        let text = "\
            Welcome to node a, name=wrong\n\
            ringmark-probe=1\n\
            connection=10.77.0.1 50022 10.77.0.2 22\n\
            clock=1763719323.250000000\n\
            name=a\n\
            kernel=Linux 6.1.0\n\
            memlock_kib=unlimited\n\
            worker_sha256=0b98\n\
            orted=/usr/bin/orted\n\
            mpirun=mpirun (Open MPI) 4.1.4\n\
            shm_kib=65536 65000\n\
            results_present=1\n\
            results_writable=1\n\
            results_kib=2000 1000\n\
            data=file 110024\n\
            data=\n\
            data=folder 1000\n\
            port=mlx5_0:1|4: ACTIVE|5: LinkUp|InfiniBand|400 Gb/sec (4X NDR)|open\n\
            port=mlx5_1:1|1: DOWN|3: Disabled|Ethernet|40 Gb/sec (4X QDR)|closed\n\
            port_error=mlx5_1:1 link_downed 4\n\
            governor=performance\n\
            frequency_driver=intel_pstate\n\
            peer_memory=nvidia_peermem\n\
            nvidia_module=open\n\
            xid=2 0000:3b:00 79\n\
            gpus=none\n\
            end=1\n";
        let probe = Probe::parse(text).expect("probe output starts");
        assert_eq!((probe.name.as_str(), probe.clock, probe.memlock), ("a", Some(Seconds(1_763_719_323.25)), None));
        assert_eq!(probe.connection, Some((IpAddr::from([10, 77, 0, 1]), IpAddr::from([10, 77, 0, 2]))));
        assert_eq!((probe.worker, probe.orted), (WorkerFile::Hash("0b98".to_owned()), true));
        assert_eq!(probe.shared_memory, Some(FileSystemSpace { size: Bytes(67_108_864), free: Bytes(66_560_000) }));
        assert_eq!((probe.results_folder, probe.temporary), (Some(true), None));
        let records = DataState::File { size: Bytes(110_024) };
        assert_eq!(probe.data, [records, DataState::Unknown, DataState::Folder { entries: 1000 }]);
        let port = |port: &Port| (port.rate.clone(), port.is_up(), port.can_be_opened);
        let ports: Vec<(String, bool, bool)> = probe.ports.iter().map(port).collect();
        let rates = ["400 Gb/sec (4X NDR)".to_owned(), "40 Gb/sec (4X QDR)".to_owned()];
        assert_eq!(ports, [(rates[0].clone(), true, true), (rates[1].clone(), false, false)]);
        let errors: Vec<_> = probe.ports.iter().map(|port| port.errors.get("link_downed")).collect();
        assert_eq!(errors, [None, Some(&4)]);
        assert_eq!(
            (&probe.governors[..], &probe.frequency_driver[..]),
            (&["performance".to_owned()][..], "intel_pstate")
        );
        assert_eq!((probe.has_peer_memory, probe.nvidia_module), (true, Some(NvidiaModule::Open)));
        assert_eq!(probe.xids, [Xid { address: "0000:3b:00".to_owned(), number: 79, count: 2 }]);
        assert_eq!((probe.gpus, probe.stopped_after), (Gpus::None, None));
    }

    #[test]
    fn incomplete_probe_output_leaves_gpus_unknown() {
        assert_eq!(Probe::parse("bash: sh: command not found\n"), None);
        let probe = Probe::parse("ringmark-probe=1\nname=a\nmemlock_kib=8192\nshm_k").expect("probe output starts");
        assert_eq!((probe.gpus, probe.memlock), (Gpus::Unknown, Some(Bytes(8_388_608))));
        assert_eq!(probe.stopped_after.as_deref(), Some("memlock_kib"));
        let failed = Probe::parse("ringmark-probe=1\ngpus=fail\ngpus_error=NVIDIA-SMI has failed because\nend=1\n");
        assert_eq!(failed.expect("probe output starts").gpus, Gpus::Fail("NVIDIA-SMI has failed because".to_owned()));
    }

    #[test]
    fn gpu_lines_are_parsed_by_field_name() {
        let text = "\
            ringmark-probe=1\n\
            gpus=index,uuid,name,driver_version,memory.total,memory.used,clocks.current.sm,clocks.max.sm,\
            ecc.errors.uncorrected.volatile.total,clocks.applications.graphics,clocks.default_applications.graphics,\
            pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max,clocks_event_reasons.active\n\
            gpu=0, GPU-aa, NVIDIA H100 80GB HBM3, 550.54.15, 81559, 1024, 345, 1980, 0, 1980, 1980, 5, 8, 16, 0x0000000000000001\n\
            gpu=1, GPU-bb, NVIDIA H100 80GB HBM3, 550.54.15, 81559, 0, 1200, 1980, 2, [N/A], [N/A], [N/A], 16, 16, 0x0000000000000028\n\
            remapped=GPU-aa, Yes, No\n\
            remapped=GPU-bb, [N/A], [N/A]\n\
            nvlink=GPU-bb 17 18\n\
            process=GPU-aa, 4711, 1010, /usr/bin/python3, with a comma\n\
            topology=\t\u{1b}[4mGPU0\tGPU1\u{1b}[0m\n\
            topology=GPU0\t X \tNV18\n\
            topology=\n\
            end=1\n";
        let probe = Probe::parse(text).expect("probe output starts");
        let [first, second] = probe.gpus.list() else { panic!("{:?}", probe.gpus) };
        assert_eq!((first.name.as_str(), first.driver.as_str()), ("NVIDIA H100 80GB HBM3", "550.54.15"));
        assert_eq!((first.memory, first.memory_used), (Some(mebibytes(81_559)), Some(mebibytes(1024))));
        assert_eq!((first.clock, first.clock_maximum, first.clock_set), (Some(345), Some(1980), Some(1980)));
        assert_eq!((first.slow_reasons, first.uncorrected_errors), (Some(1), Some(0)));
        assert_eq!(first.processes, ["/usr/bin/python3, with a comma (process 4711, 1010 MiB)"]);
        assert_eq!((second.slow_reasons, second.uncorrected_errors, second.clock_set), (Some(0x28), Some(2), None));
        let links = |gpu: &Gpu| (gpu.pcie_generation, gpu.pcie_lanes, gpu.pcie_lanes_maximum);
        assert_eq!((links(first), links(second)), ((Some(5), Some(8), Some(16)), (None, Some(16), Some(16))));
        let rows = |gpu: &Gpu| (gpu.row_pending, gpu.row_failed);
        assert_eq!((rows(first), rows(second)), ((Some(true), Some(false)), (None, None)));
        assert_eq!((first.nvlinks, second.nvlinks_active, second.nvlinks), (None, Some(17), Some(18)));
        assert_eq!(probe.topology, ["GPU0 GPU1", "GPU0 X NV18"]);
    }
}
