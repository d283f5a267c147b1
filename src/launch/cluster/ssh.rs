//! How ssh reaches the hosts: its program and port, the same for mpirun, for the doctor and for copies.

use crate::launch::local::environment::LaunchEnvironment;

/// How ssh reaches the hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of sshd on the hosts.
    pub port: u16,
    /// The program in the place of ssh with its first arguments; `ssh` alone unless the user chose another.
    pub agent: Vec<String>,
}

impl SshOptions {
    /// The program that mpirun would take: one that `mpirun_arguments` name, or the environment, or else ssh.
    pub fn new(port: u16, mpirun_arguments: &[String], environment: &LaunchEnvironment) -> SshOptions {
        let chosen = mpirun_arguments.windows(2).find(|pair| pair[0] == "plm_rsh_agent").map(|pair| &pair[1]);
        // Several stand between colons, of which Open MPI takes the first that it finds.
        let agent = chosen.or(environment.ssh_agent.as_ref()).and_then(|agents| agents.split(':').next());
        let agent: Vec<String> = agent.unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        SshOptions { port, agent: if agent.is_empty() { vec!["ssh".to_owned()] } else { agent } }
    }
}
