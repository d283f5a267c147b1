//! Lines for people on the standard output and the standard error. What they say is in the files as well: where one cannot
//! be written, on a disk that is full or into a closed pipe, nothing ends for it.

use std::io::{self, Write};

/// Where a command prints what it says beside its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Printer {
    /// What begins every line.
    pub mark: &'static str,
    /// Whether they go to the standard error: something else has the standard output.
    pub to_error: bool,
}

impl Printer {
    /// Prints a line, or several.
    pub fn line(&self, text: &str) {
        let marked = |line: &str| match self.mark {
            "" => line.to_owned(),
            mark => format!("{mark}{line}").trim_end().to_owned(),
        };
        let text = text.split('\n').map(marked).collect::<Vec<_>>().join("\n");
        if self.to_error { print_error(&text) } else { print_line(&text) }
    }
}

/// Prints a line on the standard output.
pub fn print_line(text: &str) {
    // The module says why.
    let _ = writeln!(io::stdout(), "{text}");
}

/// Prints a line on the standard error.
pub fn print_error(text: &str) {
    // The module says why.
    let _ = writeln!(io::stderr(), "{text}");
}
