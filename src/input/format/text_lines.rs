//! Numbered lines and tab-separated fields of the text files that accompany a `.rec`.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::byte_source::{ByteSource, read_file};

/// Returns the contents of a text file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    read_file(path, &mut text)?;
    Ok(text)
}

/// Returns the contents of a text file of at most `most` bytes.
pub fn read_within(path: &Path, most: u64) -> Result<Vec<u8>> {
    let source = ByteSource::open(path)?;
    ensure!(
        source.length() <= most,
        "{} has {} bytes, more than the {most} of an index of every record; it is not the index of this file: create it again",
        path.display(),
        source.length()
    );
    let mut text = vec![0; source.length() as usize];
    source.read_at(&mut text, 0)?;
    Ok(text)
}

/// Returns the lines that are not blank, trimmed, with their numbers from 1.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let numbered = (1..).zip(text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    numbered.filter(|(_, line)| !line.is_empty())
}

/// Parses a whole number; `what` names it in the error message.
pub fn number(field: &[u8], what: &str) -> Result<u64> {
    let parsed = str::from_utf8(field).ok().and_then(|text| text.trim().parse().ok());
    parsed.with_context(|| format!("the {what} {:?} is not a whole number of at least 0", display_text(field)))
}

/// Returns the field for a message, shortened to 80 bytes.
pub fn display_text(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(80)]).into_owned()
}
