//! Lookup of `ringmark-worker` on this machine.

use std::path::{self, Path, PathBuf};

use anyhow::{Context, anyhow};
use ringmark_core::options::usage::usage;

use crate::launch::local::environment::{LaunchEnvironment, is_program};

const WORKER: &str = "ringmark-worker";

/// Returns the path of the worker: `chosen`, or else the one next to this program or on `PATH`.
pub fn find_worker(chosen: Option<&Path>, environment: &LaunchEnvironment) -> anyhow::Result<PathBuf> {
    if let Some(worker) = chosen {
        if !is_program(worker) {
            return Err(usage(anyhow!(
                "--worker {} is not a program: set it to the path of {WORKER}",
                worker.display()
            )));
        }
        return Ok(path::absolute(worker)?);
    }
    let beside = environment.program_folder.as_ref().map(|folder| folder.join(WORKER));
    beside.filter(|path| is_program(path)).or_else(|| environment.find(WORKER)).with_context(|| {
        format!(
            "{WORKER} not found next to this program or on PATH: build it with `cargo build --release` in ringmark's repository, or use --worker PATH"
        )
    })
}
