//! Traces next to the logs of runs.

use std::io::{BufReader, ErrorKind};
use std::path::Path;

use ringmark_core::file::atomic_file;
use ringmark_core::file::run_name::RunName;
use ringmark_core::trace::{Timeline, chrome};

use crate::read::load::problem::Problem;

/// Reads the traces of those `runs` that have one. Traces in Horovod's format are skipped: they are for other tools.
pub fn read_runs(folder: &Path, runs: Vec<RunName>, problems: &mut Vec<Problem>) -> Vec<(RunName, Timeline)> {
    let mut traces = Vec::new();
    for run in runs {
        let path = run.trace(Path::new(""));
        let file = match atomic_file::open(&folder.join(&path)) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            file => file,
        };
        let read = file.map_err(anyhow::Error::from).and_then(|file| {
            let mut input = BufReader::new(file);
            if is_horovod(&mut input)? { Ok(None) } else { chrome::read(input).map(Some) }
        });
        match read {
            Ok(trace) => traces.extend(trace.map(|trace| (run, trace))),
            Err(error) => problems.push(Problem::in_file(&path, format!("the trace cannot be used: {error:#}"))),
        }
    }
    traces
}

/// Returns true for Horovod's format: an array of events instead of an object.
fn is_horovod(input: &mut impl std::io::BufRead) -> anyhow::Result<bool> {
    Ok(input.fill_buf()?.first() == Some(&b'['))
}
