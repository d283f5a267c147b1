//! Snapshots of messages with files in them: temporary folders have another name in each run. Also a module of the unit tests of
//! other packages.

/// Characters that [`tempfile`] draws.
const DRAWN: usize = 6;

/// Replaces the temporary folders of [`tempfile`] in `text` by DIR.
pub fn without_folder(text: &str) -> String {
    let start = std::env::temp_dir().join(".tmp").display().to_string();
    let mut parts = text.split(&start);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + "DIR" + part.get(DRAWN..).unwrap_or_default())
}
