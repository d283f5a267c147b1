//! Checks of the facts found on the hosts. Pure functions; each finding has a fix.
//!
//! | module | checks |
//! |---|---|
//! | [`finding`] | problem with its fix |
//! | [`ssh`] | ssh, mpirun, clocks |
//! | [`versions`] | the worker and its libraries |
//! | [`gpu`] | devices and processors |
//! | [`xid`] | errors of devices in the kernel log |
//! | [`governor`] | frequency of the processors |
//! | [`memory`] | memory of the ranks, memlock and /dev/shm |
//! | [`disk`] | disk space for results |
//! | [`data`] | the files that ranks read |
//! | [`network`] | interface and links |
//! | [`infiniband`] | InfiniBand and RoCE |

pub mod data;
pub mod disk;
pub mod finding;
pub mod governor;
pub mod gpu;
pub mod infiniband;
pub mod memory;
pub mod network;
pub mod ssh;
pub mod versions;
pub mod xid;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringmark_core::dimension::DeviceChoice;

use crate::launch::doctor::checks::disk::ResultsFolder;
use crate::launch::doctor::checks::finding::{Finding, Findings};
use crate::launch::doctor::host::HostFacts;
use crate::launch::job::job_launch::NeededMemory;

/// Requirements of the jobs, against which hosts are checked.
pub struct JobRequirements<'a> {
    /// Path of the worker.
    pub worker: &'a Path,
    /// Devices that ranks will use.
    pub device: DeviceChoice,
    /// Folder of the results, if any.
    pub results: Option<ResultsFolder<'a>>,
    /// Memory that the ranks and servers of a host need, by host name, if known.
    pub needed: &'a BTreeMap<String, NeededMemory>,
    /// Files and folders that the ranks read.
    pub data: &'a [PathBuf],
}

/// Runs every check except those of the links between hosts. Findings are ordered by check, then by host.
pub fn check_hosts(hosts: &[HostFacts], requirements: &JobRequirements) -> Vec<Finding> {
    let mut findings = Findings::new(hosts);
    ssh::check_ssh(&mut findings);
    ssh::check_mpirun(&mut findings);
    versions::check_worker(&mut findings, requirements.worker);
    versions::check_versions(&mut findings);
    if requirements.device != DeviceChoice::Cpu {
        gpu::check_gpus(&mut findings, requirements.device);
        gpu::check_gpu_state(&mut findings);
        gpu::check_pcie(&mut findings);
        gpu::check_topology(&mut findings);
        gpu::check_nvlinks(&mut findings);
        xid::check_xids(&mut findings);
        infiniband::check_direct_access(&mut findings);
    }
    gpu::check_processors(&mut findings, requirements.device);
    governor::check_governor(&mut findings);
    memory::check_needed_memory(&mut findings, requirements.needed);
    memory::check_memory(&mut findings);
    disk::check_disk(&mut findings, requirements.results.as_ref());
    data::check_data(&mut findings, requirements.data);
    ssh::check_clock(&mut findings);
    infiniband::check_ports(&mut findings);
    infiniband::check_port_errors(&mut findings);
    findings.found
}

#[cfg(test)]
pub(crate) mod fixtures;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::doctor::checks::fixtures::*;

    #[test]
    fn healthy_hosts_have_no_findings() {
        for device in [DeviceChoice::Auto, DeviceChoice::Cpu] {
            assert_eq!(findings_for(&hosts(3), device), []);
            assert_eq!(findings_for(&gpu_hosts(3), device), []);
        }
        assert_eq!(findings_for(&gpu_hosts(3), DeviceChoice::Cuda), []);
    }
}
