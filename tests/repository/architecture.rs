//! Tests of imports between folders and of restricted modules. The suites of this test binary must not depend on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use quote::ToTokens;
use syn::visit::Visit;
use syn::{Item, ItemMod};

use crate::support::imports::{
    PACKAGES, Paths, SOURCES, Source, collect_words, modules, parse, read, root, row, rust_files,
};

/// Lines around the table in docs/architecture.md.
const TABLE: [&str; 2] = ["<!-- imports -->\n", "<!-- end of imports -->\n"];

/// Returns the rows with all their imports.
fn table() -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let mut rows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in SOURCES.iter() {
        rows.entry(row(source.package, &source.module)).or_default().extend(source.arrows(&modules));
    }
    rows
}

fn table_text(rows: &BTreeMap<String, BTreeSet<String>>) -> String {
    let short = |name: &str| format!("`{}`", name.strip_prefix("src/").unwrap_or("main"));
    let mut text = "| folder | imports |\n|---|---|\n".to_owned();
    for (row, arrows) in rows {
        let arrows: Vec<String> = arrows.iter().map(|arrow| short(arrow)).collect();
        text += &format!("| {} | {} |\n", short(row), arrows.join(", "));
    }
    text
}

/// Returns the table in the document: the allowed imports.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = read("docs/architecture.md");
    let (_, rest) = text.split_once(TABLE[0]).expect("the table begins");
    let (table, _) = rest.split_once(TABLE[1]).expect("the table ends");
    let name = |cell: &str| match cell.trim().trim_matches('`') {
        "main" => "src".to_owned(),
        name => format!("src/{name}"),
    };
    let row = |line: &str| {
        let mut cells = line.trim_matches('|').split('|');
        let row = name(cells.next()?);
        let arrows = cells.next()?.split(',').filter(|cell| !cell.trim().is_empty()).map(name).collect();
        Some((row, arrows))
    };
    table.lines().skip(2).filter_map(row).collect()
}

/// Writes the table instead if `RINGMARK_WRITE_ARCHITECTURE` is set.
#[test]
fn folders_import_only_allowed_modules() {
    let path = root().join("docs/architecture.md");
    let found = table();
    assert!(found.values().map(BTreeSet::len).sum::<usize>() > 2 * found.len(), "hardly any import was found");
    if std::env::var_os("RINGMARK_WRITE_ARCHITECTURE").is_some() {
        let text = read("docs/architecture.md");
        let (head, rest) = text.split_once(TABLE[0]).expect("the table begins");
        let (_, tail) = rest.split_once(TABLE[1]).expect("the table ends");
        let [begin, end] = TABLE;
        fs::write(&path, format!("{head}{begin}{}{end}{tail}", table_text(&found))).expect("written");
        return;
    }
    let allowed = documented();
    let modules = modules();
    for source in SOURCES.iter() {
        let row = row(source.package, &source.module);
        for arrow in source.arrows(&modules) {
            assert!(
                allowed.get(&row).is_some_and(|arrows| arrows.contains(&arrow)),
                "{} imports {arrow}, which docs/architecture.md does not allow {row}: move what both need, or change the table \
                 (RINGMARK_WRITE_ARCHITECTURE=1 cargo test --test ringmark architecture)",
                source.path
            );
        }
    }
    assert_eq!(found, allowed, "the table has an arrow without an import, or a row without a folder");
}

/// Returns, for each folder, its files and subfolders without mod.rs, and the imports between them.
fn siblings() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let modules = modules();
    let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for source in SOURCES.iter() {
        for import in source.imports(&modules) {
            let from: Vec<&str> = source.module.split("::").collect();
            let to: Vec<&str> = import.split("::").collect();
            let common = from.iter().zip(&to).take_while(|(from, to)| from == to).count();
            let (Some(own), Some(other)) = (from.get(common), to.get(common)) else { continue };
            if own.is_empty() || other.is_empty() {
                continue;
            }
            let folder =
                [source.package].into_iter().chain(from[..common].iter().copied()).collect::<Vec<_>>().join("/");
            let graph = folders.entry(folder).or_default();
            graph.entry((*own).to_owned()).or_default().insert((*other).to_owned());
        }
    }
    folders
}

/// Returns the imports between files of a package, mod.rs included.
fn files(package: &str) -> BTreeMap<String, BTreeSet<String>> {
    let modules = modules();
    let own = SOURCES.iter().filter(|source| source.package == package);
    // The root module declares the others and may contain several programs.
    let named = own.filter(|source| !source.module.is_empty());
    named
        .map(|source| (source.module.clone(), source.imports(&modules).filter(|module| !module.is_empty()).collect()))
        .collect()
}

/// Returns the shortest cycle, in import order; empty if there is none.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut shortest: Vec<String> = Vec::new();
    for start in imports.keys() {
        // Breadth-first search: the first path back to the start is the shortest.
        let mut ways: Vec<Vec<&String>> = vec![vec![start]];
        let mut seen = BTreeSet::new();
        let mut next = 0;
        while let Some(way) = ways.get(next).cloned() {
            next += 1;
            let last = way.last().expect("a way has a node");
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

/// Returns a description of every cycle, without edges that begin an earlier one.
fn circles_of(name: &str, mut graph: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut circles = Vec::new();
    loop {
        let circle = circle(&graph);
        let [first, .., _] = &circle[..] else { return circles };
        circles.push(format!("{name}: {} -> {first}", circle.join(" -> ")));
        graph.get_mut(first).expect("a node").remove(&circle[1]);
    }
}

#[test]
fn files_have_no_import_cycles() {
    let mut circles = Vec::new();
    for (package, _) in PACKAGES {
        circles.extend(circles_of(package, files(package)));
    }
    assert_eq!(circles, Vec::<String>::new());
}

#[test]
fn folders_have_no_import_cycles() {
    let circles: Vec<String> = siblings().into_iter().flat_map(|(folder, graph)| circles_of(&folder, graph)).collect();
    assert_eq!(circles, Vec::<String>::new());
}

/// Plants the violation at the end of each file, after all of its tests.
#[test]
fn violations_are_found_in_every_file() {
    let modules = modules();
    let allowed = documented();
    let mut unrestricted = Vec::new();
    for source in SOURCES.iter() {
        let row_of_file = row(source.package, &source.module);
        let of_package = modules.iter().filter(|(package, module)| *package == source.package && !module.is_empty());
        let rows = of_package.map(|(_, module)| (module, row(source.package, module)));
        let mut forbidden = rows.filter(|(_, row)| *row != row_of_file && !allowed[&row_of_file].contains(row));
        let planted = |line: &str| {
            let text = format!("{}\n{line}\nfn more() {{ unsafe {{ todo!() }} }}\n", read(&source.path));
            let changed = Source::new(&source.path, parse(&source.path, &text), &modules);
            assert!(changed.words.contains("unsafe") && changed.words.contains("todo"), "{}", source.path);
            changed.arrows(&modules)
        };
        let Some((module, row)) = forbidden.next() else {
            planted("");
            unrestricted.push(row_of_file);
            continue;
        };
        let lines = [
            format!("use crate::{{{module}::Planted}};"),
            format!("fn planted() -> crate::{module}::Planted {{ loop {{}} }}"),
            format!("fn planted() {{ println!(\"{{}}\", crate::{module}::PLANTED); }}"),
        ];
        let line = &lines[source.path.len() % lines.len()];
        assert!(planted(line).contains(&row), "{}: {line}", source.path);
    }
    // No violation can be planted for a row that imports all others of its package.
    unrestricted.dedup();
    assert!(unrestricted.len() <= 2, "{unrestricted:?}");
}

#[test]
fn import_cycle_is_found_and_named() {
    let graph = |edges: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(from, to)| ((*from).to_owned(), names(to))).collect()
    };
    assert_eq!(circle(&graph(&[("a", &["b", "c"]), ("b", &["c"]), ("c", &[])])), Vec::<String>::new());
    assert_eq!(circle(&graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["d"]), ("d", &["b"])])), ["b", "c", "d"]);
}

#[test]
fn paths_are_found_anywhere_in_a_file() {
    let text = "use crate::a::{self, b::{C, D as E}};\n#[cfg(test)]\nmod tests { use crate::no::X; }\nuse super::x::Y;\n\
                // crate::no::comment\nfn f(_: crate::t::T) -> Option<self::n::U> { crate::e::f(); vec![crate::v::W::new()] }\n\
                mod inner { pub(super) use super::super::z; }\nuse child::K;\n#[derive(crate::d::Derived)] struct S;";
    let modules = ["m::n::child"].map(|module| ("src/worker", module.to_owned())).into();
    let source = Source::new("src/worker/m/n.rs", parse("n.rs", text), &modules);
    let program = Source::new("src/main.rs", parse("main.rs", "use ringmark::cli::Cli;"), &modules);
    assert_eq!(program.own.iter().collect::<Vec<_>>(), ["cli::Cli"]);
    let own = ["a", "a::b::C", "a::b::D", "d::Derived", "e::f", "m::n::n::U", "m::x::Y", "m::z", "t::T", "v::W::new"];
    assert_eq!(source.own.iter().map(String::as_str).collect::<Vec<_>>(), own);
}

/// Checks that `finds` returns nothing for the files in `folder`, except those below `except`.
fn absent(folder: &str, except: &[&str], finds: impl Fn(&Source) -> Option<String>) {
    let is_below =
        |source: &Source, folder: &str| source.path == folder || source.path.starts_with(&format!("{folder}/"));
    let mut inspected = 0;
    for source in SOURCES.iter().filter(|source| is_below(source, folder)) {
        inspected += 1;
        if !except.iter().any(|allowed| is_below(source, allowed))
            && let Some(found) = finds(source)
        {
            panic!("{}: {found} is not for this module", source.path);
        }
    }
    assert!(inspected > 0, "no sources in {folder}");
}

/// Returns a function that finds a path of another crate starting with one of `crates`, at a name boundary.
fn path_of<'a>(crates: &'a [&'a str]) -> impl Fn(&Source) -> Option<String> + 'a {
    let begins =
        |path: &str, name: &str| path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    move |source| source.foreign.iter().find(|path| crates.iter().any(|name| begins(path, name))).cloned()
}

/// Returns a function that finds an identifier or literal containing one of `parts`.
fn word_with<'a>(parts: &'a [&'a str]) -> impl Fn(&Source) -> Option<String> + 'a {
    move |source| source.words.iter().find(|word| parts.iter().any(|part| word.contains(part))).cloned()
}

#[test]
fn each_tool_stays_in_its_module() {
    let with_clap = [
        "src/cli",
        "src/main.rs",
        "src/worker/benchmark/mod.rs",
        "src/worker/cli.rs",
        "src/worker/main.rs",
        "src/core/options/migration_hints.rs",
        "src/core/options/help.rs",
        "src/core/options/clap_binding.rs",
    ];
    absent("src", &with_clap, path_of(&["clap", "clap_complete", "clap_mangen"]));
    absent("src/input", &[], path_of(&["tch", "mpi"]));
    absent("src/input", &[], word_with(&["torch"]));
    absent("src/worker/host", &[], path_of(&["mpi"]));
    absent("src/worker/host", &[], word_with(&["backward"]));
    absent("src", &["src/core/stats"], path_of(&["statrs"]));
    // The names of a network are in one table.
    let names = ["\"rn50\"", "\"rn50_", "\"ResNet50-v1b", "\"resnet50", "\"resnet18"];
    absent("src", &["src/core/dimension/model.rs", "src/core/dimension/facts/model.rs"], word_with(&names));
}

// --- the tests' own modules ---------------------------------------------------------------------------------------------

/// Returns the sources of the test binary: its root, and the folders declared there.
fn test_files() -> Vec<String> {
    let main = "tests/main.rs".to_owned();
    let folders = parse(&main, &read(&main)).items.into_iter().filter_map(|item| match item {
        Item::Mod(module) => Some(format!("tests/{}", module.ident)),
        _ => None,
    });
    let files: Vec<String> = folders.flat_map(|folder| rust_files(&folder)).collect();
    [vec![main], files].concat()
}

fn is_support(path: &str) -> bool {
    path.starts_with("tests/support/")
}

/// Returns the dependencies on suites in a source of the test binary. A suite may use `support` and itself, `support`
/// only itself.
fn suite_dependencies(path: &str, text: &str) -> Vec<String> {
    let file = parse(path, text);
    let module = path.trim_start_matches("tests/").trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    let mut paths = Paths { base: vec![module.clone()], own: BTreeSet::new(), foreign: BTreeSet::new() };
    paths.visit_file(&file);
    let is_below = |path: &str, module: &str| path == module || path.starts_with(&format!("{module}::"));
    let mut found: Vec<String> =
        paths.own.into_iter().filter(|path| !is_below(path, "support") && !is_below(path, &module)).collect();
    if !is_support(path) {
        // A public method of a shared type can be called without an import.
        let mut words = BTreeSet::new();
        collect_words(file.to_token_stream(), &mut words);
        found.extend(words.take("pub"));
    }
    if path == "tests/main.rs" || (path.ends_with("/mod.rs") && !is_support(path)) {
        // These could refer to their modules without `crate`.
        let is_declaration = |item: &&Item| matches!(item, Item::Mod(ItemMod { content: None, .. }));
        found.extend(
            file.items.iter().find(|item| !is_declaration(item)).map(|item| item.to_token_stream().to_string()),
        );
    }
    found
}

#[test]
fn suites_depend_only_on_support() {
    for path in test_files() {
        let found = suite_dependencies(&path, &read(&path));
        assert_eq!(found, [""; 0], "{path}: move what two suites need to tests/support");
    }
}

#[test]
fn suite_dependencies_are_found_in_every_test_file() {
    let everywhere = ["use crate::{other::Planted};", "fn planted() { println!(\"{}\", crate::other::PLANTED); }"];
    let in_suites = ["fn planted() -> super::other::Planted { loop {} }", "impl Planted { pub fn planted() {} }"];
    let in_lists = ["fn planted() { other::planted(); }"];
    for path in test_files() {
        let is_list = path == "tests/main.rs" || path.ends_with("/mod.rs");
        let lines = match (is_support(&path), is_list) {
            (true, _) => everywhere.to_vec(),
            (false, false) => [everywhere, in_suites].concat(),
            (false, true) => [&everywhere[..], &in_suites, &in_lists].concat(),
        };
        for line in lines {
            let text = format!("{}\n{line}\n", read(&path));
            assert_ne!(suite_dependencies(&path, &text), [""; 0], "{path}: {line}");
        }
    }
}
