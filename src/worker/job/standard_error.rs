//! Lines of standard error, where the lines of all ranks meet.

use std::io::Write;

use ringmark_core::untrusted_text::printable_lines;

/// Writes a line at once: parts of lines would mix with those of other ranks.
pub fn emit(line: &str) {
    // There is nowhere left to say that this failed.
    let _ = std::io::stderr().write_all(format!("{}\n", printable_lines(line)).as_bytes());
}
