//! Problems found in a log.

/// Problem found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogProblem {
    /// Line number, from 1; `None` for the whole log.
    pub line: Option<u64>,
    /// Description and remedy.
    pub what: String,
}

impl LogProblem {
    /// Creates a problem of one line.
    pub fn in_line(line: u64, what: impl Into<String>) -> LogProblem {
        LogProblem { line: Some(line), what: what.into() }
    }

    /// Creates a problem of the whole log.
    pub fn in_log(what: impl Into<String>) -> LogProblem {
        LogProblem { line: None, what: what.into() }
    }
}
