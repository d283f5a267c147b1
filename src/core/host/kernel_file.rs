//! The files in which the kernel says what it knows, read as text. Not for what they mean.

use std::fs;

/// The number behind `key` in one of the kernel's tables of kB.
pub fn proc_kilobytes(path: &str, key: &str) -> u64 {
    first_line_with(path, key).trim_end_matches(" kB").parse().unwrap_or(0)
}

/// What stands behind `key` in the first line that begins with it; nothing where there is none.
pub fn first_line_with(path: &str, key: &str) -> String {
    let table = fs::read_to_string(path).unwrap_or_default();
    table.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned()
}

/// The first line of a file; nothing where it cannot be read.
pub fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}
