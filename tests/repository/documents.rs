//! README and docs: every relative link leads to a file, every anchor to a heading, and the README is short.

use std::fs;
use std::path::{Path, PathBuf};

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![root.join("README.md"), root.join("CHANGELOG.md"), root.join("results/README.md")];
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    found.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    assert!(found.len() > 10, "{found:?}");
    found
}

/// Returns the anchor that Markdown renderers generate for a heading.
fn anchor(heading: &str) -> String {
    let kept = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    };
    heading.trim_start_matches('#').trim().chars().filter_map(kept).collect()
}

/// Returns the lines outside of code blocks.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let keep = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    text.lines().filter(keep).collect()
}

#[test]
fn every_link_leads_somewhere() {
    for document in documents() {
        let text = fs::read_to_string(&document).expect("readable");
        let text = prose(&text).join("\n");
        for (start, _) in text.match_indices("](") {
            let link = text[start + 2..].split(')').next().unwrap_or_default();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => document.clone(),
                _ => document.parent().expect("a folder").join(file),
            };
            assert!(target.exists(), "{}: {link} leads nowhere", document.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("readable");
                let has = prose(&text).iter().any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(has, "{}: {link}: no such heading", document.display());
            }
        }
    }
}

#[test]
fn the_readme_is_short() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).expect("readable");
    assert!(text.lines().count() <= 150, "README.md has {} lines: docs/ holds the rest", text.lines().count());
}
