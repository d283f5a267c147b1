//! Command line of the worker and its conversion to configuration; the commands of the benchmarks are in
//! [`benchmark`](crate::benchmark). Only these two modules of this package use clap.

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ringmark_core::dimension::{DeviceChoice, Model};
use ringmark_core::options::clap_binding::keyword;
use ringmark_core::options::help;
use ringmark_core::options::migration_hints::{self, MigrationHint};

use crate::benchmark::Benchmark;
use crate::host::facts;
use crate::job::supervise;

/// One rank of a ringmark run; started once a GPU by mpirun, or alone.
#[derive(Debug, Parser)]
#[command(name = "ringmark-worker", version, about)]
pub struct Cli {
    /// Subcommand to run.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    fn program() -> clap::Command {
        help::grouped(Cli::command())
    }

    /// Parses the command line; exits the process on errors and for `--help`.
    pub fn read() -> Cli {
        let matches = Cli::program().try_get_matches();
        matches.and_then(|matches| Cli::from_arg_matches(&matches)).unwrap_or_else(|error| {
            let typed = facts::command_line();
            let hints: &[&[MigrationHint]] = match typed.get(1).map(String::as_str) {
                Some("bandwidth") => {
                    &[migration_hints::WORKER_HINTS, migration_hints::BANDWIDTH_HINTS, migration_hints::COMMON_HINTS]
                }
                _ => &[migration_hints::WORKER_HINTS, migration_hints::COMMON_HINTS],
            };
            migration_hints::exit(&[migration_hints::with_hint::<Model>(error, hints, &typed)])
        })
    }
}

/// Commands of the worker.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Benchmark to run.
    #[command(flatten)]
    Benchmark(Benchmark),
    /// Started by `ringmark doctor` on every host: prints its findings, then measures the links to other hosts
    /// as directed by its standard input
    Agent(AgentArguments),
    /// Run another program and end all of its processes with this rank; started by a rank
    #[command(name = supervise::COMMAND, hide = true)]
    Supervise(SuperviseArguments),
}

/// Options of `ringmark-worker supervise`.
#[derive(Debug, Args)]
pub struct SuperviseArguments {
    /// Process ID of the rank
    pub rank: i32,
    /// Command line to run
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

/// Options of `ringmark-worker agent`.
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// Devices to look for: cpu ignores CUDA
    #[arg(long, default_value = "auto", value_parser = keyword::<DeviceChoice>())]
    pub device: DeviceChoice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_in_help_has_a_group() {
        Cli::program().debug_assert();
        assert_eq!(help::without_group(&Cli::command()), Vec::<String>::new());
    }
}
