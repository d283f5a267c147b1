//! The head of every file of ours: what it is and in which version. Asked before the rest is read, because a file of
//! another version may not even parse. And how a file of one document is read and written.

use std::io::{Read, Write};

use anyhow::{Context, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Refuses text that is not of `kind`, or of a version beyond `newest`; versions from 1 on are read. `name` is the file in
/// a message: "run record".
pub fn check(text: &[u8], kind: &str, newest: u32, name: &str) -> anyhow::Result<()> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Head {
        kind: String,
        schema: u64,
    }
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
