//! Lines of the text files beside a `.rec`, with their numbers, and fields between tabs.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::byte_source::{ByteSource, read_file};

/// All bytes of a file of text.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    read_file(path, &mut text)?;
    Ok(text)
}

/// The same of a file that has at most so many bytes.
pub fn read_within(path: &Path, most: u64) -> Result<Vec<u8>> {
    let source = ByteSource::open(path)?;
    ensure!(
        source.length() <= most,
        "{} has {} bytes, more than the {most} of an index of every record: it is another file; make it anew",
        path.display(),
        source.length()
    );
    let mut text = vec![0; source.length() as usize];
    source.read_at(&mut text, 0)?;
    Ok(text)
}

/// Lines that are not blank, each with its number from 1 and without blanks at its ends.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let numbered = (1..).zip(text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii));
    numbered.filter(|(_, line)| !line.is_empty())
}

/// A whole number; `what` it is for the message.
pub fn number(field: &[u8], what: &str) -> Result<u64> {
    let parsed = str::from_utf8(field).ok().and_then(|text| text.trim().parse().ok());
    parsed.with_context(|| format!("the {what} {:?} is no whole number from 0 on", shown(field)))
}

/// For a message, not too long.
pub fn shown(field: &[u8]) -> String {
    String::from_utf8_lossy(&field[..field.len().min(80)]).into_owned()
}
