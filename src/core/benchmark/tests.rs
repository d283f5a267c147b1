//! Check that each option of a benchmark survives the way to the worker.

use std::collections::BTreeSet;
use std::fmt::Debug;

use clap::{Args, Command, FromArgMatches};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::options::clap_binding::WorkerOptions;
use crate::options::option_table::{Options, arguments, set, settings};

/// Every option without keywords takes one of them that is not its default.
const VALUES: [&str; 16] = [
    "2",
    "3",
    "0.25",
    "yes",
    "a b.json",
    "3-5",
    "2bit",
    "pixels=7",
    "a=3,b=0.5",
    "fail:2:1",
    "30,60",
    "0",
    "[\"a\"]",
    "shards",
    "direct",
    "beside",
];

fn command<C: Options>() -> Command {
    WorkerOptions::<C>::augment_args(Command::new("worker").no_binary_name(true))
}

/// Options of a worker.
pub(super) fn typed<C: Options>(arguments: impl IntoIterator<Item = String>) -> Result<WorkerOptions<C>, clap::Error> {
    WorkerOptions::from_arg_matches(&command::<C>().try_get_matches_from(arguments)?)
}

/// Configuration of a worker by arguments with blanks between them.
pub(super) fn parse<C: Options>(arguments: &str) -> C {
    let typed = typed(arguments.split(' ').map(str::to_owned)).expect("valid arguments");
    typed.apply(C::default()).expect("valid values")
}

/// The same configuration, started with as a worker and read by it.
fn on_the_worker<C: Options>(config: &C) -> anyhow::Result<C> {
    typed(arguments(config))?.apply(C::default())
}

/// The path of every field in a schema, and in the structs of which its fields are.
fn fields(schema: &Value, root: &Value, path: &str) -> Vec<String> {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let schema = reference.map_or(schema, |name| root.pointer(&name[1..]).expect("a definition"));
    match schema.get("properties").and_then(Value::as_object) {
        Some(inner) => inner.iter().flat_map(|(name, of)| fields(of, root, &format!("{path}/{name}"))).collect(),
        None => vec![path.to_owned()],
    }
}

/// Changes every option, alone and together with those before it. `without` are the fields that no option changes.
pub(super) fn check_options<C: Options + Serialize + JsonSchema + PartialEq + Debug>(without: &[&str]) {
    let default = C::default();
    assert_eq!(arguments(&default), Vec::<String>::new());
    assert_eq!(on_the_worker(&default).expect("no arguments"), default);
    let schema = schemars::schema_for!(C).to_value();
    let mut unchanged: BTreeSet<String> = fields(&schema, &schema, "").into_iter().collect();
    let json = |config: &C| serde_json::to_value(config).expect("JSON");
    let value = |config: &C, name: &str| settings(config).into_iter().find(|(other, _)| *other == name);
    let mut together = default.clone();
    for argument in command::<C>().get_arguments().filter(|argument| !argument.is_hide_set()) {
        let name = argument.get_id().as_str();
        let keywords = argument.get_possible_values().into_iter().map(|value| value.get_name().to_owned());
        let change = |text: String| {
            let mut config = default.clone();
            let is_changed = set(&mut config, name, &text).is_ok() && value(&config, name) != value(&default, name);
            is_changed.then_some((config, text))
        };
        let Some((config, text)) = keywords.chain(VALUES.map(str::to_owned)).find_map(change) else {
            assert!(value(&default, name).is_some_and(|(_, text)| text.is_empty()), "--{name} takes no value");
            continue;
        };
        unchanged.retain(|path| json(&config).pointer(path) == json(&default).pointer(path));
        let mut more = together.clone();
        set(&mut more, name, &text).expect("it was set alone");
        for config in [&config, &more] {
            match on_the_worker(config) {
                Ok(read) => assert_eq!(read, *config, "--{name} {text}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("cannot be used with") || error.contains("required"), "{error}");
                }
            }
        }
        if on_the_worker(&more).is_ok() {
            together = more;
        }
    }
    assert_eq!(unchanged.into_iter().collect::<Vec<_>>(), without);
}
