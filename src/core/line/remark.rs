//! Problems found in a log.

/// Problem found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Line number, from 1; `None` for the whole log.
    pub line: Option<u64>,
    /// Description and remedy.
    pub what: String,
}

impl Remark {
    /// Creates a remark about one line.
    pub fn in_line(line: u64, what: impl Into<String>) -> Remark {
        Remark { line: Some(line), what: what.into() }
    }

    /// Creates a remark about the whole log.
    pub fn of_log(what: impl Into<String>) -> Remark {
        Remark { line: None, what: what.into() }
    }
}
