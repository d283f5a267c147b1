//! Several hosts on one machine: network namespaces with sshd (scripts/cluster.sh), or with a scheduler.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use nix::unistd::Uid;
use ringmark::launch::job::mpirun::TRANSPORTS;

use crate::support::worker;

/// Names of the clusters that are up, beside each other where tests run at the same time.
static NAMES: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Hosts that are taken down when the test ends, however it ends. A test makes them before its [`turn`]: they take seconds,
/// but no core.
pub struct Cluster {
    /// The script that makes them and runs commands on the first.
    script: &'static str,
    name: String,
}

impl Cluster {
    /// Plain hosts.
    pub fn up(hosts: u32) -> Option<Cluster> {
        Cluster::made_by("cluster.sh", hosts)
    }

    /// `None`, with a word of why, where this user may not make hosts.
    pub fn made_by(script: &'static str, hosts: u32) -> Option<Cluster> {
        // One at a time: the first may have to install what it needs.
        static MAKING: Mutex<()> = Mutex::new(());
        if !Uid::effective().is_root() {
            eprintln!("not tested: hosts on one machine are made by root alone");
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

    /// Name of host `number`, from 1 on.
    pub fn host(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    /// Where the scripts keep all that they make.
    pub fn state(&self) -> PathBuf {
        Path::new("/run").join(format!("{}-cluster", self.name))
    }

    /// The script, called with `words`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(self.script));
        command.args(words).env("CLUSTER_NAME", &self.name);
        command
    }

    /// Its answer to `words`.
    pub fn call(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the script starts")
    }

    /// Runs workers with so many ranks on each host, with `words`.
    pub fn worker(&self, ranks: &[u32], words: &[&str]) -> Output {
        let host = |(index, ranks): (usize, &u32)| format!("{}:{ranks}", self.host(index + 1));
        let hosts = ranks.iter().enumerate().map(host).collect::<Vec<_>>().join(",");
        let (all, program) = (ranks.iter().sum::<u32>().to_string(), worker());
        let mut command =
            vec!["run", "mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", &all];
        command.extend(["-H", &hosts, "-x", "OMP_NUM_THREADS=1", "-mca", "btl", TRANSPORTS]);
        command.push(program.to_str().expect("a name"));
        command.extend(words);
        self.call(&command)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.call(&["down"]);
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

/// Shows what `output` says where it is a failure.
pub fn succeed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
}
