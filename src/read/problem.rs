//! What keeps a file or a run out of the figures: where, what, and what to do about it.

use std::fmt;
use std::path::PathBuf;

/// One finding; prints as `1n2g/rn50_b128_fp32_2.log:57: what is wrong: what to do`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Below the folder that is extracted.
    pub path: PathBuf,
    /// From 1, where one line is to blame.
    pub line: Option<u64>,
    /// What is wrong, the value, what to do.
    pub what: String,
}

impl Problem {
    /// A finding about a whole file or folder.
    pub fn in_file(path: impl Into<PathBuf>, what: impl Into<String>) -> Problem {
        Problem { path: path.into(), line: None, what: what.into() }
    }

    /// A finding about one line, from 1.
    pub fn in_line(path: impl Into<PathBuf>, line: u64, what: impl Into<String>) -> Problem {
        Problem { path: path.into(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a file had in it or was called, and nothing that a terminal obeys.
        let plain = |text: &str| text.replace(char::is_control, " ");
        write!(formatter, "{}", plain(&self.path.to_string_lossy()))?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        write!(formatter, ": {}", plain(&self.what))
    }
}
