//! How a command is run on a host: here, or by the ssh that mpirun would use, with a time-out. Not for jobs: mpirun
//! starts those.
//!
//! Nothing outlives this process there: what is run reads its standard input to the end and then stops, and that input
//! ends with us, however we end.

use std::io::{self, Read, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::launch::cluster::hosts::Host;
use crate::launch::job::mpirun::{MpirunOptions, Surroundings};
use crate::launch::job::process::Interrupt;

/// How long ssh tries to connect: a host that is there answers in less.
const CONNECT_SECONDS: u32 = 5;

/// How long a name may take to be looked up before it counts as another machine's.
const LOOK_UP: Duration = Duration::from_secs(2);

/// How often a waiting loop looks at the clock, the child and the interrupt.
const TICK: Duration = Duration::from_millis(20);

/// How long output is waited for after the process that wrote it has ended: one that it left behind may hold the pipe.
const REST: Duration = Duration::from_millis(200);

/// The way to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// ssh with its options and the host's name; `None` for this machine.
    ssh: Option<Vec<String>>,
}

impl Remote {
    /// The way that mpirun takes: none to this machine, under whatever name, and to others its ssh with its port.
    pub fn new(host: &Host, options: &MpirunOptions, surroundings: &Surroundings) -> Remote {
        if surroundings.is_here(host) || leads_here(&host.name, &surroundings.addresses) {
            return Remote { ssh: None };
        }
        let mut ssh = options.ssh_agent(surroundings);
        ssh.extend(["-p".to_owned(), options.ssh_port.to_string()]);
        // Another program than ssh gets what mpirun gives it and no more.
        let is_ssh = ssh[0].rsplit('/').next() == Some("ssh");
        let timeout = format!("ConnectTimeout={CONNECT_SECONDS}");
        let more: &[&str] = if is_ssh { &["-x", "-T", "-o", "BatchMode=yes", "-o", &timeout] } else { &["-q"] };
        ssh.extend(more.iter().map(|word| (*word).to_owned()));
        ssh.extend(["-o".to_owned(), "StrictHostKeyChecking=no".to_owned(), host.name.clone()]);
        Remote { ssh: Some(ssh) }
    }

    /// Whether the host is this machine.
    pub fn is_here(&self) -> bool {
        self.ssh.is_none()
    }

    /// ssh with its options, without the host's name; `None` for this machine.
    pub fn ssh(&self) -> Option<&[String]> {
        let (_, ssh) = self.ssh.as_ref()?.split_last()?;
        Some(ssh)
    }

    /// The command that runs `words` there, each of them one word whatever it holds.
    pub fn command(&self, words: &[&str]) -> Command {
        let (program, arguments): (&str, Vec<String>) = match &self.ssh {
            // One word for ssh, which the host's shell takes apart again.
            Some(ssh) => (&ssh[0], ssh[1..].iter().cloned().chain([shell_words::join(words)]).collect()),
            None => (words[0], words[1..].iter().map(|word| (*word).to_owned()).collect()),
        };
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }

    /// Runs `words` there with `input` on their standard input, for `timeout` at most. What was written until then is
    /// in the answer, however it ended.
    pub fn run(&self, words: &[&str], input: &[u8], timeout: Duration, interrupt: &Interrupt) -> io::Result<Answer> {
        let start = Instant::now();
        let mut child = Running::start(self.command(words))?;
        let (sender, chunks) = mpsc::channel();
        let (mut stdin, input) = (child.process.stdin.take(), input.to_vec());
        // A process that does not read must not hold us up, and one that has ended early says why in its own words.
        thread::spawn(move || stdin.take().map(|mut stdin| stdin.write_all(&input)));
        let (stdout, stderr) = (child.process.stdout.take(), child.process.stderr.take());
        stdout.into_iter().for_each(|pipe| forward(pipe, false, sender.clone()));
        stderr.into_iter().for_each(|pipe| forward(pipe, true, sender.clone()));
        drop(sender);

        let mut answer = Answer::default();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut deadline = start + timeout;
        loop {
            match chunks.recv_timeout(TICK) {
                Ok((is_error, bytes)) => {
                    if !is_error {
                        answer.first_output.get_or_insert_with(|| start.elapsed());
                    }
                    if is_error { &mut stderr } else { &mut stdout }.extend(bytes);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if answer.status.is_some() => break,
                // Its output is closed: it is about to exit.
                Err(RecvTimeoutError::Disconnected) => thread::sleep(Duration::from_millis(1)),
            }
            if answer.status.is_none() {
                answer.status = child.process.try_wait()?;
                if answer.status.is_some() {
                    deadline = deadline.min(Instant::now() + REST);
                }
            }
            if Instant::now() >= deadline || interrupt.asked() {
                break;
            }
        }
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Answer { stdout: text(stdout), stderr: text(stderr), took: start.elapsed(), ..answer })
    }
}

/// What came of a command.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// `None` where it did not end in time, or the user asked to stop.
    pub status: Option<ExitStatus>,
    /// All it wrote, as far as it came.
    pub stdout: String,
    /// All it wrote, as far as it came.
    pub stderr: String,
    /// From its start to its end.
    pub took: Duration,
    /// From its start to the first of its standard output.
    pub first_output: Option<Duration>,
}

impl Answer {
    /// Whether it ended by itself, with exit status 0.
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }
}

/// A process in a group of its own, so that the terminal's Ctrl-C reaches us alone; dropping it ends the group.
pub struct Running {
    /// The process, with all three streams piped.
    pub process: Child,
}

impl Running {
    /// Starts it.
    pub fn start(mut command: Command) -> io::Result<Running> {
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Running { process: pipes.process_group(0).spawn()? })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error means that it has gone already.
        let _ = killpg(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGKILL);
        let _ = self.process.wait();
    }
}

/// Sends what comes out of `pipe`, until it closes.
fn forward(mut pipe: impl Read + Send + 'static, is_error: bool, sender: Sender<(bool, Vec<u8>)>) {
    thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if sender.send((is_error, buffer[..count].to_vec())).is_err() {
                return;
            }
        }
    });
}

/// Whether `name` is one of this machine's own addresses, or leads to one: mpirun needs no ssh then.
fn leads_here(name: &str, addresses: &[IpAddr]) -> bool {
    let (sender, found) = mpsc::channel();
    let name = name.to_owned();
    // The look-up cannot be ended, only left behind.
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(|found| found.map(|address| address.ip()).collect());
        sender.send(found.unwrap_or_else(|_| Vec::<IpAddr>::new()))
    });
    let found = found.recv_timeout(LOOK_UP).unwrap_or_default();
    found.iter().any(|address| addresses.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surroundings() -> Surroundings {
        Surroundings { host_name: "a".to_owned(), addresses: vec![IpAddr::from([192, 0, 2, 7])], ..Default::default() }
    }

    fn remote(host: &str, more: &[&str]) -> Remote {
        let more = more.iter().map(|word| (*word).to_owned()).collect();
        let options = MpirunOptions { interface: None, ssh_port: 2222, more };
        Remote::new(&Host { name: host.to_owned(), slots: 1 }, &options, &surroundings())
    }

    fn line(command: &Command) -> String {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        words.map(|word| word.to_str().expect("UTF-8")).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn another_host_is_reached_by_mpirun_s_ssh() {
        let command = |more| line(&remote("192.0.2.8", more).command(&["sh", "-c", "a b"]));
        assert_eq!(
            command(&[]),
            "ssh|-p|2222|-x|-T|-o|BatchMode=yes|-o|ConnectTimeout=5|-o|StrictHostKeyChecking=no|192.0.2.8|sh -c 'a b'"
        );
        assert_eq!(
            command(&["-mca", "plm_rsh_agent", "/opt/jump -i key : rsh"]),
            "/opt/jump|-i|key|-p|2222|-q|-o|StrictHostKeyChecking=no|192.0.2.8|sh -c 'a b'"
        );
    }

    #[test]
    fn this_machine_is_reached_without() {
        for name in ["localhost", "127.0.0.1", "a", "192.0.2.7"] {
            assert_eq!(line(&remote(name, &[]).command(&["sh", "-c", "a b"])), "sh|-c|a b", "{name}");
        }
        assert!(!remote("192.0.2.8", &[]).is_here());
    }

    fn run(script: &str, timeout: Duration) -> Answer {
        let (words, input) = (["sh", "-s", "--", "a b"], script.as_bytes());
        remote("localhost", &[]).run(&words, input, timeout, &Interrupt::never()).expect("sh starts")
    }

    #[test]
    fn a_command_gets_its_input_and_words_and_answers_on_both_streams() {
        let answer = run("echo \"$1\"; echo why >&2; exit 3", Duration::from_secs(20));
        assert_eq!((answer.stdout.as_str(), answer.stderr.as_str()), ("a b\n", "why\n"));
        assert_eq!(answer.status.and_then(|status| status.code()), Some(3));
        assert!(!answer.is_success() && answer.first_output.expect("there is some") <= answer.took);
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_what_it_said() {
        let answer = run("echo before; sleep 60 & sleep 60", Duration::from_millis(300));
        assert_eq!((answer.stdout.as_str(), answer.status), ("before\n", None));
        assert!(answer.took < Duration::from_secs(20), "{:?}", answer.took);
        // One that left something behind is not waited for.
        let answer = run("sleep 60 & echo gone", Duration::from_secs(30));
        assert_eq!((answer.stdout.as_str(), answer.is_success()), ("gone\n", true));
        assert!(answer.took < Duration::from_secs(20), "{:?}", answer.took);
    }
}
