//! Command line and environment of a program on one rank.

use std::collections::BTreeMap;
use std::net::TcpListener;

use anyhow::{Context, Result};
use ringmark_core::benchmark::train::{ProgramConfig, RunHeader};

use crate::host::facts;
use crate::job::session::Session;

/// Starts of the names of variables of this job's MPI, which a program would join, and of ringmark.
const HIDDEN: [&str; 5] = ["OMPI_", "PMIX_", "PRTE_", "PMI_", "RINGMARK_"];

/// Values of placeholders, by name.
type Values = BTreeMap<&'static str, String>;

/// Command of a program with its environment.
pub struct ProgramCommand {
    pub words: Vec<String>,
    pub environment: BTreeMap<String, String>,
}

impl ProgramCommand {
    /// Fills in the placeholders for this rank. All ranks call this together.
    ///
    /// # Errors
    ///
    /// Fails if a placeholder is unknown, or if this host has no free port.
    pub fn new(program: &ProgramConfig, header: &RunHeader, session: &Session) -> Result<ProgramCommand> {
        let values = values(header, session)?;
        let words = program.command.filled_in(&|name| values.get(name).cloned())?;
        Ok(ProgramCommand { words, environment: environment(&values) })
    }
}

fn values(header: &RunHeader, session: &Session) -> Result<Values> {
    let (world, ranks) = (session.world, &header.ranks);
    let mut port = [0_u64];
    if world.rank() == 0 {
        let listener = TcpListener::bind(("0.0.0.0", 0)).context("no free port for MASTER_PORT")?;
        port[0] = listener.local_addr()?.port().into();
    }
    world.broadcast(&mut port);
    let first_of_hosts: Vec<_> = ranks.iter().filter(|place| place.local_rank == 0).collect();
    let own = world.rank() as usize;
    let node = ranks[..=own].iter().filter(|place| place.local_rank == 0).count() - 1;
    let address = if first_of_hosts.len() == 1 { "127.0.0.1" } else { ranks[0].host.as_str() };
    let per_host = header.case.gpus_per_node;
    let hosts: Vec<String> = first_of_hosts.iter().map(|place| format!("{}:{per_host}", place.host)).collect();
    let config = &header.config;
    let out = config.record.as_ref().map(|record| record.with_extension("").display().to_string());
    Ok(BTreeMap::from([
        ("ranks", world.ranks().to_string()),
        ("rank", world.rank().to_string()),
        ("local_rank", world.local_rank().to_string()),
        ("ranks_per_host", per_host.to_string()),
        ("nodes", first_of_hosts.len().to_string()),
        ("node", node.to_string()),
        ("hosts", hosts.join(",")),
        ("master", address.to_owned()),
        ("port", port[0].to_string()),
        ("batch", config.batch_size.to_string()),
        ("global_batch", config.joined_batch(world.ranks()).to_string()),
        ("sequence_length", config.sequence_length.unwrap_or_default().to_string()),
        ("dtype", config.dtype.to_string()),
        ("model", config.model.to_string()),
        ("case", header.case.to_string()),
        ("run", header.run.to_string()),
        ("out", out.unwrap_or_default()),
    ]))
}

/// Returns the environment that this process was started with, without the launcher's own variables, and with those that
/// torch.distributed reads.
fn environment(values: &Values) -> BTreeMap<String, String> {
    let is_hidden = |name: &str| HIDDEN.iter().any(|start| name.starts_with(start));
    let mut environment: BTreeMap<String, String> =
        facts::first_variables().into_iter().filter(|(name, _)| !is_hidden(name)).collect();
    for (variable, value) in [
        ("RANK", "rank"),
        ("LOCAL_RANK", "local_rank"),
        ("WORLD_SIZE", "ranks"),
        ("LOCAL_WORLD_SIZE", "ranks_per_host"),
        ("MASTER_ADDR", "master"),
        ("MASTER_PORT", "port"),
        ("NNODES", "nodes"),
        ("NODE_RANK", "node"),
        ("GROUP_RANK", "node"),
    ] {
        environment.insert(variable.to_owned(), values[value].clone());
    }
    // Lines would arrive in blocks.
    environment.insert("PYTHONUNBUFFERED".to_owned(), "1".to_owned());
    environment
}
