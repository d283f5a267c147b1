//! Prints a job's output as it comes, for benchmarks whose lines are meant for people and programs as they are.

use std::io::{self, Write};

use anyhow::Context;
use ringmark_core::options::usage::ERROR;
use ringmark_core::untrusted_text::printable_lines;

use crate::launch::sweep::benchmark::Follower;

/// Prints all lines up to the failure of a rank, which the launcher's error explains. The log contains the others.
pub struct OutputFilter {
    is_shown: bool,
}

impl OutputFilter {
    /// Prints nothing unless `is_shown`: something else may have the standard output.
    pub fn new(is_shown: bool) -> OutputFilter {
        OutputFilter { is_shown }
    }

    /// Returns true unless a rank has failed: the lines after that are mpirun's.
    fn is_printed(&mut self, line: &[u8]) -> bool {
        self.is_shown &= !line.starts_with(ERROR.as_bytes());
        self.is_shown
    }
}

impl Follower for OutputFilter {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        if !self.is_printed(line) {
            return Ok(());
        }
        let mut output = io::stdout().lock();
        let line = String::from_utf8_lossy(line);
        output
            .write_all(printable_lines(&line).as_bytes())
            .and_then(|()| output.flush())
            .context("cannot write to the standard output")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_messages_of_the_worker_are_not_echoed() {
        let mut echo = OutputFilter::new(true);
        let lines = ["# header", "-------", "  8  2  float", "error: no memory", "-------", "mpirun detected"];
        let shown: Vec<&str> = lines.into_iter().filter(|line| echo.is_printed(line.as_bytes())).collect();
        assert_eq!(shown, ["# header", "-------", "  8  2  float"]);
    }
}
