//! Replacement of temporary paths in snapshots of messages, which differ in each run. Also used by the unit tests of
//! other packages.

/// Number of random characters in the names of [`tempfile`].
const DRAWN: usize = 6;

/// Replaces [`tempfile`]'s temporary folders in `text` by DIR.
pub fn without_folder(text: &str) -> String {
    let start = std::env::temp_dir().join(".tmp").display().to_string();
    let mut parts = text.split(&start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "DIR" + part.get(DRAWN..).unwrap_or_default())
}
