//! Who may import whom, and which modules may use what. Reads the sources.

use std::collections::{BTreeMap, BTreeSet};
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
        if except.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for word in words {
                assert!(
                    !line.contains(word),
                    "{}:{}: {word} is not for this module: {line}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// A package: the folder of its root module, and the folders below it that are packages of their own.
const PACKAGES: [(&str, &[&str]); 4] =
    [("src", &["src/input", "src/record", "src/worker"]), ("src/input", &[]), ("src/record", &[]), ("src/worker", &[])];

/// Every module of a package by its path, `launch::job`, with what it imports of the same package.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn imports(root: &str, other_packages: &[&str]) -> Imports {
    let is_own = |path: &Path| !other_packages.iter().any(|other| path.starts_with(other));
    let files: Vec<(String, String)> = sources(root)
        .into_iter()
        .filter(|(path, _)| is_own(path))
        .map(|(path, text)| (module_of(path.strip_prefix(root).expect("below the root")), text))
        .collect();
    let names: BTreeSet<String> = files.iter().map(|(name, _)| name.clone()).collect();
    let imported = |(name, text): (String, String)| {
        let paths = paths_of_crate(&name, &text);
        let modules = paths.iter().filter_map(|path| longest_module(path, &names)).filter(|other| *other != name);
        let modules = modules.collect();
        (name, modules)
    };
    files.into_iter().map(imported).collect()
}

/// `launch/job/mod.rs` is `launch::job`; `main.rs` and `lib.rs` are the root, an empty name.
fn module_of(file: &Path) -> String {
    let name = file.with_extension("").to_string_lossy().replace('/', "::");
    let name = name.strip_suffix("mod").map_or(name.as_str(), |parent| parent.trim_end_matches("::"));
    if matches!(name, "lib" | "main" | "build") { String::new() } else { name.to_owned() }
}

/// Every path below `crate::` that the code names, in `use` or elsewhere; `self::` and `super::` are resolved.
fn paths_of_crate(module: &str, text: &str) -> Vec<String> {
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect();
    let mut paths = Vec::new();
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    for (prefix, base) in [("crate::", ""), ("super::", parent), ("self::", module)] {
        for (start, _) in code.match_indices(prefix) {
            let before = code[..start].chars().next_back().unwrap_or(' ');
            if before == '$' || before == ':' || before == '_' || before.is_alphanumeric() {
                continue;
            }
            let base = if base.is_empty() { String::new() } else { format!("{base}::") };
            paths.extend(expand(&code[start + prefix.len()..]).into_iter().map(|path| format!("{base}{path}")));
        }
    }
    paths
}

/// The paths that begin here: one, or those of `{a, b::{c, d}}`.
fn expand(text: &str) -> Vec<String> {
    let end =
        text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_' || letter == ':')).unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let Some(body) = rest.strip_prefix('{').filter(|_| head.is_empty() || head.ends_with("::")) else {
        return vec![head.trim_end_matches(':').to_owned()];
    };
    let mut paths = Vec::new();
    let mut depth = 0;
    let mut starts_item = true;
    for (place, letter) in body.char_indices() {
        match letter {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => starts_item = true,
            _ if starts_item && depth == 0 && !letter.is_whitespace() => {
                starts_item = false;
                paths.extend(expand(&body[place..]).into_iter().map(|path| format!("{head}{path}")));
            }
            _ => {}
        }
    }
    paths
}

/// `launch::job::PlannedJob` lies in the module `launch::job`.
fn longest_module(path: &str, names: &BTreeSet<String>) -> Option<String> {
    let mut path = path;
    loop {
        if names.contains(path) {
            return Some(path.to_owned()).filter(|path| !path.is_empty());
        }
        path = path.rsplit_once("::").map_or("", |(parent, _)| parent);
        if path.is_empty() {
            return None;
        }
    }
}

/// The shortest circle of imports, each module followed by one that it imports; empty where there is none.
fn circle(imports: &Imports) -> Vec<String> {
    let mut shortest: Vec<String> = Vec::new();
    for start in imports.keys() {
        // Breadth first, so that the first way back is the shortest one.
        let mut ways: Vec<Vec<&String>> = vec![vec![start]];
        let mut seen = BTreeSet::new();
        let mut next = 0;
        while let Some(way) = ways.get(next).cloned() {
            next += 1;
            let last = way.last().expect("a way has a module");
            for import in imports.get(*last).into_iter().flatten() {
                if import == start && (shortest.is_empty() || way.len() < shortest.len()) {
                    shortest = way.iter().map(|name| (*name).clone()).collect();
                }
                if seen.insert(import) {
                    ways.push(way.iter().copied().chain([import]).collect());
                }
            }
        }
    }
    shortest
}

#[test]
fn no_module_imports_itself_by_way_of_others() {
    for (root, other_packages) in PACKAGES {
        let imports = imports(root, other_packages);
        assert!(
            imports.values().map(BTreeSet::len).sum::<usize>() > imports.len() / 2,
            "{root}: hardly any import found"
        );
        let circle = circle(&imports);
        assert!(circle.is_empty(), "{root}: a circle of imports: {} -> {}", circle.join(" -> "), circle[0]);
    }
}

#[test]
fn a_circle_is_found_and_named() {
    let imports = |edges: &[(&str, &[&str])]| -> Imports {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(from, to)| ((*from).to_owned(), names(to))).collect()
    };
    assert_eq!(circle(&imports(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), Vec::<String>::new());
    assert_eq!(circle(&imports(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])])), ["b", "c", "d"]);
    let code = "use crate::a::{self, b::{C, D}};\nuse super::x::Y;\n// crate::no::comment\nlet z = crate::e::f();\n";
    let found = paths_of_crate("m::n", code);
    assert_eq!(found, ["a::self", "a::b::C", "a::b::D", "e::f", "m::x::Y"]);
    let names = ["a", "a::b", "e"].map(str::to_owned).into();
    let modules: Vec<Option<String>> = found.iter().map(|path| longest_module(path, &names)).collect();
    assert_eq!(modules, [Some("a"), Some("a::b"), Some("a::b"), Some("e"), None].map(|name| name.map(str::to_owned)));
}

#[test]
fn packages_meet_only_in_record() {
    absent("src/launch", &["crate::read", "crate::cli"], &[]);
    absent("src/read", &["crate::launch", "crate::cli"], &[]);
    absent("src/record", &["ringmark::", "ringmark_input::", "ringmark_worker::"], &[]);
    absent("src/input", &["ringmark::", "ringmark_worker::"], &[]);
    // The command alone: figures are read and jobs are started without data.
    absent("src/launch", &["ringmark_input::"], &[]);
    absent("src/read", &["ringmark_input::"], &[]);
}

#[test]
fn inside_the_worker_imports_go_one_way() {
    const ABOVE_FFI: [&str; 7] = [
        "crate::model",
        "crate::data",
        "crate::exchange",
        "crate::measure",
        "crate::benchmark",
        "crate::job",
        "crate::host",
    ];
    absent("src/worker/ffi", &ABOVE_FFI, &[]);
    absent("src/worker/model", &["crate::exchange", "crate::data", "crate::benchmark"], &[]);
    absent("src/worker/exchange", &["crate::model", "crate::data", "crate::benchmark"], &[]);
    absent("src/worker/data", &["crate::exchange", "crate::benchmark"], &[]);
    absent("src/worker/measure", &["crate::benchmark", "crate::model"], &[]);
    absent("src/worker/host", &["crate::job", "crate::ffi::mpi", "mpi::", "backward"], &[]);
    absent("src/worker", &["crate::benchmark"], &["src/worker/benchmark", "src/worker/main.rs"]);
}

#[test]
fn each_tool_stays_in_its_module() {
    absent("src", &["unsafe "], &["src/worker/ffi", "src/input/ffi"]);
    absent(
        "src",
        &["clap::", "clap_"],
        &[
            "src/cli",
            "src/main.rs",
            "src/worker/cli.rs",
            "src/worker/main.rs",
            "src/record/options/habits.rs",
            "src/record/options/option_table.rs",
        ],
    );
    absent("src/input", &["tch::", "mpi::", "torch"], &[]);
    absent("src", &["statrs"], &["src/record/stats"]);
    // The process environment: where a command line is made, and where libraries are told.
    absent(
        "src",
        &["std::env::"],
        &[
            "src/launch/local/environment.rs",
            "src/worker/host/facts.rs",
            "src/worker/ffi/libraries.rs",
            "src/worker/build.rs",
        ],
    );
    // A network has its names in one table.
    absent(
        "src",
        &["\"rn50\"", "\"rn50_", "\"ResNet50-v1b", "\"resnet50", "\"resnet18"],
        &["src/record/dimension/model.rs", "src/record/dimension/model_facts.rs"],
    );
    absent("src", &["TODO", "todo!", "unimplemented!"], &[]);
}
