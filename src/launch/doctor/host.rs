//! Collects facts from one host: runs the script first, then the agent, each with a timeout. Makes no judgment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringmark_core::dimension::{DeviceChoice, Seconds};
use ringmark_core::host::{HostLoad, Inspection, Order, Reply, unix_time};
use ringmark_core::validity::thresholds::HEAVY_FOREIGN_LOAD;
use schemars::JsonSchema;
use serde::Serialize;

use crate::launch::cluster::hosts::Host;
use crate::launch::cluster::remote::{Remote, SshOptions};
use crate::launch::cluster::ssh_failure::{self, SshFailure};
use crate::launch::doctor::agent::{Agent, AgentStart};
use crate::launch::doctor::probe::{Gpus, Probe, SCRIPT, WorkerFile};
use crate::launch::job::job_launch::{NeededMemory, StarterOptions};
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::local::environment::LaunchEnvironment;
use crate::launch::local::interrupt::Interrupt;
use crate::launch::local::side_by_side::{MAX_PROGRAMS, in_parallel};

/// Timeout of the script, which includes ssh's own and that of nvidia-smi in it.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(14);

/// Timeout of the agent's first reply when it loads only libtorch's CPU library.
const AGENT_TIMEOUT_ON_CPU: Duration = Duration::from_secs(12);

/// Timeout when it also loads the CUDA library: gigabytes, perhaps on a slow network disk.
const AGENT_TIMEOUT_ON_GPU: Duration = Duration::from_secs(40);

/// Maximum extension of the timeout, in seconds, if other processes compete for cores: 1 s for each.
const MAX_LOAD_EXTENSION: f64 = 30.0;

/// Number of clock exchanges; the shortest one counts.
const CLOCK_EXCHANGES: usize = 3;

/// Facts about one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
pub struct HostFacts {
    /// Host name as the user gave it.
    pub host: String,
    /// Ranks assigned to the host; 0 if it only runs servers.
    pub slots: u32,
    /// True if it is the machine that this program runs on.
    pub is_here: bool,
    /// Time from the start of ssh to the host's first output.
    #[serde(rename = "ssh_seconds")]
    pub ssh: Option<Seconds>,
    /// Reason why no command could be run there.
    pub refusal: Option<SshFailure>,
    /// Warning that ssh printed.
    pub warning: Option<SshFailure>,
    /// Facts from the script, which does not need the worker.
    pub probe: Option<Probe>,
    /// Facts from the worker.
    pub inspection: Option<Inspection>,
    /// Reason why the worker did not start: its own message or the loader's.
    pub worker_failure: Option<String>,
    /// Time by which its clock is ahead of this machine's.
    #[serde(rename = "clock_ahead_seconds")]
    pub clock_ahead: Option<Seconds>,
}

impl HostFacts {
    /// Returns true if the host is assigned ranks, not only servers.
    pub fn has_ranks(&self) -> bool {
        self.slots > 0
    }

    /// Returns the load average, if known.
    pub fn load(&self) -> Option<HostLoad> {
        let (load, cores) = (self.probe.as_ref()?.load?, self.inspection.as_ref()?.cores);
        Some(HostLoad { host: self.host.clone(), load, cores })
    }

    /// Returns true if other programs use so much of the host that figures would be unreliable. The one-minute load
    /// average alone may come from an earlier run that has ended.
    pub fn is_busy(&self) -> bool {
        let Some(HostLoad { load, cores, .. }) = self.load() else { return false };
        let limit = HEAVY_FOREIGN_LOAD * f64::from(cores);
        let runnable = self.probe.as_ref().and_then(|probe| probe.runnable);
        load > limit && runnable.is_none_or(|threads| f64::from(threads) > 1.0 + limit)
    }
}

/// Settings for visiting the hosts.
pub struct InspectionSettings<'a> {
    /// Path of the worker, the same on every host.
    pub worker: &'a Path,
    /// Folder of the results, if there is one.
    pub results: Option<&'a Path>,
    /// Device that the ranks are to use.
    pub device: DeviceChoice,
    /// Memory that ranks and servers need on each host, by host name, if known.
    pub needed: &'a BTreeMap<String, NeededMemory>,
    /// Files and folders that the ranks read.
    pub data: &'a [PathBuf],
    /// True if there are several hosts, so that the choice of network matters.
    pub is_multi_host: bool,
    /// Options for ssh.
    pub ssh: &'a SshOptions,
    /// Options for mpirun or srun.
    pub options: &'a StarterOptions,
    /// Environment and options of this process.
    pub environment: &'a LaunchEnvironment,
    /// Set when the user interrupts.
    pub interrupt: &'a Interrupt,
}

impl<'a> InspectionSettings<'a> {
    /// Returns the settings for the hosts of `launcher`, whose jobs write to `results` and read `data`.
    pub fn for_jobs(
        launcher: &'a Launcher,
        config: &'a LaunchConfig,
        results: &'a Path,
        needed: &'a BTreeMap<String, NeededMemory>,
        data: &'a [PathBuf],
        interrupt: &'a Interrupt,
    ) -> InspectionSettings<'a> {
        InspectionSettings {
            worker: launcher.program(),
            results: Some(results),
            device: config.device,
            needed,
            data,
            is_multi_host: launcher.hosts().len() > 1,
            ssh: &config.ssh,
            options: launcher.options(),
            environment: launcher.environment(),
            interrupt,
        }
    }
}

impl InspectionSettings<'_> {
    /// Visits all `hosts` in parallel; returns the facts in their order, each with the agent if it runs.
    pub fn visit_all(&self, hosts: &[Host]) -> Vec<(HostFacts, Option<Agent>)> {
        in_parallel(MAX_PROGRAMS, hosts, |host| self.visit_one(host))
    }

    fn visit_one(&self, host: &Host) -> (HostFacts, Option<Agent>) {
        let remote = Remote::new(host, self.ssh, self.environment);
        let mut facts =
            HostFacts { host: host.name.clone(), slots: host.slots, is_here: remote.is_here(), ..HostFacts::default() };
        self.run_script(&remote, &mut facts);
        let Some(probe) = &facts.probe else { return (facts, None) };
        if matches!(probe.worker, WorkerFile::Missing | WorkerFile::Refused) {
            return (facts, None);
        }
        // A hanging driver would block the agent as well.
        let (device, timeout) = match (&probe.gpus, self.device) {
            // Servers use no device.
            _ if !facts.has_ranks() => (DeviceChoice::Cpu, AGENT_TIMEOUT_ON_CPU),
            (Gpus::None, DeviceChoice::Auto) | (_, DeviceChoice::Cpu) | (Gpus::Hang | Gpus::Unknown, _) => {
                (DeviceChoice::Cpu, AGENT_TIMEOUT_ON_CPU)
            }
            _ => (self.device, AGENT_TIMEOUT_ON_GPU),
        };
        let load = probe.load.unwrap_or_default().clamp(0.0, MAX_LOAD_EXTENSION);
        let timeout = timeout + Duration::from_secs_f64(load);
        let start = AgentStart { worker: self.worker, device, environment: self.environment, timeout };
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
        let several = if self.is_multi_host { "several" } else { "" };
        let (worker, data) = (self.worker.display().to_string(), self.data.iter());
        let data: Vec<String> = data.map(|path| path.display().to_string()).collect();
        let mut line = vec!["sh", "-s", "--", &worker, &results, several];
        line.extend(data.iter().map(String::as_str));
        let answer = match remote.run(&line, SCRIPT.as_bytes(), SCRIPT_TIMEOUT, self.interrupt) {
            Ok(answer) => answer,
            Err(error) => {
                let what = format!("cannot start ssh: {error}");
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

/// Measures how far the agent's clock is ahead of ours, from the shortest exchange.
fn clock_ahead(agent: &mut Agent) -> Option<Seconds> {
    let mut best: Option<(f64, f64)> = None;
    for _ in 0..CLOCK_EXCHANGES {
        let before = unix_time().0;
        let Ok(Reply::Clock(there)) = agent.request(&Order::Clock, Duration::ZERO) else { return None };
        let after = unix_time().0;
        let took = after - before;
        if best.is_none_or(|(shortest, _)| took < shortest) {
            best = Some((took, there.0 - (before + after) / 2.0));
        }
    }
    best.map(|(_, ahead)| Seconds(ahead))
}
