//! Options of runs by their names in records.

use std::collections::BTreeMap;

use ringmark_core::options::option_table::{self, Options};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Axes of a table by batch size, as option names in records.
pub const AXES: [&str; 3] = ["model", "dtype", "batch_size"];

/// Returns the `settings` that differ in any of the `others`, each as `name=value`.
pub fn differing(settings: &BTreeMap<String, Value>, others: &[&BTreeMap<String, Value>]) -> Vec<String> {
    let differs = |(name, value): &(&String, &Value)| others.iter().any(|other| other.get(*name) != Some(value));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    settings.iter().filter(differs).map(|(name, value)| format!("{name}={}", text(value))).collect()
}

/// Returns the value of an option that a record of `C` omits; `None` for an option without a value, or another name.
pub fn omitted<C: Options + Serialize + DeserializeOwned>(name: &str) -> Option<String> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(C::default()) else { return None };
    fields.remove(name);
    let config: C = serde_json::from_value(Value::Object(fields)).ok()?;
    let name = name.replace('_', "-");
    let value = option_table::settings(&config).into_iter().find(|(option, _)| *option == name)?.1;
    (!value.is_empty()).then_some(value)
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
