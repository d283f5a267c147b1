//! A problem that excludes a file or a run from the figures, and the check that reports such problems.

use std::fmt;
use std::path::PathBuf;

use anyhow::bail;
use ringmark_core::line::log_problem::LogProblem;
use ringmark_core::untrusted_text::printable;

use crate::output;

/// A problem, printed as `1n2g/rn50_b128_fp32_2.log:57: what is wrong: what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Path relative to the extracted folder.
    pub path: PathBuf,
    /// Line number from 1, if a single line is the cause.
    pub line: Option<u64>,
    /// Message with the problem, the value and the remedy.
    pub what: String,
}

impl Problem {
    /// Creates a problem with a whole file or folder.
    pub fn in_file(path: impl Into<PathBuf>, what: impl Into<String>) -> Problem {
        Problem { path: path.into(), line: None, what: what.into() }
    }

    /// Creates a problem for an unusable file from an error.
    pub fn from_error(path: impl Into<PathBuf>, error: &anyhow::Error) -> Problem {
        Problem::in_file(path, format!("{error:#}"))
    }

    /// Creates a problem from a remark on the log at `path`.
    pub fn in_log(path: impl Into<PathBuf>, LogProblem { line, what }: LogProblem) -> Problem {
        Problem { path: path.into(), line, what }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names and contents of files are escaped so that they stay on one line and cannot control the terminal.
        write!(formatter, "{}", printable(&self.path.to_string_lossy()))?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        write!(formatter, ": {}", printable(&self.what))
    }
}

/// Prints excluded files and runs to standard error, one per line. If there are any, returns an error for the end of
/// the command; `what` is the start of its message, such as `the figures are`.
pub fn check_complete(what: &str, left_out: impl IntoIterator<Item = String>) -> anyhow::Result<()> {
    let mut count = 0;
    for line in left_out {
        output::print_note(&line);
        count += 1;
    }
    match count {
        0 => Ok(()),
        1 => bail!("{what} not complete: see the message above"),
        several => bail!("{what} not complete: see the {several} messages above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_counts_the_excluded_runs() {
        let said = |lines: &[&str]| {
            let checked = check_complete("the figures are", lines.iter().map(ToString::to_string));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(said(&[]), Ok(()));
        assert_eq!(said(&["a"]), Err("the figures are not complete: see the message above".to_owned()));
        assert_eq!(said(&["a", "b"]), Err("the figures are not complete: see the 2 messages above".to_owned()));
    }
}
