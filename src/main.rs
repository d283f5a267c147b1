//! The program `ringmark`: dispatch, and errors turned into exit status (2 for usage, 1 for failure).

use std::process::ExitCode;

use clap::CommandFactory;
use ringmark::cli::read::ExtractRequest;
use ringmark::cli::{Cli, Command};
use ringmark::launch::local::print::print_error;
use ringmark::{launch, read};
use ringmark_core::options::usage::UsageError;

fn main() -> ExitCode {
    let outcome = match Cli::read().command {
        Command::Sweep(options) => {
            let run = |config| launch::sweep::benchmarks::train::run(&config, read::extract::conclusions);
            options.into_config().and_then(run)
        }
        Command::Score(options) => {
            options.into_config().and_then(|config| launch::sweep::benchmarks::score::run(&config))
        }
        Command::Bandwidth(options) => {
            options.into_config().and_then(|config| launch::sweep::benchmarks::bandwidth::run(&config))
        }
        Command::Input(options) => {
            let run = |config| launch::sweep::benchmarks::input::run(&config, read::input::judge);
            options.into_config().and_then(run)
        }
        Command::Watch(options) => launch::sweep::live::watch::run(&options.into_config()),
        Command::Doctor(options) => options.into_config().and_then(|config| launch::doctor::command::run(&config)),
        Command::Extract(options) => options.into_request().and_then(|request| match request {
            ExtractRequest::Figures(config) => read::extract::run(&config),
            ExtractRequest::Export(config) => read::export::run(&config),
        }),
        Command::Check(options) => read::check::run(&options.into_config()),
        Command::Diff(options) => read::diff::run(&options.into_config()),
        Command::Report(options) => read::report::run(&options.into_config()),
        Command::Predict(options) => read::predict::run(&options.into_config()),
        Command::Pack(options) => options.run(),
        Command::Schema(options) => options.print(),
        Command::Completions(options) => options.print(&Cli::command()),
        Command::Man(options) => options.write(&Cli::command()),
        Command::Leash(options) => launch::job::process::leash(options.launcher, &options.command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("ringmark: {error:#}"));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
