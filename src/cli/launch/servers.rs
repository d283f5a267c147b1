//! `--server-hosts`, of every command that starts servers, and what does not go with a kv-store.

use anyhow::{bail, ensure};
use clap::Args;
use ringmark_core::benchmark::kv_store::KvStore;
use ringmark_core::dimension::Case;

use crate::launch::sweep::plan::joined;

/// Where servers run.
#[derive(Debug, Args)]
pub struct ServerOptions {
    /// Hosts of the servers of --kv-store dist_*, in turn; they need ringmark-worker at the same path as the others [default:
    /// the ranks' hosts, in turn]
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    pub server_hosts: Vec<String>,
}

impl ServerOptions {
    /// Refuses kv-stores that cannot be on these hosts.
    pub fn check(&self, kv_stores: &[KvStore], cases: &[Case]) -> anyhow::Result<()> {
        let with_servers = kv_stores.iter().find(|kv_store| kv_store.has_servers());
        ensure!(
            self.server_hosts.is_empty() || with_servers.is_some(),
            "--server-hosts {} places the servers of --kv-store dist_*, and --kv-store is {}: leave --server-hosts out",
            self.server_hosts.join(","),
            joined(kv_stores, ",")
        );
        if let Some(case) = cases.iter().find(|case| kv_stores.contains(&KvStore::Local) && case.nodes > 1) {
            bail!(
                "--kv-store local sums in the memory of one host, and case {case} has {}: choose --kv-store dist_sync, device \
                 or ring, or --cases of one host",
                case.nodes
            );
        }
        Ok(())
    }
}
