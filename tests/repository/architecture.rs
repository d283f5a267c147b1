//! Tests of imports between folders and of restricted modules. Parses the sources; modules under `#[cfg(test)]` are
//! excluded. The suites of this test binary must not depend on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree};

/// Packages: the folder of the root module, and the name in paths of other packages.
const PACKAGES: [(&str, &str); 4] = [
    ("src", "ringmark"),
    ("src/core", "ringmark_core"),
    ("src/input", "ringmark_input"),
    ("src/worker", "ringmark_worker"),
];

/// Folders whose subfolders are rows of the table.
const SPLIT: [&str; 2] = ["src/launch", "src/read"];

/// Lines around the table in docs/architecture.md.
const TABLE: [&str; 2] = ["<!-- imports -->\n", "<!-- end of imports -->\n"];

/// A source file of a package.
struct Source {
    /// Path from the repository's root.
    path: String,
    package: &'static str,
    /// Module path, such as `launch::job` for launch/job/mod.rs; empty for the root module.
    module: String,
    /// Paths within the package, from the root: `crate::a::B` is `a::B`.
    own: BTreeSet<String>,
    /// Paths that begin with the name of another crate.
    foreign: BTreeSet<String>,
    /// Identifiers and literals.
    words: BTreeSet<String>,
}

static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let mut parsed: Vec<(String, syn::File)> =
        rust_files("src").into_iter().map(|path| (path.clone(), parse(&path, &read(&path)))).collect();
    let mut tests = BTreeSet::new();
    for (path, file) in &mut parsed {
        let (package, module) = module_of(path);
        tests.extend(without_tests(&mut file.items).into_iter().map(|name| (package, join(&module, &name))));
    }
    // A separate file declared under `#[cfg(test)]`.
    let is_test = |(package, module): &(&'static str, String)| {
        tests
            .iter()
            .any(|(other, test)| other == package && (module == test || module.starts_with(&format!("{test}::"))))
    };
    parsed.retain(|(path, _)| !is_test(&module_of(path)));
    let modules: BTreeSet<(&str, String)> = parsed.iter().map(|(path, _)| module_of(path)).collect();
    parsed.into_iter().map(|(path, file)| Source::new(&path, file, &modules)).collect()
});

/// Returns the paths of all Rust sources below a folder.
fn rust_files(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder of the repository") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            let path = format!("{folder}/{name}");
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn parse(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("a text of the repository")
}

/// Returns the package and module of a file: `src/launch/job/mod.rs` is `launch::job`; `main.rs` and `lib.rs` are the
/// root module.
fn module_of(path: &str) -> (&'static str, String) {
    let packages = PACKAGES.iter().map(|(package, _)| *package);
    let package =
        packages.filter(|package| path.starts_with(&format!("{package}/"))).max_by_key(|package| package.len());
    let package = package.expect("a package");
    let name = path[package.len() + 1..].trim_end_matches(".rs").replace('/', "::");
    let name = name.strip_suffix("mod").map_or(name.as_str(), |parent| parent.trim_end_matches("::"));
    (package, if matches!(name, "lib" | "main" | "build") { String::new() } else { name.to_owned() })
}

impl Source {
    fn new(path: &str, mut file: syn::File, modules: &BTreeSet<(&'static str, String)>) -> Source {
        let (package, module) = module_of(path);
        file.attrs.clear();
        without_tests(&mut file.items);
        let mut paths = Paths { base: vec![module.clone()], own: BTreeSet::new(), foreign: BTreeSet::new() };
        paths.visit_file(&file);
        let mut words = BTreeSet::new();
        collect_words(file.to_token_stream(), &mut words);
        // A mod.rs refers to the files of its folder by name and may contain items that they use: this is not an
        // import.
        let is_child = |path: &String| {
            let first = path.split("::").next().unwrap_or_default();
            modules.contains(&(package, join(&module, first)))
        };
        let mut foreign: BTreeSet<String> = paths.foreign.into_iter().filter(|path| !is_child(path)).collect();
        // A program refers to its package's library by name.
        let name = PACKAGES.iter().find(|(folder, _)| *folder == package).map_or("", |(_, name)| *name);
        let of_library = |path: &String| Some(path.strip_prefix(name)?.strip_prefix("::")?.to_owned());
        let own = paths.own.into_iter().chain(foreign.iter().filter_map(of_library)).collect();
        foreign.retain(|path| of_library(path).is_none());
        Source { path: path.to_owned(), package, module, own, foreign, words }
    }

    /// Returns the modules of the same package that this file imports.
    fn imports<'a>(&'a self, modules: &'a BTreeSet<(&'static str, String)>) -> impl Iterator<Item = String> + 'a {
        let known = |path: &String| {
            let mut path = path.as_str();
            while !modules.contains(&(self.package, path.to_owned())) {
                path = path.rsplit_once("::").map_or("", |(parent, _)| parent);
            }
            path.to_owned()
        };
        self.own.iter().map(known).filter(|module| *module != self.module)
    }

    /// Returns the rows of the table that this file's row imports.
    fn arrows(&self, modules: &BTreeSet<(&'static str, String)>) -> BTreeSet<String> {
        let own = self.imports(modules).map(|module| row(self.package, &module));
        let packages =
            PACKAGES.iter().filter(|(_, name)| self.foreign.iter().any(|path| path.split("::").next() == Some(name)));
        let mut arrows: BTreeSet<String> = own.chain(packages.map(|(package, _)| (*package).to_owned())).collect();
        arrows.remove(&row(self.package, &self.module));
        arrows
    }
}

fn join(module: &str, path: &str) -> String {
    if module.is_empty() { path.to_owned() } else { format!("{module}::{path}") }
}

/// Returns the row of a module: its topmost folder or file, or the second level of a split folder.
fn row(package: &str, module: &str) -> String {
    let mut parts = module.split("::").filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return package.to_owned() };
    let folder = format!("{package}/{first}");
    match parts.next().map(|second| format!("{folder}/{second}")) {
        Some(inner) if SPLIT.contains(&folder.as_str()) && root().join(&inner).is_dir() => inner,
        _ => folder,
    }
}

fn modules() -> BTreeSet<(&'static str, String)> {
    SOURCES.iter().map(|source| (source.package, source.module.clone())).collect()
}

/// Removes items under `#[cfg(test)]`; returns the names of those in separate files.
fn without_tests(items: &mut Vec<Item>) -> Vec<String> {
    let mut files = Vec::new();
    items.retain(|item| {
        let is_test = attributes(item).iter().any(is_test);
        if let (true, Item::Mod(ItemMod { ident, content: None, .. })) = (is_test, item) {
            files.push(ident.to_string());
        }
        !is_test
    });
    for item in items {
        if let Item::Mod(ItemMod { content: Some((_, items)), .. }) = item {
            without_tests(items);
        }
    }
    files
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.meta.to_token_stream().to_string().replace(' ', "") == "cfg(test)"
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Collector of the paths in a file; `base` is the enclosing module path.
struct Paths {
    base: Vec<String>,
    own: BTreeSet<String>,
    foreign: BTreeSet<String>,
}

impl Paths {
    fn add(&mut self, segments: &[String]) {
        let module = self.base.join("::");
        let mut parts: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
        let Some((first, mut rest)) = segments.split_first() else { return };
        match first.as_str() {
            "crate" => parts.clear(),
            "self" if !rest.is_empty() => {}
            "super" => {
                parts.pop();
                while let Some((_, others)) = rest.split_first().filter(|(first, _)| *first == "super") {
                    parts.pop();
                    rest = others;
                }
            }
            _ => {
                if segments.len() > 1 {
                    self.foreign.insert(segments.join("::"));
                }
                return;
            }
        }
        parts.extend(rest.iter().map(String::as_str));
        self.own.insert(parts.join("::"));
    }

    fn add_tree(&mut self, tree: &UseTree, mut path: Vec<String>) {
        match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.add_tree(&inner.tree, path);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_tree(tree, path.clone())),
            UseTree::Name(name) if name.ident == "self" => self.add(&path),
            UseTree::Name(name) => self.add(&[path, vec![name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => self.add(&[path, vec![rename.ident.to_string()]].concat()),
            UseTree::Glob(_) => self.add(&path),
        }
    }

    /// Adds paths in the arguments of a macro, which are tokens.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 2;
        for token in tokens {
            match token {
                TokenTree::Punct(punctuation) if punctuation.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.add(&std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                other => {
                    self.add(&std::mem::take(&mut path));
                    colons = 2;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(&path);
    }
}

impl Visit<'_> for Paths {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.add_tree(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &syn::Path) {
        self.add(&path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>());
        visit::visit_path(self, path);
    }

    /// Ignores `pub(super)`, which is not an import.
    fn visit_visibility(&mut self, _: &syn::Visibility) {}

    fn visit_item_mod(&mut self, item: &ItemMod) {
        self.base.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.base.pop();
    }

    fn visit_macro(&mut self, item: &Macro) {
        self.add_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }

    fn visit_attribute(&mut self, attribute: &Attribute) {
        if !attribute.path().is_ident("doc") {
            self.add_tokens(attribute.meta.to_token_stream());
        }
    }
}

fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            // A doc comment is an attribute here.
            TokenTree::Punct(punctuation) if punctuation.as_char() == '#' => {
                let is_doc = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.stream().to_string().starts_with("doc "));
                tokens.next_if(is_doc);
            }
            TokenTree::Group(group) => collect_words(group.stream(), words),
            other => {
                words.insert(other.to_string());
            }
        }
    }
}

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
    let keyword = |name: &'static str| move |source: &Source| source.words.get(name).cloned();
    absent("src", &["src/worker/ffi", "src/input/ffi"], keyword("unsafe"));
    absent("src", &[], keyword("todo"));
    absent("src", &[], keyword("unimplemented"));
    let with_clap = [
        "src/cli",
        "src/main.rs",
        "src/worker/cli.rs",
        "src/worker/main.rs",
        "src/core/options/migration_hints.rs",
        "src/core/options/help.rs",
        "src/core/options/option_table.rs",
    ];
    absent("src", &with_clap, path_of(&["clap", "clap_complete", "clap_mangen"]));
    absent("src/input", &[], path_of(&["tch", "mpi"]));
    absent("src/input", &[], word_with(&["torch"]));
    absent("src/worker/host", &[], path_of(&["mpi"]));
    absent("src/worker/host", &[], word_with(&["backward"]));
    absent("src", &["src/core/stats"], path_of(&["statrs"]));
    // Modules that may access the process environment: they build command lines or configure libraries.
    let with_environment = [
        "src/launch/local/environment.rs",
        "src/worker/host/facts.rs",
        "src/worker/ffi/process/libraries.rs",
        "src/worker/job/library_defaults.rs",
        "src/worker/build.rs",
    ];
    absent("src", &with_environment, path_of(&["std::env"]));
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
