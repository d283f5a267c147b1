//! Options of `ringmark doctor`.

use std::path::{self, PathBuf};

use clap::Args;
use ringmark_core::dimension::DeviceChoice;
use ringmark_core::options::clap_binding::keyword;

use crate::cli::json::JsonOption;
use crate::cli::launch::hosts::{HostOptions, HostQuery, Machine};
use crate::launch::cluster::hosts;
use crate::launch::doctor::command::DoctorConfig;
use crate::launch::doctor::network::NetworkTestScope;
use crate::launch::job::launcher::LaunchConfig;

const DOCTOR_EXAMPLES: &str = "\
Examples:
  ringmark doctor --hosts a:8,b:8,c:8,d:8
      everything, with the bandwidth between every two hosts
  ringmark doctor --hostfile hosts --quick --out /shared/results/rack7
      the checks that a sweep makes before it starts
  ringmark doctor --hosts a:8,b:8 --data /data/train.rec,/data/val.rec
      with files that training reads on every host
  ringmark doctor --hosts a:8,b:8 --server-hosts s,t
      with two hosts for parameter servers only
  ringmark doctor --hosts a:8,b:8 --interface ib0 --json health.json
      on one network; the findings also go to a file

Nothing on the hosts is changed. Exit status 1: a job would fail there; 2: a usage error; 130: Ctrl-C.";

/// Options of `ringmark doctor`.
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub struct DoctorOptions {
    /// Hosts to examine.
    #[command(flatten)]
    hosts: HostOptions,
    /// Hosts that run only parameter servers; also checked
    ///
    /// Hosts of --strategy dist_* servers; their devices are not checked.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    server_hosts: Vec<String>,
    /// Folder for results; checks its free space
    ///
    /// Also checks that the first host has this folder.
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Training data that every host must have
    ///
    /// Files and folders, as for sweep; checks that all hosts have the same.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    data: Vec<PathBuf>,
    /// Device of the ranks; cpu ignores the GPUs
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = keyword::<DeviceChoice>())]
    device: DeviceChoice,
    /// Skip the link bandwidth measurements
    ///
    /// Checks only that each host reaches the next, as a sweep does before it starts.
    #[arg(long)]
    quick: bool,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

impl DoctorOptions {
    /// Fills in defaults; inspects this machine only if a default depends on it.
    pub fn into_config(self) -> anyhow::Result<DoctorConfig> {
        // Hosts are not queried for slots: no ranks are started, and this command itself reports unreachable hosts.
        let machine = Machine::read(self.device, self.hosts.gpus());
        let LaunchConfig { hosts, worker, options, ssh, sync, device, .. } =
            self.hosts.into_config(&machine, HostQuery::None)?;
        let depth = if self.quick { NetworkTestScope::Quick } else { NetworkTestScope::Full };
        let json = self.json.into_json();
        let hosts = hosts::with_server_hosts(hosts.all(), &self.server_hosts);
        // Other hosts use a different working directory.
        let data = self.data.iter().map(path::absolute).collect::<Result<_, _>>()?;
        Ok(DoctorConfig { hosts, worker, sync, options, ssh, out: self.out, data, device, depth, json })
    }
}
