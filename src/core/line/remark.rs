//! What is said of a log, and of which line.

/// One thing about a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Number of the line it is about, from 1; `None` of the whole log.
    pub line: Option<u64>,
    /// What, and what to do.
    pub what: String,
}

impl Remark {
    /// Of one line.
    pub fn in_line(line: u64, what: impl Into<String>) -> Remark {
        Remark { line: Some(line), what: what.into() }
    }

    /// Of the whole log.
    pub fn of_log(what: impl Into<String>) -> Remark {
        Remark { line: None, what: what.into() }
    }
}
