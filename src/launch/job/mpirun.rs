//! Case, hosts and configuration turned into mpirun's command line (Open MPI 4.1): DLPerf's options, and what a
//! container or several threads a rank need besides. Starts nothing; [`Surroundings::read`] is the one look outside.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use ringmark_record::case::Case;
use ringmark_record::environment::is_allowed;
use ringmark_record::inspection::INTERFACE_VARIABLE;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::interface::{self, Interface};

/// MPI's name for shared memory by process-to-process copy, which a container's seccomp rules forbid.
pub const SINGLE_COPY: &str = "btl_vader_single_copy_mechanism";

/// What this process was started with and in, as far as a command line depends on it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Surroundings {
    /// Variables that every rank is to have, those that are set: `PATH`, `LD_LIBRARY_PATH`, `NCCL_*`.
    pub variables: Vec<String>,
    /// Folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// Folder of the running program.
    pub program_folder: Option<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`, where it is set.
    pub visible_devices: Option<String>,
    /// Name of this machine.
    pub host_name: String,
    /// Cores that this process may use, at least 1.
    pub cores: u32,
    /// This process's command line, program first.
    pub command: Vec<String>,
    /// Variables on which figures may depend, with their values: those that a record may hold.
    pub settings: BTreeMap<String, String>,
    /// Whether Open MPI must be told that this is a container: it is one, and the user has not said how to copy.
    pub container: bool,
    /// Slurm's variables, `SLURM_*` and `SRUN_*`, which it sets inside an allocation.
    pub slurm: BTreeMap<String, String>,
    /// This machine's own addresses, those of bridges inside it last.
    pub addresses: Vec<IpAddr>,
    /// What Open MPI is to use in the place of ssh, where the environment says so.
    pub ssh_agent: Option<String>,
    /// The interface that the environment gives Open MPI.
    pub tcp_interface: Option<String>,
    /// The interfaces that the environment forbids Open MPI.
    pub tcp_excluded: Option<String>,
    /// `LD_LIBRARY_PATH`, where it is set.
    pub library_path: Option<String>,
}

impl Surroundings {
    /// Looks at this process.
    pub fn read() -> Surroundings {
        let is_forwarded = |name: &str| matches!(name, "PATH" | "LD_LIBRARY_PATH") || name.starts_with("NCCL_");
        let mut variables: Vec<String> =
            env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(|name| is_forwarded(name)).collect();
        variables.sort();
        let is_of_slurm = |name: &str| name.starts_with("SLURM_") || name.starts_with("SRUN_");
        let copy_is_chosen = env::var_os(format!("OMPI_MCA_{SINGLE_COPY}")).is_some();
        let in_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
        Surroundings {
            variables,
            path: env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect(),
            program_folder: env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned())),
            visible_devices: env::var("CUDA_VISIBLE_DEVICES").ok(),
            host_name: nix::unistd::gethostname()
                .map(OsString::into_string)
                .ok()
                .and_then(Result::ok)
                .unwrap_or_default(),
            cores: thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX)),
            command: env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            settings: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
                .filter(|(name, _)| is_allowed(name))
                .collect(),
            container: in_container && !copy_is_chosen,
            slurm: env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .filter(|(name, _)| is_of_slurm(name))
                .collect(),
            addresses: own_addresses(),
            ssh_agent: env::var("OMPI_MCA_plm_rsh_agent").ok(),
            tcp_interface: env::var("OMPI_MCA_btl_tcp_if_include").ok(),
            tcp_excluded: env::var("OMPI_MCA_btl_tcp_if_exclude").ok(),
            library_path: env::var("LD_LIBRARY_PATH").ok(),
        }
    }

    /// The program `name` on `PATH`.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(name)).find(|path| is_program(path))
    }

    /// Whether `host` is this machine by its name alone.
    pub fn is_here(&self, host: &Host) -> bool {
        ["localhost", "127.0.0.1", &self.host_name].contains(&host.name.as_str())
    }
}

/// Of every interface; none where the kernel does not tell.
fn own_addresses() -> Vec<IpAddr> {
    let address = |interface: nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let address = four.or_else(|| Some(IpAddr::V6(address.as_sockaddr_in6()?.ip())))?;
        Some((interface::is_inner(&interface.interface_name), address))
    };
    let interfaces = nix::ifaddrs::getifaddrs().map(|interfaces| interfaces.filter_map(address).collect());
    let mut addresses: Vec<(bool, IpAddr)> = interfaces.unwrap_or_default();
    addresses.sort_by_key(|(is_inner, address)| (*is_inner, address.is_ipv6()));
    addresses.into_iter().map(|(_, address)| address).collect()
}

/// Whether `path` is a file that may be executed.
pub fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Job<'a> {
    /// Shape.
    pub case: Case,
    /// Exactly the hosts of the case.
    pub hosts: &'a [Host],
    /// Options that the user set for every job of the sweep.
    pub options: &'a MpirunOptions,
    /// CPU threads of a rank, where the user chose.
    pub threads: Option<u32>,
    /// What each rank runs: program and arguments.
    pub program: Vec<String>,
}

/// What the user may set about mpirun, or srun in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct MpirunOptions {
    /// Network interface of MPI and NCCL; they choose where `None`.
    pub interface: Option<Interface>,
    /// Port of sshd on the hosts.
    pub ssh_port: u16,
    /// More words for mpirun or srun, after ours.
    pub more: Vec<String>,
}

impl MpirunOptions {
    /// The program by which mpirun reaches other hosts, with its first words: ssh, unless the user chose another.
    pub fn ssh_agent(&self, surroundings: &Surroundings) -> Vec<String> {
        let chosen = self.more.windows(2).find(|words| words[0] == "plm_rsh_agent").map(|words| &words[1]);
        // Several stand between colons, of which Open MPI takes the first that it finds.
        let agent = chosen.or(surroundings.ssh_agent.as_ref()).and_then(|agents| agents.split(':').next());
        let words: Vec<String> = agent.unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        if words.is_empty() { vec!["ssh".to_owned()] } else { words }
    }
}

/// The words that launch `job`, `mpirun` first: `gpus_per_node` ranks on each of the hosts, in the order of the hosts.
pub fn command_line(job: &Job, surroundings: &Surroundings) -> Vec<String> {
    let Job { case, hosts, options, .. } = job;
    let mut words: Vec<String> = Vec::new();
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));

    let slots: Vec<String> = hosts.iter().map(|host| format!("{}:{}", host.name, case.gpus_per_node)).collect();
    add(&["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", &case.ranks().to_string()]);
    add(&["-H", &slots.join(","), "--bind-to", "none", "--map-by", "slot"]);

    // mpirun complains about a variable that is not set, and about one that is given twice.
    for name in &surroundings.variables {
        if name != "NCCL_SOCKET_IFNAME" || options.interface.is_none() {
            add(&["-x", name]);
        }
    }
    if let Some(threads) = threads_of_a_rank(job, surroundings) {
        add(&["-x", &format!("OMP_NUM_THREADS={threads}")]);
    }
    add(&["-mca", "pml", "ob1", "-mca", "btl", "^openib"]);
    let ssh = format!("-p {} -q -o StrictHostKeyChecking=no", options.ssh_port);
    add(&["-mca", "plm_rsh_args", &ssh]);
    if surroundings.container {
        add(&["-mca", SINGLE_COPY, "none"]);
    }
    if let Some(interface) = &options.interface {
        let text = interface.to_string();
        add(&["-mca", "btl_tcp_if_include", &text, "-mca", "oob_tcp_if_include", &text]);
        add(&["-x", &nccl_interface(interface)]);
    }
    words.extend(options.more.iter().chain(&job.program).cloned());
    words
}

/// The variable that gives NCCL its interface. It takes names alone: what a network is called on each host the worker finds
/// out there. The second `=` asks for this very name, without which others that begin so would do as well.
pub fn nccl_interface(interface: &Interface) -> String {
    match interface {
        Interface::Name(name) => format!("NCCL_SOCKET_IFNAME=={name}"),
        Interface::Network(network) => format!("{INTERFACE_VARIABLE}={network}"),
    }
}

/// The user's choice, or an equal share of this machine's cores; unknown where ranks run elsewhere.
pub fn threads_of_a_rank(job: &Job, surroundings: &Surroundings) -> Option<u32> {
    let all_here = job.hosts.iter().all(|host| surroundings.is_here(host));
    let share = (surroundings.cores / job.case.gpus_per_node).max(1);
    job.threads.or(all_here.then_some(share))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::cluster::hosts::Hosts;

    fn surroundings() -> Surroundings {
        Surroundings { variables: vec!["PATH".to_owned()], host_name: "a".to_owned(), cores: 6, ..Default::default() }
    }

    /// The words with a blank between them; `change` turns a plain job on two hosts into the one under test.
    fn line(case: &str, hosts: &str, surroundings: &Surroundings, change: impl FnOnce(&mut MpirunOptions)) -> String {
        let case = case.parse().expect("a case");
        let hosts = Hosts::parse_list(hosts).expect("hosts");
        let mut options = MpirunOptions { interface: None, ssh_port: 22, more: Vec::new() };
        change(&mut options);
        let program = vec!["/opt/worker".to_owned(), "train".to_owned()];
        let job = Job { case, hosts: hosts.of(case), options: &options, threads: None, program };
        command_line(&job, surroundings).join(" ")
    }

    #[test]
    fn dlperf_s_options_come_out() {
        assert_eq!(
            line("2n4g", "b:8,c:8", &surroundings(), |_| ()),
            "mpirun --allow-run-as-root --oversubscribe -np 8 -H b:4,c:4 --bind-to none --map-by slot -x PATH \
             -mca pml ob1 -mca btl ^openib -mca plm_rsh_args -p 22 -q -o StrictHostKeyChecking=no \
             /opt/worker train"
        );
    }

    #[test]
    fn ranks_of_this_machine_share_its_cores() {
        for (case, hosts, threads) in [
            ("1n1g", "localhost:8", Some(6)),
            ("1n4g", "localhost:8", Some(1)),
            ("1n8g", "a:8", Some(1)),
            ("1n2g", "b:8", None),
            ("2n2g", "a:8,b:8", None),
        ] {
            let line = line(case, hosts, &surroundings(), |_| ());
            match threads {
                Some(threads) => assert!(line.contains(&format!(" -x OMP_NUM_THREADS={threads} ")), "{line}"),
                None => assert!(!line.contains("OMP_NUM_THREADS"), "{line}"),
            }
        }
    }

    #[test]
    fn the_user_s_threads_hold_on_every_host() {
        let options = MpirunOptions { interface: None, ssh_port: 22, more: Vec::new() };
        let hosts = [Host { name: "b".to_owned(), slots: 1 }];
        let job = Job { case: Case::SINGLE, hosts: &hosts, options: &options, threads: Some(3), program: Vec::new() };
        assert!(command_line(&job, &surroundings()).contains(&"OMP_NUM_THREADS=3".to_owned()));
    }

    #[test]
    fn an_interface_goes_to_mpi_and_nccl_and_beats_the_variable() {
        let variables = ["NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "PATH"].map(str::to_owned).to_vec();
        let surroundings = Surroundings { variables, ..surroundings() };
        let line_with = |interface: &str| {
            let interface = interface.parse().expect("an interface");
            line("1n1g", "b:1", &surroundings, |options| options.interface = Some(interface))
        };
        let (line_with, with_network) = (line_with("ib0"), line_with("10.2.0.0/16"));
        assert!(line_with.contains(" -x NCCL_DEBUG -x PATH -mca"), "{line_with}");
        assert!(
            line_with.contains(
                "-mca btl_tcp_if_include ib0 -mca oob_tcp_if_include ib0 -x NCCL_SOCKET_IFNAME==ib0 /opt/worker"
            ),
            "{line_with}"
        );
        assert!(
            with_network.contains(
                "-mca btl_tcp_if_include 10.2.0.0/16 -mca oob_tcp_if_include 10.2.0.0/16 \
                 -x RINGMARK_INTERFACE=10.2.0.0/16 /opt/worker"
            ) && !with_network.contains("NCCL_SOCKET_IFNAME"),
            "{with_network}"
        );
        let line_without = line("1n1g", "b:1", &surroundings, |_| ());
        assert!(line_without.contains(" -x NCCL_SOCKET_IFNAME -x PATH"), "{line_without}");
    }

    #[test]
    fn a_container_port_and_more_words_are_passed_on() {
        let surroundings = Surroundings { container: true, ..surroundings() };
        let line = line("1n1g", "b:1", &surroundings, |options| {
            options.ssh_port = 2222;
            options.more = vec!["--report-bindings".to_owned()];
        });
        assert!(line.contains("plm_rsh_args -p 2222 -q -o StrictHostKeyChecking=no "), "{line}");
        assert!(
            line.ends_with("-mca btl_vader_single_copy_mechanism none --report-bindings /opt/worker train"),
            "{line}"
        );
    }

    #[test]
    fn a_program_is_found_in_the_first_folder_that_has_it() {
        let (empty, full) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let program = full.path().join("mpirun");
        std::fs::write(&program, "").expect("written");
        assert!(!is_program(&program));
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("permitted");
        let path = vec![empty.path().to_owned(), full.path().to_owned()];
        let surroundings = Surroundings { path, ..surroundings() };
        assert_eq!(surroundings.find("mpirun"), Some(program));
        assert_eq!(surroundings.find("mpiexec"), None);
    }
}
