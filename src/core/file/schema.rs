//! The head of every file of ours: what it is and in which version. Asked before the rest is read, because a file of
//! another version may not even parse. And how a file of one document is read and written.

use std::io::{Read, Write};

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest text that a file of ours may hold, in bytes: longer than any name, message or
/// setting, and short enough to be shown quickly.
const LONGEST_TEXT: usize = 1 << 20;

/// Refuses JSON with a text that is longer than any of ours.
pub fn check_texts(json: &[u8]) -> anyhow::Result<()> {
    let mut start = 0;
    // A quotation mark begins a text, and the next one that is not escaped ends it.
    while let Some(begin) = json[start..].iter().position(|byte| *byte == b'"').map(|found| start + found + 1) {
        let mut end = begin;
        while let Some(byte) = json.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        let length = end.min(json.len()) - begin;
        ensure!(
            length <= LONGEST_TEXT,
            "a text of {length} bytes at byte {begin}: no text is longer than {LONGEST_TEXT}"
        );
        start = (end + 1).min(json.len());
    }
    Ok(())
}

/// Refuses text that is not of `kind`, or of a version beyond `newest`; versions from 1 on are read. `name` is the file in
/// a message: "run record".
pub fn check(text: &[u8], kind: &str, newest: u32, name: &str) -> anyhow::Result<()> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Head {
        kind: String,
        schema: u64,
    }
    check_texts(text)?;
    let head: Head = serde_json::from_slice(text).with_context(|| format!("the {name} is damaged"))?;
    ensure!(head.kind == kind, "a {name} is of kind {kind:?}, this is {:?}", head.kind);
    ensure!(
        (1..=u64::from(newest)).contains(&head.schema),
        "{name} format {} where this ringmark reads up to {newest}: use the ringmark that wrote it",
        head.schema
    );
    Ok(())
}

/// Reads a file that is one document, after its head is [checked](check); an error names the line where the JSON is to blame.
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
    fn a_text_has_a_limit_and_a_document_has_none() {
        let document = |length: usize| format!(r#"{{"kind":"a","b\\\"":["{}","c"],"d":"\""}}"#, "x".repeat(length));
        assert!(check_texts(document(LONGEST_TEXT).as_bytes()).is_ok());
        let error = check_texts(document(LONGEST_TEXT + 1).as_bytes()).expect_err("too long").to_string();
        assert_eq!(error, "a text of 1048577 bytes at byte 22: no text is longer than 1048576");
        assert!(check_texts(format!("[{}]", vec![r#""text""#; 500_000].join(",")).as_bytes()).is_ok());
        for damaged in ["\"", "\"\\", "{\"a", ""] {
            assert!(check_texts(damaged.as_bytes()).is_ok(), "{damaged} is left to the parser");
        }
    }
}
