//! Defaults of MPI, NCCL and libtorch's profiler chosen by this program unless the user has set the variable. They are set before the
//! libraries read them.

#![allow(clippy::disallowed_methods, reason = "reads variables of libraries")]

use std::path::PathBuf;

use anyhow::anyhow;
use ringmark_core::benchmark::exchange::NcclAlgorithm;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::options::usage::usage;

use crate::ffi::process::libraries::{has_driver, set_default};
use crate::ffi::process::waiting;
use crate::host::facts;

/// Open MPI's variables for waiting ranks that yield their core: the user's, and the one that mpirun sets if a host has
/// more ranks than slots.
const YIELDS: [&str; 2] = ["OMPI_MCA_mpi_yield_when_idle", "OMPI_MCA_mpi_oversubscribe"];

/// Sets the defaults of MPI and NCCL unless the user has set the variables. Every process calls this first. `interface`
/// is NCCL's, if chosen; `cores` is the number that this process may use.
pub fn set_defaults(interface: Option<&str>, cores: u32) {
    let local_ranks = std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|size| size.parse::<u32>().ok());
    // A rank that mpirun bound has few cores, but shares them with no other rank.
    if local_ranks.is_some_and(|ranks| ranks > cores) && !facts::is_bound() {
        set_default(YIELDS[0], "1");
    }
    let yields = YIELDS.iter().find_map(|name| std::env::var(name).ok());
    waiting::sleep_instead_of_yielding(yields.is_some_and(|value| is_enabled(&value)));
    // Longer messages wait for the receiver's answer, which over TCP is queued behind this rank's own data: two hosts
    // then send alternately, at half the speed of the link (measured: results/README.md).
    set_default("OMPI_MCA_btl_tcp_eager_limit", "4194304");
    if let Some(name) = interface {
        // The `=` requires an exact match; without it NCCL would accept any name with this prefix.
        set_default("NCCL_SOCKET_IFNAME", format!("={name}"));
    }
}

/// Parses a switch like Open MPI: a number other than 0, or one of these words.
fn is_enabled(value: &str) -> bool {
    let value = value.trim().to_lowercase();
    value.parse::<i64>().map_or(["true", "t", "enabled", "yes", "y"].contains(&value.as_str()), |number| number != 0)
}

/// Requests `algorithm` from NCCL if there is a driver, and therefore an NCCL. Must precede the loading of NCCL.
///
/// The user's own variable has priority over the option's default. It is an error if it conflicts with an option that
/// is not the default.
pub fn choose_algorithm(device: DeviceChoice, algorithm: NcclAlgorithm) -> anyhow::Result<()> {
    const VARIABLE: &str = "NCCL_ALGO";
    if device == DeviceChoice::Cpu || !has_driver() {
        return Ok(());
    }
    if let (Ok(value), true) = (std::env::var(VARIABLE), algorithm != NcclAlgorithm::default()) {
        let question =
            anyhow!("{VARIABLE}={value} conflicts with --nccl-algo {algorithm}: unset {VARIABLE} or omit the option");
        return Err(usage(question));
    }
    if let Some(value) = algorithm.variable() {
        set_default(VARIABLE, value);
    }
    Ok(())
}

/// Suppresses the error that libtorch's profiler prints on a host without a GPU driver. Must precede the profiler.
pub fn silence_profiler(device: DeviceChoice) {
    if device == DeviceChoice::Cpu || !has_driver() {
        set_default("KINETO_LOG_LEVEL", "5");
    }
}

/// Disables NCCL's registration of buffers during graph capture unless the user has set the variable: ranks would wait
/// there for one whose capture failed. Must precede the loading of NCCL.
pub fn capture_without_others(device: DeviceChoice) {
    if device != DeviceChoice::Cpu && has_driver() {
        set_default("NCCL_GRAPH_REGISTER", "0");
    }
}

pub struct NcclLog {
    /// `None` if no log was requested.
    path: Option<PathBuf>,
}

impl NcclLog {
    /// Enables NCCL's log if it is `wanted`, unless the user has configured it. Must precede the loading of NCCL.
    pub fn new(choice: DeviceChoice, wanted: bool) -> NcclLog {
        let is_requested = || std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("NCCL_DEBUG"));
        if !wanted || choice == DeviceChoice::Cpu || !has_driver() || is_requested() {
            return NcclLog { path: None };
        }
        let path = std::env::temp_dir().join(format!("ringmark-nccl-{}.log", std::process::id()));
        set_default("NCCL_DEBUG", "INFO");
        set_default("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,TUNING,NET");
        set_default("NCCL_DEBUG_FILE", &path);
        NcclLog { path: Some(path) }
    }

    /// Returns the log so far; empty if NCCL was not used. Deletes the file here, because an invalid run ends without
    /// dropping its values.
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
    fn switches_are_parsed_like_open_mpi() {
        assert!(["1", "true", " Yes", "2", "t"].into_iter().all(is_enabled));
        assert!(!["0", "false", "no", "", "f", "off"].into_iter().any(is_enabled));
    }
}
