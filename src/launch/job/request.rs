//! What is to be launched: one job's shape, hosts and program, and what the user set for every job. Not for how: each
//! starter has its own command line.

use ringmark_record::dimension::case::Case;
use ringmark_record::host::inspection::INTERFACE_VARIABLE;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::interface::Interface;
use crate::launch::local::environment::LaunchEnvironment;

/// What the user set about mpirun or srun, for every job.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StarterOptions {
    /// Network interface of MPI and NCCL; they choose where `None`.
    pub interface: Option<Interface>,
    /// More arguments for mpirun or srun, after ours.
    pub arguments: Vec<String>,
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRequest<'a> {
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
    /// What each rank runs: program and arguments.
    pub program: Vec<String>,
}

impl JobRequest<'_> {
    /// Whether all ranks run on this machine.
    pub fn is_local(&self, environment: &LaunchEnvironment) -> bool {
        self.hosts.iter().all(|host| environment.is_here(&host.name))
    }

    /// The threads that are asked for, or an equal part of this machine's cores; unknown where ranks run elsewhere.
    pub fn threads_of_a_rank(&self, environment: &LaunchEnvironment) -> Option<u32> {
        let part = (environment.cores / self.case.gpus_per_node).max(1);
        self.threads.or(self.is_local(environment).then_some(part))
    }
}

/// The variable that gives NCCL its interface. It takes names alone: what a network is called on each host the worker finds
/// out there. The second `=` asks for this very name, without which others that begin so would do as well.
pub fn nccl_interface(interface: &Interface) -> String {
    match interface {
        Interface::Name(name) => format!("NCCL_SOCKET_IFNAME=={name}"),
        Interface::Network(network) => format!("{INTERFACE_VARIABLE}={network}"),
    }
}
