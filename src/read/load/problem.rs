//! What keeps a file or a run out of the figures: where, what, and what to do about it; and that a command says so.

use std::fmt;
use std::path::PathBuf;

use anyhow::bail;
use ringmark_core::line::remark::Remark;
use ringmark_core::untrusted_text::printable;

use crate::output;

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

    /// Why a whole file cannot be used.
    pub fn from_error(path: impl Into<PathBuf>, error: &anyhow::Error) -> Problem {
        Problem::in_file(path, format!("{error:#}"))
    }

    /// What is said of the log at `path`.
    pub fn in_log(path: impl Into<PathBuf>, Remark { line, what }: Remark) -> Problem {
        Problem { path: path.into(), line, what }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a file had in it or was called, and nothing that a terminal obeys.
        write!(formatter, "{}", printable(&self.path.to_string_lossy()))?;
        if let Some(line) = self.line {
            write!(formatter, ":{line}")?;
        }
        write!(formatter, ": {}", printable(&self.what))
    }
}

/// Prints what was left out to the standard error, a line each. Where there is any, an error for the end of the command:
/// `what`, as in `the figures are`, not complete.
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
    fn the_error_counts_what_was_left_out() {
        let said = |lines: &[&str]| {
            let checked = check_complete("the figures are", lines.iter().map(ToString::to_string));
            checked.map_err(|error| error.to_string())
        };
        assert_eq!(said(&[]), Ok(()));
        assert_eq!(said(&["a"]), Err("the figures are not complete: see the message above".to_owned()));
        assert_eq!(said(&["a", "b"]), Err("the figures are not complete: see the 2 messages above".to_owned()));
    }
}
