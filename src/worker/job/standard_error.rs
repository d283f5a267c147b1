//! Output to standard error, which all ranks share.

use std::io::Write;

use ringmark_core::untrusted_text::printable_lines;

/// Writes a line in one call: fragments would interleave with those of other ranks.
pub fn emit(line: &str) {
    // An error cannot be reported anywhere.
    let _ = std::io::stderr().write_all(format!("{}\n", printable_lines(line)).as_bytes());
}
