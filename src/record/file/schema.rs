//! The head of every file of ours: what it is and in which version. Asked before the rest is read, because a file of
//! another version may not even parse.

use anyhow::{Context, ensure};
use serde::Deserialize;

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
