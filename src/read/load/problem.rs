//! A problem that excludes a file or a run from the figures.

use std::fmt;
use std::path::PathBuf;

use ringmark_core::line::log_problem::LogProblem;
use ringmark_core::untrusted_text::printable;

/// Kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// A file or run that is excluded.
    Excluded,
    /// Speedup and efficiency are not relative to a single rank.
    MissingBase,
}

/// A problem, printed as `1n2g/rn50_b128_fp32_2.log:57: what is wrong: what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Kind of the problem.
    pub kind: ProblemKind,
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
        Problem { kind: ProblemKind::Excluded, path: path.into(), line: None, what: what.into() }
    }

    /// Creates a problem for an unusable file from an error.
    pub fn from_error(path: impl Into<PathBuf>, error: &anyhow::Error) -> Problem {
        Problem::in_file(path, format!("{error:#}"))
    }

    /// Creates a problem from a remark on the log at `path`.
    pub fn in_log(path: impl Into<PathBuf>, LogProblem { line, what }: LogProblem) -> Problem {
        Problem { line, ..Problem::in_file(path, what) }
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
