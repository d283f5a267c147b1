//! Several hosts on one machine: network namespaces with sshd (scripts/dev/cluster.sh) or with a scheduler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use nix::unistd::Uid;
use ringmark::launch::job::mpirun::TRANSPORTS;

use super::prerequisite::not_tested;
use crate::support::sandbox::{MPIRUN, words};
use crate::support::worker;

/// Names of the clusters in use; several exist if tests run in parallel.
static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Hosts that are removed when the test ends in any way. A test creates them before it takes core tokens ([`take_all_cores`]):
/// creation takes seconds, but no core.
pub struct Cluster {
    /// Script that creates the hosts and runs commands on the first.
    script: &'static str,
    name: String,
}

impl Cluster {
    /// Creates hosts without a scheduler.
    pub fn start(hosts: u32) -> Option<Cluster> {
        Cluster::from_script("cluster.sh", hosts)
    }

    /// Creates hosts with `script`; prints a message and returns `None` if this user may not do so.
    pub fn from_script(script: &'static str, hosts: u32) -> Option<Cluster> {
        // One at a time: the first call may have to install packages.
        static MAKING: Mutex<()> = Mutex::new(());
        if !Uid::effective().is_root() {
            not_tested("simulated hosts require root");
            return None;
        }
        let first = std::env::var("CLUSTER_NAME").unwrap_or_else(|_| "ringmark".to_owned());
        let others = ('b'..='z').map(|letter| format!("{first}-{letter}"));
        let is_new = |name: &String| NAMES.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone());
        let name = [first.clone()].into_iter().chain(others).find(is_new).expect("fewer tests than letters");
        let cluster = Cluster { script, name };
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        succeed(&cluster.call(&["down"]));
        succeed(&cluster.call(&["up", &hosts.to_string()]));
        Some(cluster)
    }

    /// Returns the name of host `number`, from 1.
    pub fn host(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Returns the folder in which the scripts keep their files.
    pub fn state(&self) -> PathBuf {
        Path::new("/run").join(format!("{}-cluster", self.name))
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dev").join(self.script));
        command.args(words).env("CLUSTER_NAME", &self.name);
        command
    }

    pub fn call(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the script starts")
    }

    /// Runs workers with these numbers of ranks on the hosts, with these arguments.
    pub fn worker(&self, ranks: &[u32], arguments: &[&str]) -> Output {
        let host = |(index, ranks): (usize, &u32)| format!("{}:{ranks}", self.host(index + 1));
        let hosts = ranks.iter().enumerate().map(host).collect::<Vec<_>>().join(",");
        let (all, program) = (ranks.iter().sum::<u32>().to_string(), worker());
        let mut command: Vec<&str> = ["run", "mpirun"].into_iter().chain(words(MPIRUN)).chain([all.as_str()]).collect();
        command.extend(["-H", &hosts, "-x", "OMP_NUM_THREADS=1", "-mca", "btl", TRANSPORTS]);
        command.push(program.to_str().expect("a name"));
        command.extend(arguments);
        self.call(&command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["down"]);
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Fails with the output if the command failed.
pub fn succeed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
