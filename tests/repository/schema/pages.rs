//! The pages in docs/keys: every key of every JSON Schema file, with its type and description.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use ringmark::cli::schema;
use serde_json::{Map, Value};

/// Page of the types that several schemas share.
const SHARED: &str = "shared";
const WIDTH: usize = 110;

/// Writes one page; `shared` contains the names of the types that are described on the shared page.
struct PageWriter<'a> {
    name: &'a str,
    shared: &'a BTreeSet<String>,
    text: String,
}

impl PageWriter<'_> {
    /// Appends a paragraph or a list item, wrapped.
    fn push(&mut self, indent: &str, first: &str, text: &str) {
        let mut line = format!("{indent}{first}");
        for word in text.split_whitespace() {
            if line.len() + word.len() >= WIDTH {
                self.text.push_str(line.trim_end());
                self.text.push('\n');
                line = format!("{indent}{:1$}", "", first.len());
            }
            line.push_str(word);
            line.push(' ');
        }
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, level: &str, name: &str, description: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(&format!("{level} {name}\n\n"));
        if !description.is_empty() {
            self.push("", "", description);
            self.text.push('\n');
        }
    }

    fn link(&self, reference: &str) -> String {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        let page = if self.name != SHARED && self.shared.contains(name) { "shared.md" } else { "" };
        format!("[{name}]({page}#{})", name.to_lowercase())
    }

    fn type_of(&self, value: &Value) -> String {
        if let Some(reference) = value["$ref"].as_str() {
            return self.link(reference);
        }
        if let Some(constant) = value.get("const") {
            return format!("`{}`", constant.as_str().map_or_else(|| constant.to_string(), str::to_owned));
        }
        for choice in ["anyOf", "oneOf", "allOf"] {
            if let Some(parts) = value[choice].as_array() {
                return parts.iter().map(|part| self.type_of(part)).collect::<Vec<_>>().join(" or ");
            }
        }
        if let Some(values) = value["enum"].as_array() {
            return values
                .iter()
                .map(|value| format!("`{}`", value.as_str().unwrap_or("null")))
                .collect::<Vec<_>>()
                .join(", ");
        }
        let named = |name: &str| match name {
            "array" if value["items"].is_object() => format!("array of {}", self.type_of(&value["items"])),
            "object" if value["additionalProperties"].is_object() => {
                format!("object of {}", self.type_of(&value["additionalProperties"]))
            }
            _ => name.to_owned(),
        };
        match &value["type"] {
            Value::String(name) => named(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).map(named).collect::<Vec<_>>().join(" or "),
            _ => "any".to_owned(),
        }
    }

    /// Lists the keys of an object, or the values of an enumeration.
    fn content(&mut self, value: &Value, indent: &str) {
        let required: Vec<&str> =
            value["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, property) in value["properties"].as_object().into_iter().flatten() {
            let optional = if required.contains(&key.as_str()) { "" } else { ", optional" };
            let description = match description(property) {
                text if text.is_empty() => String::new(),
                text => format!(": {text}"),
            };
            let text = format!("`{key}` ({}{optional}){description}", self.type_of(property));
            self.push(indent, "- ", &text);
            self.content(&property["items"], &format!("{indent}  "));
        }
        for choice in ["oneOf", "anyOf"] {
            for variant in value[choice].as_array().into_iter().flatten() {
                let text = format!("{}: {}", self.type_of(variant), description(variant));
                self.push(indent, "- ", text.trim_end_matches(": "));
                self.content(variant, &format!("{indent}  "));
            }
        }
    }

    fn definition(&mut self, name: &str, value: &Value) {
        self.heading("##", name, &description(value));
        let start = self.text.len();
        self.content(value, "");
        if self.text.len() == start {
            let text = format!("Type: {}.", self.type_of(value));
            self.push("", "", &text);
        }
    }
}

/// Description without the brackets of rustdoc's links.
fn description(value: &Value) -> String {
    value["description"].as_str().unwrap_or_default().replace("[`", "`").replace("`]", "`")
}

fn pages() -> BTreeMap<String, String> {
    let schemas: Vec<(String, Value)> = schema::schemas()
        .into_iter()
        .map(|(name, schema)| {
            let text = schema::text(&schema).expect("JSON");
            (name.to_string(), serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    let none = Map::new();
    let definitions = |schema: &Value| schema["$defs"].as_object().unwrap_or(&none).clone();
    let mut seen: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (_, schema) in &schemas {
        for (name, value) in definitions(schema) {
            seen.entry(name).or_default().push(value);
        }
    }
    seen.retain(|_, values| values.len() > 1 && values.iter().all(|value| *value == values[0]));
    let shared: BTreeSet<String> = seen.keys().cloned().collect();
    let origin =
        "Generated from the JSON Schema files; `RINGMARK_WRITE_SCHEMA=1 cargo test schema::` writes this page.";

    let mut pages = BTreeMap::new();
    for (name, schema) in &schemas {
        let mut page = PageWriter { name, shared: &shared, text: String::new() };
        page.heading("#", name, &description(schema));
        page.push("", "", &format!("Schema: [{name}.json](../schema/{name}.json). {origin}"));
        page.text.push('\n');
        page.content(schema, "");
        for (name, value) in definitions(schema) {
            if !shared.contains(&name) {
                page.definition(&name, &value);
            }
        }
        pages.insert(name.clone(), page.text);
    }
    let mut page = PageWriter { name: SHARED, shared: &shared, text: String::new() };
    page.heading("#", "Types of several files", "");
    page.push("", "", origin);
    for (name, values) in &seen {
        page.definition(name, &values[0]);
    }
    pages.insert(SHARED.to_owned(), page.text);
    pages
}

/// Writes the pages instead if `RINGMARK_WRITE_SCHEMA` is set.
#[test]
fn the_committed_pages_list_the_keys_of_the_schemas() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/keys");
    let pages = pages();
    for (name, text) in &pages {
        let path = folder.join(format!("{name}.md"));
        if std::env::var_os("RINGMARK_WRITE_SCHEMA").is_some() {
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(&path, text).expect("written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == *text, "{} differs: RINGMARK_WRITE_SCHEMA=1 cargo test schema::", path.display());
    }
    for entry in fs::read_dir(&folder).expect("the folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        let is_page = name.strip_suffix(".md").is_some_and(|name| pages.contains_key(name));
        assert!(is_page, "docs/keys/{name} belongs to no schema");
    }
}
