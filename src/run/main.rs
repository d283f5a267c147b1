//! The program `ringmark-worker`: one rank of a run, one process a GPU; errors turned into exit status (2 for usage, 1
//! for failure). `main` -> [`rank`] -> [`step`] -> autograd hook
//! -> `GradientReducer` -> `Collective` -> [`ffi`].
//!
//! | room | what it is for |
//! |---|---|
//! | [`cli`] | what was typed |
//! | [`rank`] | a rank's life on one screen |
//! | [`step`] | the body of the hot loop |
//! | [`bandwidth`] | all-reduce alone, beside that path |
//! | [`autotune`] | the search for bucket and piece size before it |
//! | [`model`], [`data`] | the network and its batch |
//! | [`flat_parameters`] | weights, gradients and momenta in flat memory |
//! | [`precision`], [`optimizer`] | rounding and update |
//! | [`collective`] | the sum over the ranks |
//! | [`agent`], [`network`] | `ringmark doctor`'s hand on this host, and its interfaces |
//! | [`timer`] | how long each phase took |
//! | [`world`] | the ranks of this job |
//! | [`device`], [`environment`] | what this rank trains on |
//! | [`heartbeat`] | where this rank is, told to the driver |
//! | [`host_watch`] | what else the host did while the iterations ran |
//! | [`outcome`], [`progress`] | what is kept of the run, and what is shown while it goes on |
//! | [`ffi`] | foreign functions; the only room with `unsafe` |

mod agent;
mod autotune;
mod bandwidth;
mod cli;
mod collective;
mod data;
mod device;
mod environment;
mod ffi;
mod flat_parameters;
mod heartbeat;
mod host_watch;
mod model;
mod network;
mod optimizer;
mod outcome;
mod precision;
mod progress;
mod rank;
mod step;
mod timer;
mod world;

use std::process::ExitCode;

use clap::Parser;
use ringmark_record::heartbeat::Message;
use ringmark_record::inspection::INTERFACE_VARIABLE;
use ringmark_record::usage::{UsageError, usage};

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let interface =
        environment::variable(INTERFACE_VARIABLE).map(|network| network::interface_in(&network)).transpose();
    ffi::libraries::set_defaults(interface.as_ref().ok().and_then(Option::as_deref));
    let outcome = interface.and_then(|_| work(Cli::parse()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            heartbeat::end(&Message::Failed { reason: format!("{error:#}") });
            world::complain(&format!("ringmark-worker: {error:#}"));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn work(Cli { command, report_to }: Cli) -> anyhow::Result<()> {
    match command {
        Command::Train(arguments) => {
            arguments.into_config().map_err(usage).and_then(|(config, label)| rank::live(&config, label, report_to))
        }
        Command::Bandwidth(arguments) => {
            arguments.into_config().map_err(usage).and_then(|config| bandwidth::live(&config, report_to))
        }
        Command::Agent(arguments) => agent::live(arguments.device),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Seeds libtorch's generator, which all tests of the process share, and keeps the others from drawing until the
    /// guard is dropped. One thread computes: tests run side by side, and threads that share cores spin while they wait.
    pub fn seeded(seed: i64) -> MutexGuard<'static, ()> {
        static GENERATOR: Mutex<()> = Mutex::new(());
        let guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        tch::manual_seed(seed);
        tch::set_num_threads(1);
        guard
    }
}
