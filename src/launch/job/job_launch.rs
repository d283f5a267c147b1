//! Launch of one job: its shape, hosts, program and files, and the user's options for every job.
//! [`run_launch`](crate::launch::job::run_launch) runs it. What a session plans is a
//! [`PlannedJob`](crate::launch::sweep::benchmark::PlannedJob), and [`Launcher`](crate::launch::job::launcher::Launcher)
//! turns it into a launch.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::PathBuf;

use ringmark_core::benchmark::train::RestartHistory;
use ringmark_core::dimension::{Bytes, Case};
use ringmark_core::host::inspection::INTERFACE_VARIABLE;
use ringmark_core::host::{HostLoad, InitialLoad};

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::local::environment::LaunchEnvironment;

/// User options for mpirun or srun, applied to every job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StarterOptions {
    /// Network interface of MPI and NCCL; `None` lets them choose.
    pub interface: Option<InterfaceChoice>,
    /// Value of `CUDA_VISIBLE_DEVICES` on every host; `None` leaves each host's own.
    pub gpus: Option<String>,
    /// Additional arguments for mpirun or srun, placed last.
    pub arguments: Vec<String>,
}

impl StarterOptions {
    /// Returns the number of GPUs listed for every host, if there is a list.
    pub fn listed_gpus(&self) -> Option<u32> {
        self.gpus.as_ref().map(|gpus| gpus.split(',').count() as u32)
    }
}

/// Server processes of a job (`--servers`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerRanks {
    /// Number of servers; they are numbered after the ranks.
    pub number: u32,
    /// Hosts that run them, round-robin; the hosts of the ranks if empty.
    pub hosts: Vec<String>,
    /// True if the other processes continue when a rank dies.
    pub may_lose_ranks: bool,
    /// Minimum memory of one server.
    pub memory: Bytes,
}

/// Memory that the processes of a job need on one host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NeededMemory {
    /// Memory of the ranks; 0 if unknown.
    pub ranks: Bytes,
    /// Memory of the servers.
    pub servers: Bytes,
}

impl NeededMemory {
    /// Returns the memory of ranks and servers.
    pub fn total(self) -> Bytes {
        Bytes(self.ranks.0 + self.servers.0)
    }
}

/// Files that a job writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFiles {
    /// Output of the job, written by the launcher.
    pub log: PathBuf,
    /// Written by rank 0; an absolute path.
    pub record: PathBuf,
}

impl JobFiles {
    /// Returns the path of the trace, next to the record.
    pub fn trace(&self) -> PathBuf {
        self.record.with_extension("trace.json")
    }
}

/// A job with everything that its command line depends on.
#[derive(Debug, Clone)]
pub struct JobLaunch<'a> {
    /// Nodes and GPUs per node.
    pub case: Case,
    /// Exactly the hosts of the case.
    pub hosts: &'a [Host],
    /// User options.
    pub options: &'a StarterOptions,
    /// Port of sshd on the hosts, for a starter that uses ssh.
    pub ssh_port: u16,
    /// CPU threads of a rank, if set.
    pub threads: Option<u32>,
    /// Server processes.
    pub servers: ServerRanks,
    /// Program and arguments of each rank.
    pub program: Vec<String>,
    /// Log and record.
    pub files: JobFiles,
    /// Environment in which the launcher was started.
    pub environment: &'a LaunchEnvironment,
    /// Loads of the hosts on which other programs ran before the first job.
    pub busy: &'a [HostLoad],
    /// Earlier attempts of a run that is started again.
    pub restarts: Option<RestartHistory>,
}

/// Maximum number of hosts on a command line. One argument is limited to 128 KiB, which some 4,000 long names would
/// exceed.
pub const MAX_HOSTS_ON_LINE: usize = 256;

impl JobLaunch<'_> {
    /// Returns the host of every process: the ranks, host by host, then the servers.
    pub fn process_hosts(&self) -> Vec<&str> {
        process_hosts(self.hosts, self.case, &self.servers)
    }

    /// Returns the load of other programs on the job's hosts before the first job.
    pub fn load_before(&self) -> Option<InitialLoad> {
        let used: HashSet<&str> = self.process_hosts().into_iter().collect();
        let busy = self.busy.iter().filter(|load| used.contains(load.host.as_str()));
        // The ranks of localhost report the name of this machine.
        let here = self.environment.host_name.as_str();
        let named = |host: &str| (if self.environment.is_here(host) { here } else { host }).to_owned();
        let busy: Vec<HostLoad> = busy.map(|load| HostLoad { host: named(&load.host), ..load.clone() }).collect();
        InitialLoad::from_hosts(busy.iter())
    }

    /// Returns the path of the hostfile, for a job with too many hosts for a command line.
    pub fn hostfile(&self) -> PathBuf {
        self.files.log.with_extension("hosts")
    }

    /// Returns true if a command line would have too many names: one per process if there are servers, otherwise one
    /// per host.
    pub fn needs_hostfile(&self) -> bool {
        let names = match self.servers.number {
            0 => self.hosts.len(),
            servers => (self.case.ranks() + servers) as usize,
        };
        names > MAX_HOSTS_ON_LINE
    }

    /// Returns the text of the hostfile in Open MPI's format; `None` if the command line names the hosts.
    pub fn hostfile_text(&self) -> Option<String> {
        let slots = self.case.gpus_per_node;
        self.needs_hostfile().then(|| match self.servers.number {
            0 => self.hosts.iter().map(|host| format!("{} slots={slots}\n", host.name)).collect(),
            _ => self.process_hosts().into_iter().map(|host| format!("{host}\n")).collect(),
        })
    }

    /// Returns true if all processes run on this machine.
    pub fn is_local(&self) -> bool {
        self.process_hosts().iter().all(|host| self.environment.is_here(host))
    }

    /// Returns the addresses by which the job's hosts may reach this machine; empty if the job is local.
    pub fn addresses(&self) -> Vec<IpAddr> {
        if self.is_local() {
            return Vec::new();
        }
        let leads_here = |address: &&IpAddr| match address {
            IpAddr::V4(four) => !four.is_loopback() && !four.is_link_local(),
            IpAddr::V6(six) => !six.is_loopback() && !six.is_unicast_link_local(),
        };
        self.environment.addresses.iter().filter(leads_here).copied().collect()
    }

    /// Returns the requested number of threads, or an equal share of this machine's cores; `None` if ranks run
    /// elsewhere.
    pub fn threads_per_rank(&self) -> Option<u32> {
        let part = (self.environment.cores / self.case.gpus_per_node).max(1);
        self.threads.or(self.is_local().then_some(part))
    }
}

/// Returns the host of every process of `case` on `hosts`: the ranks, host by host, then the servers.
pub fn process_hosts<'a>(hosts: &'a [Host], case: Case, servers: &'a ServerRanks) -> Vec<&'a str> {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let ServerRanks { number, hosts, .. } = servers;
    let server_names = if hosts.is_empty() { names.clone() } else { hosts.iter().map(String::as_str).collect() };
    let rank_names = names.iter().flat_map(|name| (0..case.gpus_per_node).map(move |_| *name));
    rank_names.chain(server_names.into_iter().cycle().take(*number as usize)).collect()
}

/// Returns the variable that sets NCCL's interface. NCCL accepts only names; the worker finds the name of a network
/// on each host. The second `=` requests an exact match: without it, NCCL accepts any interface that begins with the
/// name.
pub fn nccl_interface(interface: &InterfaceChoice) -> String {
    match interface {
        InterfaceChoice::Name(name) => format!("NCCL_SOCKET_IFNAME=={name}"),
        InterfaceChoice::Network(network) => format!("{INTERFACE_VARIABLE}={network}"),
    }
}

#[cfg(test)]
impl JobLaunch<'static> {
    /// Returns a job that runs `/opt/worker train` on `hosts`, without servers, with the log `run.log`.
    pub fn example(
        case: &str,
        hosts: &str,
        options: StarterOptions,
        environment: LaunchEnvironment,
    ) -> JobLaunch<'static> {
        use crate::launch::cluster::hosts::Hosts;

        let case = case.parse().expect("a case");
        let hosts: &Hosts = Box::leak(Box::new(Hosts::parse_list(hosts).expect("hosts")));
        JobLaunch {
            case,
            hosts: hosts.for_case(case),
            options: Box::leak(Box::new(options)),
            ssh_port: 22,
            threads: None,
            servers: ServerRanks::default(),
            program: vec!["/opt/worker".to_owned(), "train".to_owned()],
            files: JobFiles { log: "run.log".into(), record: "/run.jsonl".into() },
            environment: Box::leak(Box::new(environment)),
            busy: &[],
            restarts: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_before_is_that_of_the_hosts_of_the_job() {
        let job = JobLaunch::example("1n2g", "a:2,b:2", StarterOptions::default(), LaunchEnvironment::default());
        let busy = ["a", "b"].map(|host| HostLoad { host: host.to_owned(), load: 3.0, cores: 2 });
        let load = |busy| JobLaunch { busy, ..job.clone() }.load_before();
        let of_a = InitialLoad { hosts: "a".to_owned(), load: 3.0, cores: 2 };
        assert_eq!((load(&busy), load(&busy[1..])), (Some(of_a), None));
        let here = LaunchEnvironment { host_name: "vm".to_owned(), ..LaunchEnvironment::default() };
        let job = JobLaunch::example("1n2g", "localhost:2", StarterOptions::default(), here);
        let busy = [HostLoad { host: "localhost".to_owned(), ..busy[0].clone() }];
        let load = JobLaunch { busy: &busy, ..job.clone() }.load_before();
        assert_eq!(load.map(|load| load.hosts).as_deref(), Some("vm"));
    }
}
