//! Copies a job's output to the standard output as it arrives, for benchmarks whose lines are meant for people and
//! programs.

use std::io::{self, Write};

use anyhow::Context;
use ringmark_core::untrusted_text::printable_lines;

use crate::launch::sweep::benchmark::Follower;

/// Start of a failed rank's error line; the launcher's error repeats it with rank and host.
const WORKER: &[u8] = b"ringmark-worker: ";

/// Prints all lines except those about a failure, which the launcher's error explains. The log contains them.
pub struct Echo {
    is_shown: bool,
    /// True between the two dashed lines around a message of mpirun.
    is_in_box: bool,
}

impl Echo {
    /// Prints nothing unless `is_shown`: the standard output may be used for something else.
    pub fn new(is_shown: bool) -> Echo {
        Echo { is_shown, is_in_box: false }
    }

    fn is_of_failure(&mut self, line: &[u8]) -> bool {
        let line = line.trim_ascii_end();
        let is_edge = line.len() >= 70 && line.iter().all(|letter| *letter == b'-');
        self.is_in_box ^= is_edge;
        is_edge || self.is_in_box || line.starts_with(WORKER)
    }
}

impl Follower for Echo {
    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        if self.is_of_failure(line) || !self.is_shown {
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
    fn messages_about_a_failure_are_left_to_the_launcher() {
        let mut echo = Echo::new(true);
        let edge = "-".repeat(74);
        let lines = ["# header", "ringmark-worker: no", &edge, "mpirun detected", &edge, "  8  2  float", "----"];
        let shown: Vec<&str> = lines.into_iter().filter(|line| !echo.is_of_failure(line.as_bytes())).collect();
        assert_eq!(shown, ["# header", "  8  2  float", "----"]);
    }
}
