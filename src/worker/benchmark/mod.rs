//! What this program measures, a module each. A benchmark is a body that gets a [`Session`](crate::job::session::Session);
//! a new one touches this file and [`cli`](crate::cli).

mod bandwidth;
mod input;
mod score;
mod train;

use anyhow::Result;
use ringmark_core::host::LauncherAddress;
use ringmark_core::options::usage::usage;

use crate::cli::Benchmark;

/// Runs one rank of `benchmark` from start to end; `launcher` is where the program that started it listens.
pub fn run(benchmark: Benchmark, launcher: Option<LauncherAddress>) -> Result<()> {
    match benchmark {
        Benchmark::Train(arguments) => {
            let (config, label) = arguments.into_config().map_err(usage)?;
            train::run(&config, label, launcher)
        }
        Benchmark::Score(arguments) => {
            let (config, label) = arguments.into_config().map_err(usage)?;
            score::run(&config, label, launcher)
        }
        Benchmark::Bandwidth(arguments) => {
            let config = arguments.into_config().map_err(usage)?;
            bandwidth::run(&config, launcher)
        }
        Benchmark::Input(arguments) => {
            let config = arguments.into_config().map_err(usage)?;
            input::run(&config, launcher)
        }
    }
}
