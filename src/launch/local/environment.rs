//! The environment of this process, as far as a launch depends on it. Only [`LaunchEnvironment::read`] reads
//! variables, command line and network addresses.

#![allow(clippy::disallowed_methods, reason = "reads the environment of a launch")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ringmark_core::host::environment::{is_allowed, is_forwarded};
use ringmark_core::host::kernel_file::first_line_with;
use ringmark_core::host::{is_loopback, processors};
use ringmark_core::shell::{self, CommandWords};

use crate::launch::local::open_mpi::{OpenMpi, SINGLE_COPY, SSH_AGENT};

/// Grid Engine's variables by which Open MPI detects a Grid Engine job.
pub const GRID_ENGINE: [&str; 4] = ["PE_HOSTFILE", "JOB_ID", "SGE_ROOT", "ARC"];

/// Prefixes of interfaces that connect containers or virtual machines inside a host.
const INNER_PREFIXES: [&str; 11] =
    ["docker", "br-", "virbr", "veth", "vnet", "cni", "flannel", "cali", "lxcbr", "lxdbr", "podman"];

/// Environment of this process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaunchEnvironment {
    /// Names of the variables passed on to every rank, if set: see [`is_forwarded`].
    pub variables: Vec<String>,
    /// Folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// Folder of the running program.
    pub program_folder: Option<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`, if set.
    pub visible_devices: Option<String>,
    /// Host name of this machine.
    pub host_name: String,
    /// Folder for temporary files.
    pub temporary: PathBuf,
    /// Cores available to this process, at least 1.
    pub cores: u32,
    /// True if the processor has instructions for bf16, which is emulated otherwise.
    pub has_bf16: bool,
    /// Name of the first GPU of this machine, as its driver gives it.
    pub gpu: Option<String>,
    /// This process's command line, program first.
    pub command: CommandWords,
    /// Variables that affect results and may be recorded, with their values.
    pub settings: BTreeMap<String, String>,
    /// True if Open MPI needs settings for a container: this is one, and the user has not chosen a copy mechanism.
    pub container: bool,
    /// Variables that Slurm and Grid Engine set inside their jobs: `SLURM_*`, `SRUN_*` and [`GRID_ENGINE`].
    pub scheduler: BTreeMap<String, String>,
    /// Addresses of this machine, those of bridges inside it last.
    pub addresses: Vec<IpAddr>,
    /// Version of mpirun; the default until [`OpenMpi::of_program`] was called.
    pub open_mpi: OpenMpi,
    /// Program that Open MPI uses instead of ssh, if set in the environment.
    pub ssh_agent: Option<String>,
    /// Interfaces that Open MPI must use, according to the environment.
    pub tcp_interface: Option<String>,
    /// Interfaces that Open MPI must not use, according to the environment.
    pub tcp_excluded: Option<String>,
    /// `LD_LIBRARY_PATH`, if set.
    pub library_path: Option<String>,
    /// True if mpirun started this process.
    pub is_rank: bool,
}

/// The command line with the options that `--resume` adds from the manifest.
static COMPLETED: OnceLock<CommandWords> = OnceLock::new();

/// Sets the command line that [`typed_command`] returns, once.
pub fn set_command(completed: CommandWords) {
    COMPLETED.get_or_init(|| completed);
}

/// Returns this process's command line, program first: as typed, or as `--resume` completed it.
pub fn typed_command() -> CommandWords {
    COMPLETED.get().cloned().unwrap_or_else(|| env::args_os().collect())
}

/// Returns the program as typed, for commands that are printed: `ringmark`, or a path if it is not found without one.
pub fn typed_program() -> String {
    let command = typed_command();
    let program = command.own().first().map_or("ringmark".into(), |program| program.to_string_lossy());
    shell::quote(&program).into_owned()
}

/// Returns the name of a GPU from `folder`, in which NVIDIA's driver has a folder for each GPU with its `information`.
fn gpu_name(folder: &Path) -> Option<String> {
    let first = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path().join("information")).min()?;
    let name = first_line_with(first, "Model:");
    (!name.is_empty()).then_some(name)
}

impl LaunchEnvironment {
    /// Reads the environment of this process.
    pub fn read() -> LaunchEnvironment {
        let mut variables: Vec<String> =
            env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_forwarded(name)).collect();
        variables.sort();
        let is_of_scheduler =
            |name: &str| name.starts_with("SLURM_") || name.starts_with("SRUN_") || GRID_ENGINE.contains(&name);
        let copy_is_chosen = SINGLE_COPY.iter().any(|name| env::var_os(format!("OMPI_MCA_{name}")).is_some());
        let in_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
        LaunchEnvironment {
            variables,
            path: env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
            program_folder: env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned())),
            visible_devices: env::var("CUDA_VISIBLE_DEVICES").ok(),
            gpu: gpu_name(Path::new("/proc/driver/nvidia/gpus")),
            has_bf16: processors::instruction_sets().iter().any(|name| processors::BF16.contains(&name.as_str())),
            host_name: nix::unistd::gethostname()
                .map(OsString::into_string)
                .ok()
                .and_then(Result::ok)
                .unwrap_or_default(),
            temporary: env::temp_dir(),
            cores: processors::cores(),
            command: typed_command(),
            settings: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
                .filter(|(name, _)| is_allowed(name))
                .collect(),
            container: in_container && !copy_is_chosen,
            scheduler: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, _)| is_of_scheduler(name))
                .collect(),
            addresses: interface_addresses(),
            open_mpi: OpenMpi::default(),
            ssh_agent: SSH_AGENT.iter().find_map(|(prefix, name)| env::var(format!("{prefix}{name}")).ok()),
            tcp_interface: env::var("OMPI_MCA_btl_tcp_if_include").ok(),
            tcp_excluded: env::var("OMPI_MCA_btl_tcp_if_exclude").ok(),
            library_path: env::var("LD_LIBRARY_PATH").ok(),
            is_rank: env::var_os("OMPI_COMM_WORLD_RANK").is_some(),
        }
    }

    /// Returns the path of program `name`, searching `PATH`.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// Returns true if `host` is this machine, judging by the name alone.
    pub fn is_here(&self, host: &str) -> bool {
        is_loopback(host) || host == self.host_name
    }
}

/// Returns true if an interface of this name stays within its host.
pub fn is_internal(interface: &str) -> bool {
    INNER_PREFIXES.iter().any(|start| interface.starts_with(start))
}

/// Returns true if `path` is an executable file.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Returns the addresses of all interfaces; empty if the kernel reports none.
fn interface_addresses() -> Vec<IpAddr> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let address = four.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))?;
        Some((is_internal(&interface.interface_name), address))
    };
    let interfaces = nix::ifaddrs::getifaddrs().map(|interfaces| interfaces.filter_map(address).collect());
    let mut addresses: Vec<(bool, IpAddr)> = interfaces.unwrap_or_default();
    addresses.sort_by_key(|(is_internal, address)| (*is_internal, address.is_ipv6()));
    addresses.into_iter().map(|(_, address)| address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_found_in_the_first_matching_folder() {
        let (empty, full) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let program = full.path().join("mpirun");
        std::fs::write(&program, "").expect("written");
        assert!(!is_program(&program));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("permitted");
        let path = vec![empty.path().to_owned(), full.path().to_owned()];
        let environment = LaunchEnvironment { path, ..LaunchEnvironment::default() };
        assert_eq!(environment.find("mpirun"), Some(program));
        assert_eq!(environment.find("mpiexec"), None);
    }

    #[test]
    fn gpu_is_named_by_its_driver() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(gpu_name(folder.path()), None);
        for (bus, name) in [("0000:1b:00.0", "NVIDIA H200"), ("0000:5d:00.0", "NVIDIA A10")] {
            let gpu = folder.path().join(bus);
            fs::create_dir(&gpu).expect("created");
            fs::write(gpu.join("information"), format!("Model: \t\t {name}\nIRQ:   \t\t 18\n")).expect("written");
        }
        assert_eq!(gpu_name(folder.path()).as_deref(), Some("NVIDIA H200"));
    }
}
