//! One job: its shape, hosts, program and files, and what the user set for every job. Not for how it is launched: each starter
//! has its own command line, and [`planned`](crate::launch::job::planned) runs it.

use std::net::IpAddr;
use std::path::PathBuf;

use ringmark_core::dimension::{Bytes, Case};
use ringmark_core::host::inspection::INTERFACE_VARIABLE;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::local::environment::LaunchEnvironment;

/// What the user set about mpirun or srun, for every job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StarterOptions {
    /// Network interface of MPI and NCCL; they choose where `None`.
    pub interface: Option<InterfaceChoice>,
    /// More arguments for mpirun or srun, after ours.
    pub arguments: Vec<String>,
}

/// Processes of a job beside its ranks, which they serve (`--servers`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerRanks {
    /// How many; their numbers follow the ranks'.
    pub number: u32,
    /// Where they run, in turn; those of the ranks where there are none.
    pub hosts: Vec<String>,
    /// Whether the others go on when a rank dies.
    pub may_lose_ranks: bool,
    /// What one of them needs, at least.
    pub memory: Bytes,
}

/// What processes of a job need on one host.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NeededMemory {
    /// Its ranks; 0 where that is not known.
    pub ranks: Bytes,
    /// Its servers.
    pub servers: Bytes,
}

impl NeededMemory {
    /// All of them.
    pub fn total(self) -> Bytes {
        Bytes(self.ranks.0 + self.servers.0)
    }
}

/// Files that a job writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFiles {
    /// Its output, written here.
    pub log: PathBuf,
    /// Written by rank 0; absolute.
    pub record: PathBuf,
}

impl JobFiles {
    /// Path of the trace, beside the record.
    pub fn trace(&self) -> PathBuf {
        self.record.with_extension("trace.json")
    }
}

/// One launch.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// Shape.
    pub case: Case,
    /// Exactly the hosts of the case.
    pub hosts: &'a [Host],
    /// What the user set.
    pub options: &'a StarterOptions,
    /// Port of sshd on the hosts, for a starter that uses ssh.
    pub ssh_port: u16,
    /// CPU threads of a rank, where they are known.
    pub threads: Option<u32>,
    /// Processes beside the ranks.
    pub servers: ServerRanks,
    /// What each rank runs: program and arguments.
    pub program: Vec<String>,
    /// Log and record.
    pub files: JobFiles,
    /// This machine, as the launcher was started.
    pub environment: &'a LaunchEnvironment,
}

/// Names of hosts that a command line has at most. One argument may not pass 128 KiB, which some 4,000 long names would.
pub const HOSTS_ON_LINE: usize = 256;

impl Job<'_> {
    /// The host of every process: the ranks, host by host, then the servers.
    pub fn hosts_of_all(&self) -> Vec<&str> {
        hosts_of_all(self.hosts, self.case, &self.servers)
    }

    /// File for the hosts of a job that has too many for a command line.
    pub fn hostfile(&self) -> PathBuf {
        self.files.log.with_extension("hosts")
    }

    /// Returns true if a command line would have too many names: one for each process if there are servers, else one for each
    /// host.
    pub fn needs_hostfile(&self) -> bool {
        let names = match self.servers.number {
            0 => self.hosts.len(),
            servers => (self.case.ranks() + servers) as usize,
        };
        names > HOSTS_ON_LINE
    }

    /// Returns the text of the hostfile in Open MPI's form; `None` if the command line names the hosts.
    pub fn hostfile_text(&self) -> Option<String> {
        let slots = self.case.gpus_per_node;
        self.needs_hostfile().then(|| match self.servers.number {
            0 => self.hosts.iter().map(|host| format!("{} slots={slots}\n", host.name)).collect(),
            _ => self.hosts_of_all().into_iter().map(|host| format!("{host}\n")).collect(),
        })
    }

    /// Whether all processes run on this machine.
    pub fn is_local(&self) -> bool {
        self.hosts_of_all().iter().all(|host| self.environment.is_here(host))
    }

    /// Returns this machine's addresses that may lead here from the job's hosts; none if all of its ranks run here.
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

    /// The threads that are asked for, or an equal part of this machine's cores; unknown where ranks run elsewhere.
    pub fn threads_of_a_rank(&self) -> Option<u32> {
        let part = (self.environment.cores / self.case.gpus_per_node).max(1);
        self.threads.or(self.is_local().then_some(part))
    }
}

/// The host of every process of `case` on `hosts`: the ranks, host by host, then the servers.
pub fn hosts_of_all<'a>(hosts: &'a [Host], case: Case, servers: &'a ServerRanks) -> Vec<&'a str> {
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let ServerRanks { number, hosts, .. } = servers;
    let of_servers = if hosts.is_empty() { names.clone() } else { hosts.iter().map(String::as_str).collect() };
    let of_ranks = names.iter().flat_map(|name| (0..case.gpus_per_node).map(move |_| *name));
    of_ranks.chain(of_servers.into_iter().cycle().take(*number as usize)).collect()
}

/// The variable that gives NCCL its interface. It takes names alone: what a network is called on each host the worker finds
/// out there. The second `=` asks for this very name, without which others that begin so would do as well.
pub fn nccl_interface(interface: &InterfaceChoice) -> String {
    match interface {
        InterfaceChoice::Name(name) => format!("NCCL_SOCKET_IFNAME=={name}"),
        InterfaceChoice::Network(network) => format!("{INTERFACE_VARIABLE}={network}"),
    }
}

#[cfg(test)]
impl Job<'static> {
    /// `/opt/worker train` on `hosts`, without servers, with the log `run.log`.
    pub fn example(case: &str, hosts: &str, options: StarterOptions, environment: LaunchEnvironment) -> Job<'static> {
        use crate::launch::cluster::hosts::Hosts;

        let case = case.parse().expect("a case");
        let hosts: &Hosts = Box::leak(Box::new(Hosts::parse_list(hosts).expect("hosts")));
        Job {
            case,
            hosts: hosts.of(case),
            options: Box::leak(Box::new(options)),
            ssh_port: 22,
            threads: None,
            servers: ServerRanks::default(),
            program: vec!["/opt/worker".to_owned(), "train".to_owned()],
            files: JobFiles { log: "run.log".into(), record: "/run.jsonl".into() },
            environment: Box::leak(Box::new(environment)),
        }
    }
}
