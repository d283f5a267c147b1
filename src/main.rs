//! The program `ringmark`: errors turned into exit status (2 for usage, 1 for failure).

use std::process::ExitCode;

use ringmark::cli::Cli;
use ringmark::launch::local::print::print_error;
use ringmark_core::options::usage::UsageError;

fn main() -> ExitCode {
    match Cli::read().command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&format!("error: {error:#}"));
            if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
