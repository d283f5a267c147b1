//! One rank of a run, one process per GPU. A library so that `benches/worker.rs` can call it: the program is [`main`],
//! which turns errors into the exit status (2 for usage, 1 for failure). `main` -> [`cli`] -> [`benchmark`] -> `train`
//! -> `Step` -> autograd hook ->
//! `GradientReducer` -> `GradientSink` -> `Backend` -> [`ffi`].
//!
//! | module | contents |
//! |---|---|
//! | [`cli`] | command-line options |
//! | [`benchmark`] | benchmarks: the steps of a rank in each |
//! | [`model`], [`data`] | the network and its batch |
//! | [`exchange`] | the sum over the ranks, and the update |
//! | [`measure`] | phase timing |
//! | [`job`] | ranks and device of the job, and the position reported to the launcher |
//! | [`host`] | the machine: facts, counters, interfaces, and `ringmark doctor`'s agent on it |
//! | [`ffi`] | foreign functions; the only module with `unsafe` |

mod benchmark;
mod cli;
mod data;
mod exchange;
#[allow(unsafe_code)]
mod ffi;
mod host;
mod job;
mod measure;
mod model;
#[cfg(test)]
#[path = "../../tests/support/temporary_folder.rs"]
mod temporary_folder;
#[cfg(test)]
mod testing;

/// Functions that run thousands of times per step, for `benches/worker.rs`.
pub mod hot {
    pub use crate::exchange::compression::packed_sums::PackedSums;
    pub use crate::exchange::compression::two_bit::TwoBit;
    pub use crate::ffi::memory::element::Element;
    pub use crate::ffi::memory::sums::{Combination, combine};
    pub use crate::measure::trace::recorder::{OpenSpan, begin, begin_iteration, start, stop};
}

use std::process::ExitCode;

use ringmark_core::host::inspection::INTERFACE_VARIABLE;
use ringmark_core::options::usage::{UsageError, error_line};

use crate::cli::{Cli, Command, SuperviseArguments};
use crate::host::{agent, facts, network};
use crate::job::{heartbeat, library_defaults, standard_error, supervise, world};

/// Runs the program `ringmark-worker` and returns its exit status.
pub fn main() -> ExitCode {
    let interface = facts::variable(INTERFACE_VARIABLE).map(|network| network::interface_in(&network)).transpose();
    library_defaults::set_defaults(interface.as_ref().ok().and_then(Option::as_deref), facts::cores());
    let ended = interface.and_then(|_| run(Cli::read()));
    match ended {
        // On GPUs, profilers write their measurements when the process exits normally.
        Ok(()) if !ffi::process::libraries::has_driver() => ffi::process::exit::exit_cleanly(),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            world::report_failure(&error);
            standard_error::emit(&error_line(ffi::cuda::user_message(&error)));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(Cli { command }: Cli) -> anyhow::Result<()> {
    match command {
        Command::Benchmark(benchmark) => benchmark.run(heartbeat::launcher()?),
        Command::Agent(arguments) => agent::run(arguments.device),
        Command::Supervise(SuperviseArguments { rank, command }) => {
            supervise::run(rank, &command).map(|status| std::process::exit(status))
        }
    }
}
