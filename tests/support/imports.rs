//! Parser of the imports and words of Rust sources. Modules under `#[cfg(test)]` are excluded.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree};

/// Packages: the folder of the root module, and the name in paths of other packages.
pub const PACKAGES: [(&str, &str); 4] = [
    ("src", "ringmark"),
    ("src/core", "ringmark_core"),
    ("src/input", "ringmark_input"),
    ("src/worker", "ringmark_worker"),
];

/// Folders whose subfolders are rows of the table.
const SPLIT: [&str; 2] = ["src/launch", "src/read"];

/// A source file of a package.
pub struct Source {
    /// Path from the repository's root.
    pub path: String,
    pub package: &'static str,
    /// Module path, such as `launch::job` for launch/job/mod.rs; empty for the root module.
    pub module: String,
    /// Paths within the package, from the root: `crate::a::B` is `a::B`.
    pub own: BTreeSet<String>,
    /// Paths that begin with the name of another crate.
    pub foreign: BTreeSet<String>,
    /// Identifiers and literals.
    pub words: BTreeSet<String>,
}

pub static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
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
pub fn rust_files(folder: &str) -> Vec<String> {
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

pub fn parse(path: &str, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: &str) -> String {
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
    pub fn new(path: &str, mut file: syn::File, modules: &BTreeSet<(&'static str, String)>) -> Source {
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
    pub fn imports<'a>(&'a self, modules: &'a BTreeSet<(&'static str, String)>) -> impl Iterator<Item = String> + 'a {
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
    pub fn arrows(&self, modules: &BTreeSet<(&'static str, String)>) -> BTreeSet<String> {
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
pub fn row(package: &str, module: &str) -> String {
    let mut parts = module.split("::").filter(|part| !part.is_empty());
    let Some(first) = parts.next() else { return package.to_owned() };
    let folder = format!("{package}/{first}");
    match parts.next().map(|second| format!("{folder}/{second}")) {
        Some(inner) if SPLIT.contains(&folder.as_str()) && root().join(&inner).is_dir() => inner,
        _ => folder,
    }
}

pub fn modules() -> BTreeSet<(&'static str, String)> {
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
pub struct Paths {
    pub base: Vec<String>,
    pub own: BTreeSet<String>,
    pub foreign: BTreeSet<String>,
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

pub fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
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
