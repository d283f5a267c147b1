//! Errors of both programs: their line, and invalid requests, before anything is started, with exit status 2.

use std::fmt;

/// Start of the line with a program's error. The launcher searches the output of jobs for it.
pub const ERROR: &str = "error: ";

/// Formats the line with a program's error.
pub fn error_line(error: impl fmt::Display) -> String {
    format!("{ERROR}{error:#}")
}

/// An invalid request; any other error is a failure with exit status 1.
#[derive(Debug)]
pub struct UsageError(anyhow::Error);

impl fmt::Display for UsageError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#}", self.0)
    }
}

impl std::error::Error for UsageError {}

/// Marks `error` as a usage error, for `map_err`; its message stays.
pub fn usage(error: anyhow::Error) -> anyhow::Error {
    UsageError(error).into()
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn usage_error_and_message_survive_context() {
        let error = Err::<(), _>(usage(anyhow!("--runs 0 is out of range"))).context("sweep").expect_err("an error");
        assert!(error.is::<UsageError>());
        assert_eq!(format!("{error:#}"), "sweep: --runs 0 is out of range");
        assert!(!anyhow!("disk full").is::<UsageError>());
    }
}
