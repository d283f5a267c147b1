//! README and documents: links, anchors, length of pages and cells, table of contents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::sandbox::{ringmark, succeeds};

const LONGEST_PAGE: usize = 200;
const LONGEST_CELL: usize = 200;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Markdown files below a folder, as paths relative to the root.
fn markdown_files(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = Path::new(folder).join(entry.file_name());
        if entry.path().is_dir() {
            found.extend(markdown_files(path.to_str().expect("text")));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// Documents; results written by `ringmark extract` are none.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CHANGELOG.md"].map(PathBuf::from).to_vec();
    found.extend(markdown_files("docs"));
    found.extend(markdown_files("results").into_iter().filter(|path| path.ends_with("README.md")));
    assert!(found.len() > 40, "{found:?}");
    found
}

fn read(document: &Path) -> String {
    fs::read_to_string(root().join(document)).expect("readable")
}

/// Anchor of a heading, as GitHub and mdBook derive it.
fn anchor(heading: &str) -> String {
    let kept = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

/// Lines outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let keep = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(keep).collect()
}

/// Targets of the links of a document.
fn links(document: &Path) -> Vec<String> {
    let text = read(document);
    let text = prose(&text).join("\n");
    let target = |(start, _): (usize, &str)| text[start + 2..].split(')').next().unwrap_or_default().to_owned();
    text.match_indices("](").map(target).collect()
}

#[test]
fn every_link_has_a_target() {
    for document in documents() {
        for link in links(&document).iter().filter(|link| !link.contains("://")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                _ => document.parent().expect("a folder").join(file),
            };
            assert!(root().join(&target).exists(), "{}: {link} leads nowhere", document.display());
            if !heading.is_empty() {
                let text = read(&target);
                let has = prose(&text).iter().any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(has, "{}: {link}: no such heading", document.display());
            }
        }
    }
}

#[test]
fn readme_is_short() {
    let lines = read(Path::new("README.md")).lines().count();
    assert!(lines <= 120, "README.md has {lines} lines: move details to docs/");
}

/// The picture, its text and the table show the report of the same sweep.
#[test]
fn picture_of_readme_shows_its_table() {
    let readme = read(Path::new("README.md"));
    let page = succeeds(&mut ringmark("report results/cpu-2-cores --format html"));
    let row = readme.lines().find(|line| line.starts_with("1n2g      2")).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    for figure in [format!("{} images/s", cells[3]), format!("{} % efficiency", cells[6])] {
        assert!(readme.lines().any(|line| line.starts_with("![") && line.contains(&figure)), "{figure}");
    }
    for figure in [cells[3], cells[6]] {
        assert!(page.contains(&format!(">{figure}<")), "{figure}");
    }
}

#[test]
fn pages_and_cells_are_short() {
    for document in documents() {
        // The changelog is one list, docs/keys is generated.
        let has_any_length = document.starts_with("docs/keys") || document == Path::new("CHANGELOG.md");
        let text = read(&document);
        let lines = text.lines().count();
        assert!(lines <= LONGEST_PAGE || has_any_length, "{} has {lines} lines: split it", document.display());
        let mut is_generated = false;
        for line in prose(&text) {
            // The table of imports in docs/architecture.md.
            match line {
                "<!-- imports -->" => is_generated = true,
                "<!-- end of imports -->" => is_generated = false,
                _ => {}
            }
            for cell in line.split('|').skip(1).filter(|_| line.starts_with('|') && !is_generated) {
                let length = cell.trim().chars().count();
                assert!(length <= LONGEST_CELL, "{}: {length} characters in a cell: {cell}", document.display());
            }
        }
    }
}

#[test]
fn table_of_contents_lists_every_page_once() {
    let summary = Path::new("docs/SUMMARY.md");
    let listed = links(summary);
    let pages: BTreeSet<PathBuf> = listed.iter().map(|link| Path::new("docs").join(link)).collect();
    assert_eq!(pages.len(), listed.len(), "docs/SUMMARY.md has a page twice");
    let existing: BTreeSet<PathBuf> = markdown_files("docs").into_iter().filter(|path| path != summary).collect();
    let outside: Vec<&PathBuf> = pages.difference(&existing).filter(|path| !path.starts_with("docs/..")).collect();
    let missing: Vec<&PathBuf> = existing.difference(&pages).collect();
    assert!(outside.is_empty() && missing.is_empty(), "docs/SUMMARY.md: missing {missing:?}, unknown {outside:?}");
}
