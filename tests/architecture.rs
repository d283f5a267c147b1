//! The walls of the house: who may import whom, and which rooms may use what. Reads the sources.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source");
                // Tests may look into other rooms.
                let text = text.split("#[cfg(test)]").next().expect("the first part").to_owned();
                found.push((path.strip_prefix(root).expect("below the root").to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

/// No line of code in `folder`, outside the files in `except`, holds one of `words`.
fn absent(folder: &str, words: &[&str], except: &[&str]) {
    for (path, text) in sources(folder) {
        if except.iter().any(|room| path.starts_with(room)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for word in words {
                assert!(!line.contains(word), "{}:{}: {word} is not for this room: {line}", path.display(), number + 1);
            }
        }
    }
}

#[test]
fn the_wings_never_import_each_other() {
    absent("src/launch", &["crate::read", "crate::cli"], &[]);
    absent("src/read", &["crate::launch", "crate::cli"], &[]);
    absent("src/record", &["ringmark::", "ringmark_worker::"], &[]);
}

#[test]
fn inside_run_imports_go_one_way() {
    const ABOVE_FFI: [&str; 10] = [
        "crate::model",
        "crate::data",
        "crate::flat_parameters",
        "crate::collective",
        "crate::step",
        "crate::rank",
        "crate::world",
        "crate::device",
        "crate::network",
        "crate::agent",
    ];
    absent("src/run/ffi", &ABOVE_FFI, &[]);
    absent("src/run/model", &["crate::collective", "crate::step", "crate::rank", "crate::data"], &[]);
    absent("src/run/collective", &["crate::model", "crate::data", "crate::step", "crate::rank"], &[]);
    absent("src/run/data", &["crate::collective", "crate::step", "crate::rank"], &[]);
    absent("src/run", &["crate::rank"], &["src/run/main.rs"]);
    absent("src/run", &["crate::step"], &["src/run/rank.rs", "src/run/autotune.rs", "src/run/main.rs"]);
    absent("src/run", &["crate::bandwidth"], &["src/run/bandwidth", "src/run/main.rs"]);
    absent("src/run/bandwidth", &["crate::step", "crate::rank", "crate::data"], &[]);
}

#[test]
fn each_tool_stays_in_its_room() {
    absent("src", &["unsafe "], &["src/run/ffi"]);
    absent(
        "src",
        &["clap::", "clap_"],
        &[
            "src/cli",
            "src/main.rs",
            "src/run/cli.rs",
            "src/run/main.rs",
            "src/record/options.rs",
            "src/record/bandwidth/options.rs",
        ],
    );
    absent("src", &["statrs"], &["src/record/stats"]);
    absent(
        "src",
        &["std::env::"],
        &["src/launch/mpirun.rs", "src/run/environment.rs", "src/run/ffi/libraries.rs", "src/run/build.rs"],
    );
    absent("src", &["TODO", "todo!", "unimplemented!"], &[]);
}
