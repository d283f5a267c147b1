//! Program and port of ssh, shared by mpirun, the doctor and file copies.

use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::open_mpi::SSH_AGENT;

/// Program and port of ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of sshd on the hosts.
    pub port: u16,
    /// Program used for ssh, with its first arguments; `ssh` by default.
    pub agent: Vec<String>,
}

impl SshOptions {
    /// Chooses the program as mpirun does: from `mpirun_arguments`, then the environment, then `ssh`.
    pub fn new(port: u16, mpirun_arguments: &[String], environment: &LaunchEnvironment) -> SshOptions {
        let is_agent = |name: &str| SSH_AGENT.iter().any(|(_, agent)| *agent == name);
        let chosen = mpirun_arguments.windows(2).find(|pair| is_agent(&pair[0])).map(|pair| &pair[1]);
        // The value is a colon-separated list. Open MPI takes the first program that it finds.
        let agent = chosen.or(environment.ssh_agent.as_ref()).and_then(|agents| agents.split(':').next());
        let agent: Vec<String> = agent.unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        SshOptions { port, agent: if agent.is_empty() { vec!["ssh".to_owned()] } else { agent } }
    }
}
