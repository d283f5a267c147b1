//! `--server-hosts`, for every command that starts servers.

use anyhow::ensure;
use clap::Args;
use ringmark_core::dimension::Strategy;

use crate::launch::sweep::plan::joined;

/// Placement of the servers.
#[derive(Debug, Args)]
pub struct ServerOptions {
    /// Hosts of the servers of --strategy dist_*, round-robin; they need ringmark-worker at the same path as the others
    /// [default: the ranks' hosts, round-robin]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub server_hosts: Vec<String>,
}

impl ServerOptions {
    /// Fails if server hosts are given but none of these strategies has servers.
    pub fn check(&self, strategies: &[Strategy]) -> anyhow::Result<()> {
        ensure!(
            self.server_hosts.is_empty() || strategies.iter().any(|strategy| strategy.has_servers()),
            "--server-hosts {} applies to --strategy dist_*, but --strategy is {}: omit --server-hosts",
            self.server_hosts.join(","),
            joined(strategies, ",")
        );
        Ok(())
    }
}
