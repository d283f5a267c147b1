//! Warnings about the runs in a table, for every benchmark.

use std::collections::{BTreeMap, BTreeSet};

use ringmark_core::benchmark::warning::{self, Warning};

/// Returns the distinct warnings of the counted runs of `what` (run number, warnings), the most severe first. A warning
/// that several runs share has the text of the first run. If there are too many of one kind, only those that the runs
/// list first are included.
pub fn from_runs(what: &str, counted: &[(u32, &[Warning])]) -> Vec<String> {
    let mut seen: BTreeMap<_, Vec<(u32, &Warning)>> = BTreeMap::new();
    // Order in which runs list them.
    let mut order: BTreeMap<_, usize> = BTreeMap::new();
    for (run, warnings) in counted {
        for warning in *warnings {
            let key = (warning.kind, &warning.about);
            let next = order.len();
            order.entry(key).or_insert(next);
            seen.entry(key).or_default().push((*run, warning));
        }
    }
    let text = |seen: &[(u32, &Warning)]| {
        let (run, first) = seen[0];
        let how_often = match (seen.len(), counted.len()) {
            (_, 1) => String::new(),
            (1, _) => format!(", run {run}"),
            (times, of) => format!(", {times} of {of} runs, for example run {run}"),
        };
        format!("{what}{how_often}: {}", first.text)
    };
    let seen: Vec<_> = seen.into_iter().collect();
    let mut texts = Vec::new();
    for of_kind in seen.chunk_by(|one, other| one.0.0 == other.0.0) {
        let mut shown: Vec<_> = of_kind.iter().collect();
        let left_out = warning::left_out(of_kind[0].0.0, of_kind.len());
        if left_out.is_some() {
            shown.sort_by_key(|(key, _)| order[key]);
            shown.truncate(warning::SHOWN);
        }
        texts.extend(shown.into_iter().map(|(_, seen)| text(seen)));
        texts.extend(left_out.map(|left_out| format!("{what}: {left_out}")));
    }
    texts
}

/// Returns a warning for each kind of mixture in a table: different devices, different software.
pub fn from_mixture(device_names: &BTreeSet<String>, software: &BTreeSet<String>) -> Vec<String> {
    let warning = |what: &str, values: &BTreeSet<String>| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        (values.len() > 1).then(|| format!("different {what} in one table: {}", values.join(" / ")))
    };
    [warning("devices", device_names), warning("software", software)].into_iter().flatten().collect()
}
