//! Runs commands on a host with a timeout: directly on this machine, through the same ssh that mpirun uses, or as a task
//! of a scheduler's job. Jobs are started by mpirun or srun instead.
//!
//! No command outlives this process on the remote host: each reads its standard input to the end and then stops, and
//! that input closes when this process ends, even by SIGKILL.

use std::net::{IpAddr, ToSocketAddrs};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;
use std::{io, thread};

use crate::launch::cluster::hosts::Host;
use crate::launch::local::child::{self, Answer, Call, EndPolicy};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::open_mpi::SSH_AGENT;

/// ssh's connection timeout, in seconds. A reachable host answers sooner.
const CONNECT_SECONDS: u32 = 5;

/// Timeout for resolving a host name; after it the name is assumed to belong to another machine.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Route by which commands reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// ssh with its options and the host's name, or the scheduler's command; `None` for this machine.
    ssh: Option<Vec<String>>,
}

/// Placeholder of the host's name in a [`TaskCommand`].
pub const HOST: &str = "HOST";

impl Remote {
    /// Reaches the host as mpirun does: this machine, under any of its names, without ssh, and other hosts by
    /// mpirun's ssh and port.
    pub fn new(host: &Host, options: &SshOptions, environment: &LaunchEnvironment) -> Remote {
        let is_here = || environment.is_here(&host.name) || resolves_here(&host.name, &environment.addresses);
        match &options.task {
            Some(task) if task.is_for_this_machine || !is_here() => {
                return Remote { ssh: Some(task.words.iter().map(|word| word.replace(HOST, &host.name)).collect()) };
            }
            Some(_) => return Remote { ssh: None },
            None if is_here() => return Remote { ssh: None },
            None => {}
        }
        let mut ssh = options.agent.clone();
        ssh.extend(["-p".to_owned(), options.port.to_string()]);
        // Programs other than ssh get only the options that mpirun passes.
        let is_ssh = ssh[0].rsplit('/').next() == Some("ssh");
        let timeout = format!("ConnectTimeout={CONNECT_SECONDS}");
        let more: &[&str] = if is_ssh { &["-x", "-T", "-o", "BatchMode=yes", "-o", &timeout] } else { &["-q"] };
        ssh.extend(more.iter().map(|argument| (*argument).to_owned()));
        ssh.extend(["-o".to_owned(), "StrictHostKeyChecking=no".to_owned(), host.name.clone()]);
        Remote { ssh: Some(ssh) }
    }

    /// Returns true if the host is this machine.
    pub fn is_here(&self) -> bool {
        self.ssh.is_none()
    }

    /// Returns ssh and its options, without the host's name; `None` for this machine.
    pub fn ssh(&self) -> Option<&[String]> {
        let (_, ssh) = self.ssh.as_ref()?.split_last()?;
        Some(ssh)
    }

    /// Returns the command that runs `line` (program and arguments) on the host. Arguments are quoted.
    pub fn command(&self, line: &[&str]) -> Command {
        let (program, arguments): (&str, Vec<String>) = match &self.ssh {
            // ssh takes a single argument, which the host's shell splits again.
            Some(ssh) => (&ssh[0], ssh[1..].iter().cloned().chain([shell_words::join(line)]).collect()),
            None => (line[0], line[1..].iter().map(|argument| (*argument).to_owned()).collect()),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// Runs `line` with `input` on its standard input, for at most `timeout`. The answer contains the output so far
    /// even if the command failed or timed out.
    pub fn run(&self, line: &[&str], input: &[u8], timeout: Duration, interrupt: &Interrupt) -> io::Result<Answer> {
        let call = Call { input, timeout: Some(timeout), policy: EndPolicy::Kill };
        child::call(&mut self.command(line), call, interrupt)
    }
}

/// Returns true if `name` is or resolves to an address of this machine: mpirun does not use ssh then.
fn resolves_here(name: &str, addresses: &[IpAddr]) -> bool {
    let (sender, found) = mpsc::channel();
    let name = name.to_owned();
    // A name lookup cannot be canceled, only abandoned.
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
        sender.send(found.unwrap_or_else(|_| Vec::<IpAddr>::new()))
    });
    let found = found.recv_timeout(LOOKUP_TIMEOUT).unwrap_or_default();
    found.iter().any(|address| addresses.contains(address))
}

/// Program and port of ssh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of sshd on the hosts.
    pub port: u16,
    /// Program used for ssh, with its first arguments; `ssh` by default.
    pub agent: Vec<String>,
    /// Command of a scheduler, used instead of ssh.
    pub task: Option<TaskCommand>,
}

/// Command of a scheduler that runs a shell command, its last argument, on a host of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCommand {
    /// Program and arguments, with [`HOST`] as the host's name.
    pub words: Vec<String>,
    /// True if it also runs commands on this machine, because its tasks have other processors than this process.
    pub is_for_this_machine: bool,
}

impl SshOptions {
    /// Chooses the program as mpirun does: from `mpirun_arguments`, then the environment, then `ssh`.
    pub fn new(port: u16, mpirun_arguments: &[String], environment: &LaunchEnvironment) -> SshOptions {
        let is_agent = |name: &str| SSH_AGENT.iter().any(|(_, agent)| *agent == name);
        let chosen = mpirun_arguments.windows(2).find(|pair| is_agent(&pair[0])).map(|pair| &pair[1]);
        // The value is a colon-separated list. Open MPI takes the first program that it finds.
        let agent = chosen.or(environment.ssh_agent.as_ref()).and_then(|agents| agents.split(':').next());
        let agent: Vec<String> = agent.unwrap_or("ssh").split_whitespace().map(str::to_owned).collect();
        SshOptions { port, agent: if agent.is_empty() { vec!["ssh".to_owned()] } else { agent }, task: None }
    }

    /// Returns the options without the scheduler's command, for programs such as rsync that need ssh.
    pub fn without_task(&self) -> SshOptions {
        SshOptions { task: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn environment() -> LaunchEnvironment {
        let addresses = vec![IpAddr::from([192, 0, 2, 7])];
        LaunchEnvironment { host_name: "a".to_owned(), addresses, ..LaunchEnvironment::default() }
    }

    fn remote(host: &str, more: &[&str]) -> Remote {
        let more: Vec<String> = more.iter().map(|argument| (*argument).to_owned()).collect();
        let options = SshOptions::new(2222, &more, &environment());
        Remote::new(&Host { name: host.to_owned(), slots: 1 }, &options, &environment())
    }

    fn line(command: &Command) -> String {
        let line = [command.get_program()].into_iter().chain(command.get_args());
        line.map(|argument| argument.to_str().expect("UTF-8")).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn remote_host_is_reached_with_ssh_of_mpirun() {
        let command = |more| line(&remote("192.0.2.8", more).command(&["sh", "-c", "a b"]));
        expect![
            "ssh|-p|2222|-x|-T|-o|BatchMode=yes|-o|ConnectTimeout=5|-o|StrictHostKeyChecking=no|192.0.2.8|sh -c 'a b'"
        ]
        .assert_eq(&command(&[]));
        expect!["/opt/jump|-i|key|-p|2222|-q|-o|StrictHostKeyChecking=no|192.0.2.8|sh -c 'a b'"]
            .assert_eq(&command(&["-mca", "plm_rsh_agent", "/opt/jump -i key : rsh"]));
    }

    #[test]
    fn task_of_a_scheduler_runs_a_shell_command() {
        for is_for_this_machine in [false, true] {
            let words = ["srun", "--nodelist=HOST", "sh", "-c"].map(str::to_owned).to_vec();
            let task = Some(TaskCommand { words, is_for_this_machine });
            let options = SshOptions { task, ..SshOptions::new(22, &[], &environment()) };
            let remote = |name: &str| Remote::new(&Host { name: name.to_owned(), slots: 1 }, &options, &environment());
            assert_eq!(line(&remote("b").command(&["echo", "a b"])), "srun|--nodelist=b|sh|-c|echo 'a b'");
            assert_eq!(remote("a").is_here(), !is_for_this_machine);
        }
    }

    #[test]
    fn this_machine_is_reached_without_ssh() {
        for name in ["localhost", "127.0.0.1", "a", "192.0.2.7"] {
            assert_eq!(line(&remote(name, &[]).command(&["sh", "-c", "a b"])), "sh|-c|a b", "{name}");
        }
        assert!(!remote("192.0.2.8", &[]).is_here());
    }

    fn run(script: &str, timeout: Duration) -> Answer {
        let (line, input) = (["sh", "-s", "--", "a b"], script.as_bytes());
        remote("localhost", &[]).run(&line, input, timeout, &Interrupt::never()).expect("sh starts")
    }

    #[test]
    fn command_gets_input_and_arguments_and_returns_output() {
        let answer = run("echo \"$1\"; echo why >&2; exit 3", Duration::from_secs(20));
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("a b\n", "why\n"));
        assert_eq!(answer.status.and_then(|status| status.code()), Some(3));
        assert!(!answer.is_success() && answer.first_output.expect("output") <= answer.took);
    }

    #[test]
    fn hanging_command_is_killed_and_its_output_kept() {
        // The timeout grows until the command has written output before it is killed.
        let mut answers = [300, 3000, 30_000].into_iter().map(|timeout| {
            let answer = run("echo before; sleep 600 & sleep 600", Duration::from_millis(timeout));
            assert_eq!(answer.status, None);
            assert!(answer.took < Duration::from_secs(500), "{:?}", answer.took);
            answer.stdout
        });
        assert_eq!(answers.find(|output_text| !output_text.is_empty()).as_deref(), Some("before\n"));
        // A process left in the background does not delay the answer.
        let answer = run("sleep 600 & echo gone", Duration::from_secs(300));
        assert_eq!((answer.stdout.as_str(), answer.is_success()), ("gone\n", true));
        assert!(answer.took < Duration::from_secs(200), "{:?}", answer.took);
    }
}
