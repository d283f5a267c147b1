//! The pages in docs/keys: every key of every JSON Schema file, with its type and description.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringmark::cli::schema;
use serde_json::{Map, Value};

const WIDTH: usize = 110;

/// Writes one page. `foreign` contains the types that another page describes, with that page.
struct PageWriter<'a> {
    foreign: &'a BTreeMap<String, String>,
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
        let page = self.foreign.get(name).map_or_else(String::new, |page| format!("{page}.md"));
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
/// Returns the description without Rust notation.
fn description(value: &Value) -> String {
    value["description"]
        .as_str()
        .unwrap_or_default()
        .replace("[`", "`")
        .replace("`]", "`")
        .replace("`None`", "no value")
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
    let origin =
        "Generated from the JSON Schema files; `RINGMARK_WRITE_SCHEMA=1 cargo test schema::` writes this page.";

    // A type is described on the page of the first schema that has it.
    let mut homes: BTreeMap<String, (&str, Value)> = BTreeMap::new();
    for (page, schema) in &schemas {
        for (name, value) in definitions(schema) {
            homes.entry(name).or_insert((page, value));
        }
    }
    let mut pages = BTreeMap::new();
    for (page_name, schema) in &schemas {
        let own = definitions(schema);
        let is_foreign = |name: &String| homes[name].0 != page_name && homes[name].1 == own[name];
        let foreign = own.keys().filter(|name| is_foreign(name)).map(|name| (name.clone(), homes[name].0.to_owned()));
        let foreign = foreign.collect();
        let mut page = PageWriter { foreign: &foreign, text: String::new() };
        page.heading("#", page_name, &description(schema));
        page.push("", "", &format!("Schema: [{page_name}.json](../schema/{page_name}.json). {origin}"));
        page.text.push('\n');
        page.content(schema, "");
        for (name, value) in own.iter().filter(|(name, _)| !foreign.contains_key(*name)) {
            page.definition(name, value);
        }
        pages.insert(page_name.clone(), page.text);
    }
    pages
}

/// Writes the pages instead if `RINGMARK_WRITE_SCHEMA` is set.
#[test]
fn committed_pages_list_the_schema_keys() {
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
