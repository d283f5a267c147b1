//! Header of every ringmark file (kind and version), and files that consist of one document. The header is checked
//! before the rest is parsed, because a file of another version may not parse at all.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::file::atomic_file;

/// Maximum length of a string in a ringmark file, in bytes: longer than any name, message or setting, and short enough
/// to display quickly.
const MAX_STRING_LENGTH: usize = 1 << 20;

/// Refuses JSON with a string longer than 1 MiB.
pub fn check_texts(json: &[u8]) -> anyhow::Result<()> {
    let mut start = 0;
    // A quotation mark starts a string, and the next one that is not escaped ends it.
    while let Some(begin) = json[start..].iter().position(|byte| *byte == b'"').map(|found| start + found + 1) {
        let mut end = begin;
        while let Some(byte) = json.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let length = end.min(json.len()) - begin;
        ensure!(
            length <= MAX_STRING_LENGTH,
            "string of {length} bytes at byte {begin}: the limit is {MAX_STRING_LENGTH}"
        );
        start = (end + 1).min(json.len());
    }
    Ok(())
}

/// Refuses text that is not of `kind`, or of a version above `newest`; versions start at 1. `name` is the type of file
/// in messages: "run record".
pub fn check(text: &[u8], kind: &str, newest: u32, name: &str) -> anyhow::Result<()> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Head {
        kind: String,
        schema: u64,
    }
    check_texts(text)?;
    let head: Head = serde_json::from_slice(text).with_context(|| format!("the {name} is damaged"))?;
    ensure!(head.kind == kind, "expected a {name} of kind {kind:?}, found {:?}", head.kind);
    ensure!(
        (1..=u64::from(newest)).contains(&head.schema),
        "{name} format {} is not readable by this ringmark (up to {newest}): use the ringmark that wrote it",
        head.schema
    );
    Ok(())
}

/// Returns the kind in the header of a file; `None` if the file is not a ringmark file. The rest of it may be damaged.
pub fn kind_of(file: &Path) -> Option<String> {
    /// Upper limit for the size of a header in bytes.
    const HEAD: u64 = 200;
    let mut head = Vec::new();
    atomic_file::open(file).ok()?.take(HEAD).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let kind = head.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"kind\"")?.trim_start();
    let kind = kind.strip_prefix(':')?.trim_start().strip_prefix('"')?;
    Some(kind.split('"').next()?.to_owned())
}

/// Reads a file that is one document, after [checking](check) its header; a JSON error includes the line.
pub fn read_document<T: DeserializeOwned>(
    mut input: impl Read,
    kind: &str,
    newest: u32,
    name: &str,
) -> anyhow::Result<T> {
    let mut text = Vec::new();
    input.read_to_end(&mut text).context("cannot be read")?;
    check(&text, kind, newest, name)?;
    serde_json::from_slice(&text).with_context(|| format!("not a {name}"))
}

/// Writes the document and a newline.
pub fn write_document(document: &impl Serialize, mut output: impl Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut output, document)?;
    output.write_all(b"\n")?;
    Ok(output.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_limited_and_documents_are_not() {
        let document = |length: usize| format!(r#"{{"kind":"a","b\\\"":["{}","c"],"d":"\""}}"#, "x".repeat(length));
        assert!(check_texts(document(MAX_STRING_LENGTH).as_bytes()).is_ok());
        let error = check_texts(document(MAX_STRING_LENGTH + 1).as_bytes()).expect_err("too long").to_string();
        assert_eq!(error, "string of 1048577 bytes at byte 22: the limit is 1048576");
        assert!(check_texts(format!("[{}]", vec![r#""text""#; 500_000].join(",")).as_bytes()).is_ok());
        for damaged in ["\"", "\"\\", "{\"a", ""] {
            assert!(check_texts(damaged.as_bytes()).is_ok(), "{damaged} is left to the parser");
        }
    }
}
