//! One host visited: the script first, then the agent, each under its limit. What was found, without judging it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringmark_core::dimension::{DeviceChoice, Seconds};
use ringmark_core::host::{Inspection, Order, Reply};
use ringmark_core::validity::thresholds::HEAVY_FOREIGN_LOAD;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::remote::Remote;
use crate::launch::cluster::ssh::SshOptions;
use crate::launch::cluster::ssh_failure::{self, SshFailure};
use crate::launch::doctor::agent::{Agent, AgentStart};
use crate::launch::doctor::probe::{Gpus, Probe, SCRIPT, WorkerFile};
use crate::launch::job::request::{NeededMemory, StarterOptions};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{PROGRAMS, side_by_side};

/// The script's limit: ssh's own, and that of nvidia-smi in it.
const SCRIPT_LIMIT: Duration = Duration::from_secs(14);

/// Time for the agent's first reply when it loads libtorch's CPU half.
const AGENT_LIMIT_ON_CPU: Duration = Duration::from_secs(12);

/// The same when it loads the CUDA half too: gigabytes on a disk that may be far away.
const AGENT_LIMIT_ON_GPU: Duration = Duration::from_secs(40);

/// What it may take longer, at most, where other processes wait for cores: a second for each.
const AGENT_LIMIT_OF_LOAD: f64 = 30.0;

/// Exchanges of which the shortest gives the clock.
const CLOCKS: usize = 3;

/// What was found on one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct HostFacts {
    /// As the user calls it.
    pub host: String,
    /// Ranks that it is to take; 0 of one that holds servers alone.
    pub slots: u32,
    /// Whether it is the machine that this program runs on.
    pub is_here: bool,
    /// From the start of ssh to the first word of the host.
    #[serde(rename = "ssh_seconds")]
    pub ssh: Option<Seconds>,
    /// Why no command could be run there.
    pub refusal: Option<SshFailure>,
    /// What ssh warned of.
    pub warning: Option<SshFailure>,
    /// What the host says without the worker.
    pub probe: Option<Probe>,
    /// What the worker says.
    pub inspection: Option<Inspection>,
    /// Why it did not start: its own message or the loader's.
    pub worker_failure: Option<String>,
    /// How much its clock is ahead of this machine's.
    #[serde(rename = "clock_ahead_seconds")]
    pub clock_ahead: Option<Seconds>,
}

impl HostFacts {
    /// Whether it is to take ranks, and not servers alone.
    pub fn has_ranks(&self) -> bool {
        self.slots > 0
    }

    /// Its load average, and its cores.
    pub fn load(&self) -> Option<(f64, u32)> {
        Some((self.probe.as_ref()?.load?, self.inspection.as_ref()?.cores))
    }

    /// Returns true if other programs use so much of it that figures would be unreliable. The load of a minute alone may be
    /// that of an earlier run, which has ended.
    pub fn is_busy(&self) -> bool {
        let Some((load, cores)) = self.load() else { return false };
        let limit = HEAVY_FOREIGN_LOAD * f64::from(cores);
        let runnable = self.probe.as_ref().and_then(|probe| probe.runnable);
        load > limit && runnable.is_none_or(|threads| f64::from(threads) > 1.0 + limit)
    }
}

/// How the hosts are visited.
pub struct Visit<'a> {
    /// Path of the worker, the same everywhere.
    pub worker: &'a Path,
    /// Folder of the results, where there is to be one.
    pub results: Option<&'a Path>,
    /// What the ranks are to use.
    pub device: DeviceChoice,
    /// Memory that ranks and servers on each host will need, by its name, where that is known.
    pub needed: &'a BTreeMap<String, NeededMemory>,
    /// Files and folders that the ranks are to read.
    pub data: &'a [PathBuf],
    /// Whether there are several hosts, so that it matters which network they use.
    pub several: bool,
    /// How ssh reaches them.
    pub ssh: &'a SshOptions,
    /// What mpirun or srun is to get.
    pub options: &'a StarterOptions,
    /// What this process was started with and in.
    pub environment: &'a LaunchEnvironment,
    /// Whether the user asked to stop.
    pub interrupt: &'a Interrupt,
}

impl Visit<'_> {
    /// All of `hosts`, side by side, in their order; with each the agent, where it runs.
    pub fn all(&self, hosts: &[Host]) -> Vec<(HostFacts, Option<Agent>)> {
        side_by_side(PROGRAMS, hosts, |host| self.one(host))
    }

    fn one(&self, host: &Host) -> (HostFacts, Option<Agent>) {
        let remote = Remote::new(host, self.ssh, self.environment);
        let mut facts =
            HostFacts { host: host.name.clone(), slots: host.slots, is_here: remote.is_here(), ..HostFacts::default() };
        self.run_script(&remote, &mut facts);
        let Some(probe) = &facts.probe else { return (facts, None) };
        if matches!(probe.worker, WorkerFile::Missing | WorkerFile::Refused) {
            return (facts, None);
        }
        // A driver that hangs would hold the agent up as well.
        let (device, patience) = match (&probe.gpus, self.device) {
            // Servers use none.
            _ if !facts.has_ranks() => (DeviceChoice::Cpu, AGENT_LIMIT_ON_CPU),
            (Gpus::None, DeviceChoice::Auto) | (_, DeviceChoice::Cpu) | (Gpus::Hang | Gpus::Unknown, _) => {
                (DeviceChoice::Cpu, AGENT_LIMIT_ON_CPU)
            }
            _ => (self.device, AGENT_LIMIT_ON_GPU),
        };
        let load = probe.load.unwrap_or_default().clamp(0.0, AGENT_LIMIT_OF_LOAD);
        let patience = patience + Duration::from_secs_f64(load);
        let start = AgentStart { worker: self.worker, device, environment: self.environment, patience };
        match Agent::start(&remote, &start, self.interrupt) {
            Ok((mut agent, inspection)) => {
                facts.inspection = Some(inspection);
                facts.clock_ahead = if facts.is_here { None } else { clock_ahead(&mut agent) };
                (facts, Some(agent))
            }
            Err(reason) => {
                facts.worker_failure = Some(reason);
                (facts, None)
            }
        }
    }

    fn run_script(&self, remote: &Remote, facts: &mut HostFacts) {
        let results = self.results.map(|folder| folder.display().to_string()).unwrap_or_default();
        let several = if self.several { "several" } else { "" };
        let (worker, data) = (self.worker.display().to_string(), self.data.iter());
        let data: Vec<String> = data.map(|path| path.display().to_string()).collect();
        let mut line = vec!["sh", "-s", "--", &worker, &results, several];
        line.extend(data.iter().map(String::as_str));
        let answer = match remote.run(&line, SCRIPT.as_bytes(), SCRIPT_LIMIT, self.interrupt) {
            Ok(answer) => answer,
            Err(error) => {
                let what = format!("ssh cannot be started here: {error}");
                let fix = "install an SSH client (apt-get install openssh-client)".to_owned();
                facts.refusal = Some(SshFailure { what, fix });
                return;
            }
        };
        facts.probe = Probe::parse(&answer.stdout);
        if facts.probe.is_none() {
            facts.refusal = Some(ssh_failure::explain(&answer, &facts.host, self.ssh.port));
        } else if !facts.is_here {
            facts.ssh = answer.first_output.map(|time| Seconds(time.as_secs_f64()));
            facts.warning = ssh_failure::warning(&answer.stderr, &facts.host);
        }
    }
}

/// How much the agent's clock is ahead of ours, by the shortest exchange.
fn clock_ahead(agent: &mut Agent) -> Option<Seconds> {
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..CLOCKS {
        let before = now();
        let Ok(Reply::Clock(there)) = agent.ask(&Order::Clock, Duration::ZERO) else { return None };
        let after = now();
        let took = after - before;
        if best.is_none_or(|(shortest, _)| took < shortest) {
            best = Some((took, there.0 - (before + after) / 2.0));
        }
    }
    best.map(|(_, ahead)| Seconds(ahead))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
