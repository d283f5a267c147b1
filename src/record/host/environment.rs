//! What the numbers were made on: machine, devices, libraries, and the variables that change communication.
//!
//! Variables come by allow-list alone: an environment holds secrets, and a record is made to be shown.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::device::DeviceKind;
use crate::dimension::units::Bytes;
use crate::host::inspection::INTERFACE_VARIABLE;

/// One rank: where it ran and on what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankPlace {
    /// From 0.
    pub rank: u32,
    /// Rank among those of its host, from 0.
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
}

/// What rank 0 found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Version of ringmark-worker.
    pub ringmark_version: String,
    /// Version of libtorch.
    pub libtorch_version: String,
    /// What the MPI library says of itself, first line.
    pub mpi_version: String,
    /// Version of NCCL, where it is loaded.
    pub nccl_version: Option<String>,
    /// Version of the CUDA runtime that libtorch was built for and has loaded; `None` of a build for CPUs, and in older
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda_version: Option<String>,
    /// Version of the NVIDIA driver, where there is one.
    pub driver_version: Option<String>,
    /// Why CUDA is not used, where it is not.
    pub cuda_missing: Option<String>,
    /// Operating system and kernel.
    pub system: String,
    /// Processor name.
    pub processor: String,
    /// Processors the rank may run on.
    pub cores: u32,
    /// Memory of the host.
    pub memory: Bytes,
    /// Output of `nvidia-smi topo -m` or hwloc, line by line; empty where neither can.
    pub topology: Vec<String>,
    /// Allow-listed variables.
    pub variables: BTreeMap<String, String>,
}

/// Whether the record may hold this variable: NCCL's, OpenMP's and those of Open MPI that choose a transport.
///
/// Open MPI's other variables carry session addresses and keys.
pub fn is_allowed(variable: &str) -> bool {
    const PREFIXES: [&str; 9] = [
        "NCCL_",
        "OMP_",
        "KMP_",
        "OMPI_MCA_btl",
        "OMPI_MCA_coll",
        "OMPI_MCA_hwloc",
        "OMPI_MCA_mtl",
        "OMPI_MCA_pml",
        "OMPI_MCA_rmaps",
    ];
    const NAMES: [&str; 5] =
        ["CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "MKL_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", INTERFACE_VARIABLE];
    NAMES.contains(&variable) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_passes_and_secrets_do_not() {
        for name in ["NCCL_ALGO", "OMP_NUM_THREADS", "OMPI_MCA_btl_tcp_if_include", "CUDA_VISIBLE_DEVICES"] {
            assert!(is_allowed(name), "{name}");
        }
        for name in
            ["AWS_SECRET_ACCESS_KEY", "HOME", "PATH", "OMPI_MCA_orte_precondition_transports", "OMPI_MCA_plm_rsh_args"]
        {
            assert!(!is_allowed(name), "{name}");
        }
    }
}
