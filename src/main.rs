//! The program `ringmark`: errors turned into exit status (2 for usage, 128 + signal if interrupted, 1 for failure).

use std::process::ExitCode;

use ringmark::cli::Cli;
use ringmark::launch::local::interrupt;
use ringmark::output::message::print_error;
use ringmark_core::options::usage::{UsageError, error_line};

fn main() -> ExitCode {
    match Cli::read().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error_line(&error));
            let status = if error.is::<UsageError>() { 2 } else { interrupt::exit_status().unwrap_or(1) };
            ExitCode::from(status)
        }
    }
}
