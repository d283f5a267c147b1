//! Validation with the JSON Schema files in docs/schema.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schema")
}

/// Fails with the path and the reason if `document` is invalid.
pub fn check(name: &str, document: &Value, what: &str) {
    let schema = fs::read_to_string(folder().join(format!("{name}.json"))).expect("a schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a sound schema");
    if let Err(error) = validator.validate(document) {
        panic!("{what} is not as {name}.json says: {}: {error}", error.instance_path());
    }
}
