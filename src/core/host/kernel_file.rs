//! Reading of the kernel's text files, such as those in /proc.

use std::fs;
use std::path::Path;

/// Returns the number after `key` in a kernel table of kB; 0 if there is none.
pub fn proc_kilobytes(path: &str, key: &str) -> u64 {
    first_line_with(path, key).trim_end_matches(" kB").parse().unwrap_or(0)
}

/// Returns the text after `key` in the first line that starts with it; empty if there is none.
pub fn first_line_with(path: impl AsRef<Path>, key: &str) -> String {
    let table = fs::read_to_string(path).unwrap_or_default();
    table.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}

/// Returns the first line of a file; empty if it cannot be read.
pub fn first_line(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
