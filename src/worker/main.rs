//! Program `ringmark-worker`; all code is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringmark_worker::main()
}
