//! Defaults of MPI and NCCL that this program chooses, unless the user set the variable: before the libraries read it.

use std::path::PathBuf;

use anyhow::anyhow;
use ringmark_core::benchmark::exchange::NcclAlgorithm;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::options::usage::usage;

use crate::ffi::process::libraries::{has_driver, set_default};
use crate::ffi::process::waiting;

/// What Open MPI calls waiting that leaves the core to others: for users, and where mpirun itself found more ranks than
/// slots on a host.
const YIELDS: [&str; 2] = ["OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mpi_oversubscribe"];

/// What MPI and NCCL are asked for unless the user asked for something else; first in every process. `interface` is the one
/// that NCCL is to use, where it was chosen; `cores` are those that this process may use.
pub fn set_defaults(interface: Option<&str>, cores: u32) {
    let local_ranks = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|size| size.parse::<u32>().ok());
    // A rank that mpirun bound has few cores, and shares them with nobody.
    let is_bound = std::env::var_os("OMPI_MCA_orte_bound_at_launch").is_some();
    if local_ranks.is_some_and(|ranks| ranks > cores) && !is_bound {
        set_default(YIELDS[0], "1");
    }
    let yields = YIELDS.iter().find_map(|name| std::env::var(name).ok());
    waiting::sleep_instead_of_yielding(yields.is_some_and(|value| is_yes(&value)));
    // Longer messages wait for the receiver's answer, which over TCP stands in the queue behind our own data: two hosts
    // then send in turns, at half the speed of the link (measured: results/README.md).
    set_default("OMPI_MCA_btl_tcp_eager_limit", "4194304");
    if let Some(name) = interface {
        // The sign before the name asks for this very name; without it other names that begin so would do as well.
        set_default("NCCL_SOCKET_IFNAME", format!("={name}"));
    }
}

/// As Open MPI reads a switch: a number that is not 0, or one of these words.
fn is_yes(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    value.parse::<i64>().map_or(["true", "t", "enabled", "yes", "y"].contains(&value.as_str()), |number| number != 0)
}

/// Asks NCCL for `algorithm`, where there is a driver and thus an NCCL to ask; before anything loads NCCL.
///
/// A variable of the user's own is kept where the option is its default, and refused where the two differ.
pub fn choose_algorithm(device: DeviceChoice, algorithm: NcclAlgorithm) -> anyhow::Result<()> {
    const VARIABLE: &str = "NCCL_ALGO";
    if device == DeviceChoice::Cpu || !has_driver() {
        return Ok(());
    }
    if let (Ok(value), true) = (std::env::var(VARIABLE), algorithm != NcclAlgorithm::default()) {
        let question = anyhow!(
            "{VARIABLE}={value} is set, and --nccl-algo is {algorithm}: unset {VARIABLE}, or leave the option out"
        );
        return Err(usage(question));
    }
    if let Some(value) = algorithm.variable() {
        set_default(VARIABLE, value);
    }
    Ok(())
}

/// Lets NCCL register no buffers while a CUDA graph is captured, unless the user asked for it: ranks would wait there for one
/// whose capture failed. Before anything loads NCCL.
pub fn capture_without_others(device: DeviceChoice) {
    if device != DeviceChoice::Cpu && has_driver() {
        set_default("NCCL_GRAPH_REGISTER", "0");
    }
}

/// Where NCCL writes what it uses.
pub struct NcclLog {
    /// `None` where nothing was asked for.
    path: Option<PathBuf>,
}

impl NcclLog {
    /// Asks NCCL for it where it is `wanted`, unless the user asked for something; before anything loads NCCL.
    pub fn new(choice: DeviceChoice, wanted: bool) -> NcclLog {
        let is_asked = || std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("NCCL_DEBUG"));
        if !wanted || choice == DeviceChoice::Cpu || !has_driver() || is_asked() {
            return NcclLog { path: None };
        }
        let path = std::env::temp_dir().join(format!("ringmark-nccl-{}.log", std::process::id()));
        set_default("NCCL_DEBUG", "INFO");
        set_default("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING,NET");
        set_default("NCCL_DEBUG_FILE", &path);
        NcclLog { path: Some(path) }
    }

    /// What it wrote until now, in lines; nothing where NCCL was not used. The file goes: a run that does not count ends
    /// without leaving its variables in order.
    pub fn read(&self) -> String {
        let Some(path) = &self.path else { return String::new() };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let _ = std::fs::remove_file(path);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_read_as_open_mpi_reads_them() {
        assert!(["1", "true", " Yes", "2", "t"].into_iter().all(is_yes));
        assert!(!["0", "false", "no", "", "f", "off"].into_iter().any(is_yes));
    }
}
