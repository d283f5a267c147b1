//! The program `ringmark-worker`. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringmark_worker::main()
}
