//! Conditions on which results depend and that are known before a run, recorded in the manifest; and the command that
//! resumes a sweep.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ringmark_core::file::sha256;
use ringmark_core::manifest::{Conditions, STARTER};
use ringmark_core::shell::CommandWords;

use crate::launch::cluster::interface::InterfaceChoice;
use crate::launch::job::launcher::{LaunchConfig, Launcher};
use crate::launch::local::environment::LaunchEnvironment;

/// Option with the hosts of the servers.
pub const SERVER_HOSTS: &str = "--server-hosts";

/// Combines the benchmark's own `options` with the conditions of every benchmark.
pub fn conditions(
    mut options: BTreeMap<String, String>,
    config: &LaunchConfig,
    cooldown: Duration,
    launcher: &Launcher,
) -> anyhow::Result<Conditions> {
    let environment = launcher.environment();
    for (name, value) in [
        ("--cooldown", cooldown.as_secs().to_string()),
        ("--launcher", config.starter.program().to_owned()),
        ("--interface", config.options.interface.as_ref().map(InterfaceChoice::to_string).unwrap_or_default()),
        ("--launcher-args", shell_words::join(&config.options.arguments)),
        (SERVER_HOSTS, config.server_hosts.join(",")),
    ] {
        options.insert(name.to_owned(), value);
    }
    let hosts = config.hosts.all();
    if hosts.iter().any(|host| environment.is_here(&host.name)) {
        options.insert(STARTER.to_owned(), environment.host_name.clone());
    }
    options.retain(|_, value| !value.is_empty());
    let worker = launcher.worker();
    let hash = sha256::hash_file(worker).with_context(|| format!("cannot read {}", worker.display()))?;
    let programs = [("ringmark", env!("CARGO_PKG_VERSION").to_owned()), ("ringmark-worker (sha256)", hash)];
    Ok(Conditions {
        hosts: hosts.iter().map(|host| host.name.clone()).collect(),
        options,
        variables: environment.settings.clone(),
        programs: programs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
    })
}

/// Returns the command that resumes the sweep in `out`. `--repeat` is removed: it applies only once.
pub fn resume_command(environment: &LaunchEnvironment, out: &Path) -> CommandWords {
    let command = environment.command.clone().without("--repeat");
    let command = if command.has("--out") { command } else { command.with("--out", out) };
    command.with_flag("--resume")
}
