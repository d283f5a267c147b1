//! Options of runs by their names in records.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Axes of a table by batch size, as option names in records.
pub const AXES: [&str; 3] = ["model", "dtype", "batch_size"];

/// Returns the `settings` that differ in any of the `others`, each as `name=value`.
pub fn differing(settings: &BTreeMap<String, Value>, others: &[&BTreeMap<String, Value>]) -> Vec<String> {
    let differs = |(name, value): &(&String, &Value)| others.iter().any(|other| other.get(*name) != Some(value));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    settings.iter().filter(differs).map(|(name, value)| format!("{name}={}", text(value))).collect()
}

/// Returns a benchmark's configuration by the names in its record, without null values. Also without the seed, which
/// may differ between runs, and without the device, because the kind of device distinguishes runs.
pub fn fields(config: &impl Serialize) -> BTreeMap<String, Value> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(config) else {
        return BTreeMap::new();
    };
    fields.retain(|field, value| !value.is_null() && field != "seed" && field != "device");
    fields.into_iter().collect()
}
