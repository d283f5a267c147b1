//! Shows a job's output as it comes: of benchmarks whose lines are meant for people and programs as they are.

use std::io::{self, Write};

use anyhow::Context;
use ringmark_core::untrusted_text::printable_lines;

use crate::launch::sweep::benchmark::Follower;

/// Shows it, or does not.
pub struct Echo {
    /// Whether it does: something else may have the standard output.
    pub is_shown: bool,
}

impl Follower for Echo {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        if !self.is_shown {
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
