//! Environment of a run: machine, devices, libraries, and the variables that affect communication.
//!
//! Variables are recorded by allow-list only: an environment contains secrets, and a record is made to be shared.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, DeviceKind};
use crate::host::binding::Binding;
use crate::host::host_list::compact;
use crate::host::inspection::INTERFACE_VARIABLE;

/// Host and device of one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankPlace {
    /// Global rank, from 0.
    pub rank: u32,
    /// Rank within its host, from 0.
    pub local_rank: u32,
    /// Host name.
    pub host: String,
    /// Kind of device.
    pub device: DeviceKind,
    /// Marketing name of GPU or processor.
    pub device_name: String,
    /// CPU threads of the rank.
    pub threads: u32,
    /// Process number on its host.
    pub process: u32,
    /// Processors to which the rank is bound; `None` if it is not, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<Binding>,
    /// Memory of the GPU, or the rank's share of the host's memory; `None` in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

impl RankPlace {
    /// Returns a rank with one thread, for tests.
    pub fn on_cpu(rank: u32, local_rank: u32, host: &str) -> RankPlace {
        let (host, device_name) = (host.to_owned(), "processor".to_owned());
        let process = 100 + rank;
        let (binding, memory) = (None, None);
        RankPlace { rank, local_rank, host, device: DeviceKind::Cpu, device_name, threads: 1, process, binding, memory }
    }
}

/// Environment as found by rank 0.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Version of ringmark-worker.
    pub ringmark_version: String,
    /// Version of libtorch, such as `2.11.0`.
    pub libtorch_version: String,
    /// First line of the MPI library's version text.
    pub mpi_version: String,
    /// Version of NCCL, if loaded.
    pub nccl_version: Option<String>,
    /// Version of the CUDA runtime that libtorch was built for and has loaded; `None` in builds for CPUs and in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_version: Option<String>,
    /// Version of the NVIDIA driver, if installed.
    pub driver_version: Option<String>,
    /// Reason for not using CUDA; `None` if it is used.
    pub cuda_missing: Option<String>,
    /// Conditions that make CUDA slower than it could be, as sentences; absent in older records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuda_remarks: Vec<String>,
    /// Operating system and kernel.
    pub system: String,
    /// Processor name.
    pub processor: String,
    /// Instruction sets of the processor on which the speed of libtorch depends, as the kernel names them; empty in older
    /// records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instruction_sets: Vec<String>,
    /// Cores that the rank may use before it binds itself; in older records, hardware threads.
    pub cores: u32,
    /// Memory of the host.
    pub memory: Bytes,
    /// Output of `nvidia-smi topo -m` or hwloc, line by line; without these programs the NUMA nodes of the kernel.
    pub topology: Vec<String>,
    /// Allow-listed variables.
    pub variables: BTreeMap<String, String>,
    /// Load of other programs before the first job of the command; `None` if the hosts of this job were idle or not
    /// examined, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_before: Option<InitialLoad>,
}

/// Environment variable that contains a job's [`InitialLoad`].
pub const LOAD_BEFORE_VARIABLE: &str = "RINGMARK_LOAD_BEFORE";

/// Load of a host on which other programs run.
#[derive(Debug, Clone, PartialEq)]
pub struct HostLoad {
    /// Name of the host.
    pub host: String,
    /// Load average.
    pub load: f64,
    /// Cores of the host.
    pub cores: u32,
}

/// Load of other programs on hosts before the first job of a command, as the launcher measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InitialLoad {
    /// Names of the busy hosts, as in `node[1-4],login`.
    pub hosts: String,
    /// Load average of the busiest host, per core the highest.
    pub load: f64,
    /// Cores of that host.
    pub cores: u32,
}

impl InitialLoad {
    /// Returns the load of busy `hosts`; `None` without any.
    pub fn from_hosts<'a>(hosts: impl Iterator<Item = &'a HostLoad> + Clone) -> Option<InitialLoad> {
        let per_core = |HostLoad { load, cores, .. }: &HostLoad| load / f64::from((*cores).max(1));
        let busiest = hosts.clone().max_by(|one, other| per_core(one).total_cmp(&per_core(other)))?;
        let HostLoad { load, cores, .. } = *busiest;
        Some(InitialLoad { hosts: compact(hosts.map(|host| host.host.as_str())), load, cores })
    }

    /// Returns the load as a share of the cores, at most 1.
    pub fn share(&self) -> f64 {
        (self.load / f64::from(self.cores.max(1))).clamp(0.0, 1.0)
    }
}

/// Formats the load for [`LOAD_BEFORE_VARIABLE`]: `7.5@2@node[1-4]`.
impl fmt::Display for InitialLoad {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}@{}", self.load, self.cores, self.hosts)
    }
}

impl FromStr for InitialLoad {
    type Err = String;

    fn from_str(text: &str) -> Result<InitialLoad, String> {
        let parse = || {
            let (load, rest) = text.split_once('@')?;
            let (cores, hosts) = rest.split_once('@')?;
            let load = load.parse().ok().filter(|load: &f64| load.is_finite() && *load >= 0.0)?;
            Some(InitialLoad { hosts: hosts.to_owned(), load, cores: cores.parse().ok()? })
        };
        parse().ok_or_else(|| format!("{LOAD_BEFORE_VARIABLE}={text} is not a load: unset it"))
    }
}

/// First word of a topology of NUMA nodes.
pub const NUMA: &str = "NUMA";

/// Returns the lines of `nvidia-smi topo -m` that are not empty, without the color codes that it writes even without a
/// terminal.
pub fn plain_lines(lines: &[impl AsRef<str>]) -> impl Iterator<Item = String> {
    lines.iter().map(|line| plain(line.as_ref())).filter(|line| !line.trim().is_empty())
}

fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain += part.split_once('m').map_or("", |(_, text)| text);
    }
    plain
}

/// Prefix of the variables that control NCCL's log. They change no figure, and the worker sets them itself.
const NCCL_LOG: &str = "NCCL_DEBUG";

/// Returns true if a record may contain this variable: those of NCCL, CUDA and its libraries, PyTorch, OpenMP, and
/// those of Open MPI that select a transport.
///
/// Open MPI's other variables contain session addresses and keys.
pub fn is_allowed(variable: &str) -> bool {
    const PREFIXES: [&str; 16] = [
        "NCCL_",
        "CUDA_",
        "CUDNN_",
        "CUBLAS_",
        "NVIDIA_TF32_",
        "PYTORCH_",
        "TORCH_",
        "OMP_",
        "KMP_",
        "OMPI_MCA_btl",
        "OMPI_MCA_coll",
        "OMPI_MCA_hwloc",
        "OMPI_MCA_mtl",
        "OMPI_MCA_pml",
        "OMPI_MCA_rmaps",
        "OMPI_MCA_smsc",
    ];
    const NAMES: [&str; 3] = ["MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", INTERFACE_VARIABLE];
    !variable.starts_with(NCCL_LOG)
        && (NAMES.contains(&variable) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix)))
}

/// Returns true if the launcher passes this variable to every rank: those that may affect figures, and search paths for
/// programs.
///
/// Excluded are variables that differ between hosts (visible GPUs, the interface) and Open MPI's, which mpirun passes
/// itself.
pub fn is_forwarded(variable: &str) -> bool {
    const HOST_SPECIFIC: [&str; 2] = ["CUDA_VISIBLE_DEVICES", INTERFACE_VARIABLE];
    let is_setting = is_allowed(variable) && !variable.starts_with("OMPI_") && !HOST_SPECIFIC.contains(&variable);
    is_setting || matches!(variable, "PATH" | "LD_LIBRARY_PATH") || variable.starts_with(NCCL_LOG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_before_round_trips_and_names_the_busiest_host() {
        let hosts = [("node1", 3.0, 4), ("node2", 3.5, 2), ("node3", 8.0, 16)];
        let hosts = hosts.map(|(host, load, cores)| HostLoad { host: host.to_owned(), load, cores });
        let load = InitialLoad::from_hosts(hosts.iter()).expect("busy hosts");
        assert_eq!(load, InitialLoad { hosts: "node[1-3]".to_owned(), load: 3.5, cores: 2 });
        assert_eq!(load.to_string().parse(), Ok(load.clone()));
        assert_eq!((load.share(), InitialLoad { load: 0.5, ..load }.share()), (1.0, 0.25));
        assert_eq!(InitialLoad::from_hosts(hosts[..0].iter()), None);
        for wrong in ["", "7", "7@2", "NaN@2@a", "-1@2@a", "7@two@a"] {
            let error = wrong.parse::<InitialLoad>().expect_err("not a load");
            assert!(error.ends_with("is not a load: unset it"), "{error}");
        }
    }

    #[test]
    fn variables_that_affect_results_are_forwarded() {
        for name in
            ["NCCL_ALGO", "NCCL_DEBUG", "NVIDIA_TF32_OVERRIDE", "CUDNN_LOGLEVEL_DBG", "CUDA_LAUNCH_BLOCKING", "PATH"]
        {
            assert!(is_forwarded(name), "{name}");
        }
        for name in ["CUDA_VISIBLE_DEVICES", "OMPI_MCA_btl", INTERFACE_VARIABLE, "HOME"] {
            assert!(!is_forwarded(name), "{name}");
        }
    }

    #[test]
    fn communication_variables_are_kept_and_secrets_dropped() {
        for name in [
            "NCCL_ALGO",
            "PYTORCH_CUDA_ALLOC_CONF",
            "TORCH_NCCL_BLOCKING_WAIT",
            "OMP_NUM_THREADS",
            "OMPI_MCA_btl_tcp_if_include",
            "CUDA_VISIBLE_DEVICES",
        ] {
            assert!(is_allowed(name), "{name}");
        }
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "HOME",
            "NCCL_DEBUG_FILE",
            "PATH",
            "OMPI_MCA_orte_precondition_transports",
            "OMPI_MCA_plm_rsh_args",
        ] {
            assert!(!is_allowed(name), "{name}");
        }
    }
}
