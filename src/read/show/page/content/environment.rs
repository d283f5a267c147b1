//! Environment of the results: devices, software, options, variables and differences between hosts, as recorded.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ringmark_core::dimension::{BackendName, Seconds, WorkUnit};
use ringmark_core::host::HostUse;
use ringmark_core::number_text::gigabytes;
use ringmark_core::options::keyword_enum::KeywordEnum;
use serde_json::Value;

use crate::output::table::{Column, Row, Table};
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::score::figures::{ScoreCase, ScoreGroup};
use crate::read::analyze::training::grouping::settings;
use crate::read::load::environment;
use crate::read::show::numbers::{count, list, percent_number};
use crate::read::show::page::document::{Block, Section, Subject};

/// Names of facts, each with all its values in one result.
type NamedValues = Vec<(String, BTreeSet<String>)>;

const MEASURED: &str = "measured";

/// Maximum number of hosts in a complete table; a longer one is cut to keep the page small.
const MOST_HOSTS: usize = 128;

/// Number of hosts in a table that is cut.
const HOSTS_SHOWN: usize = 64;

/// Maximum number of hosts whose differences are described in the note.
const SENTENCES: usize = 16;

/// Returns the environment of each result, or `None` if nothing is recorded.
pub fn section(results: &[ResultFolder]) -> Option<Section> {
    let machines: Vec<NamedValues> = results.iter().map(machine).collect();
    let options: Vec<NamedValues> = results.iter().map(options).collect();
    let variables: Vec<NamedValues> = results.iter().map(variables).collect();
    let mut blocks = Vec::new();
    for (title, facts) in [("Machine and libraries", machines), ("Options", options), ("Variables", variables)] {
        blocks.extend(comparison(title, results, &facts));
    }
    for result in results {
        let title = |what: &str| if results.len() > 1 { format!("{what} of {}", result.name) } else { what.to_owned() };
        blocks.extend(hosts(&title("Hosts"), result));
        blocks.extend(topology(&title("Topology, by rank 0"), result));
    }
    let has_rows = !blocks.is_empty();
    has_rows.then(|| Section {
        subject: Subject::Environment,
        title: "Environment".to_owned(),
        note: String::new(),
        blocks,
    })
}

fn facts(names: &[&str]) -> NamedValues {
    names.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect()
}

fn add(facts: &mut NamedValues, name: &str, value: impl Into<String>) {
    let value = value.into();
    if value.is_empty() {
        return;
    }
    match facts.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) => drop(values.insert(value)),
        None => facts.push((name.to_owned(), BTreeSet::from([value]))),
    }
}

fn machine(result: &ResultFolder) -> NamedValues {
    let mut found = facts(&[
        MEASURED,
        "devices",
        "processor",
        "instruction sets",
        "cores",
        "memory",
        "system",
        "all-reduce backend",
        "ringmark-worker",
        "libtorch",
        "MPI",
        "NCCL",
        environment::NCCL_CHOSE,
        "NVIDIA driver",
        "CUDA unavailable",
    ]);
    let ranks = result.heads().flat_map(|head| head.ranks);
    ranks.for_each(|rank| add(&mut found, "devices", &rank.device_name));
    let of_records = || result.records.values().flat_map(|records| records.backends());
    let backends = result.trained().map(|recorded| recorded.facts.backend);
    backends
        .chain(of_records().map(|(backend, _)| backend))
        .filter(|name| *name != BackendName::Solo)
        .for_each(|name| add(&mut found, "all-reduce backend", name.keyword()));
    let nccl = result.trained().map(|recorded| recorded.facts.nccl.as_slice());
    nccl.chain(of_records().map(|(_, nccl)| nccl))
        .flat_map(environment::nccl_choices)
        .for_each(|choice| add(&mut found, environment::NCCL_CHOSE, choice));
    for environment in result.heads().map(|head| head.environment) {
        let optional = |value: &Option<String>| value.clone().unwrap_or_default();
        let none_of = |number: u64, text: String| if number == 0 { String::new() } else { text };
        add(&mut found, "processor", &environment.processor);
        add(&mut found, "instruction sets", environment.instruction_sets.join(", "));
        add(&mut found, "cores", none_of(u64::from(environment.cores), environment.cores.to_string()));
        add(&mut found, "memory", none_of(environment.memory.0, gigabytes(environment.memory)));
        add(&mut found, "system", &environment.system);
        add(&mut found, "ringmark-worker", &environment.ringmark_version);
        add(&mut found, "libtorch", &environment.libtorch_version);
        add(&mut found, "MPI", &environment.mpi_version);
        add(&mut found, "NCCL", optional(&environment.nccl_version));
        add(&mut found, "NVIDIA driver", optional(&environment.driver_version));
        add(&mut found, "CUDA unavailable", optional(&environment.cuda_missing));
    }
    add(&mut found, MEASURED, period(result));
    found.retain(|(_, values)| !values.is_empty());
    found
}

/// Formats the start of the first run and that of the last one.
fn period(result: &ResultFolder) -> String {
    // Truncated to the minute: `2026-11-21 19:36`.
    let starts =
        result.heads().filter_map(|head| environment::moment(head.started)).map(|start| start[..16].to_owned());
    let starts: BTreeSet<String> = starts.collect();
    match (starts.first(), starts.last()) {
        (Some(first), Some(last)) if first != last => format!("{first} to {last} UTC"),
        (Some(first), _) => format!("{first} UTC"),
        _ => String::new(),
    }
}

/// Options in every record that have no effect on language models.
const OPTIONS_OF_IMAGES: [&str; 3] = ["layout", "freeze_batch_norm", "image_size"];

fn options(result: &ResultFolder) -> NamedValues {
    let mut found = NamedValues::new();
    let trained = result.training().iter().map(|group| {
        let mut settings = settings(&group.conditions);
        let is_of_images = |name: &str| group.unit() == WorkUnit::Token && OPTIONS_OF_IMAGES.contains(&name);
        settings.retain(|name, _| !is_of_images(name));
        settings
    });
    let mut options: Vec<_> = trained.collect();
    // The axes of the runs, and the options that each table shares.
    options.extend(result.scoring().iter().flat_map(|group| &group.cases).map(|point| point.key().axes()));
    options.extend(result.scoring().iter().map(ScoreGroup::settings));
    for (name, value) in options.into_iter().flatten() {
        add_option(&mut found, &name.replace('_', " "), &value);
    }
    found
}

/// Adds an option; adds each field of an object as a separate option.
fn add_option(found: &mut NamedValues, name: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(field, value)| add_option(found, &format!("{name}, {}", field.replace('_', " ")), value));
        }
        Value::String(text) => add(found, name, text.as_str()),
        value => add(found, name, value.to_string()),
    }
}

fn variables(result: &ResultFolder) -> NamedValues {
    let mut found = NamedValues::new();
    let all = result.heads().flat_map(|head| &head.environment.variables);
    all.for_each(|(name, value)| add(&mut found, name, value));
    found.sort();
    found
}

/// Returns a row for each fact and a column for each result that has any. Rows with different values are marked.
fn comparison(title: &str, results: &[ResultFolder], facts: &[NamedValues]) -> Option<Block> {
    let shown: Vec<(&ResultFolder, &NamedValues)> =
        results.iter().zip(facts).filter(|(_, facts)| !facts.is_empty()).collect();
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in shown.iter().flat_map(|(_, facts)| *facts) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let values = |facts: &NamedValues, name: &String| -> String {
        let found = facts.iter().find(|(known, _)| known == name).map(|(_, values)| values);
        found.map_or("-".to_owned(), |values| in_order(values).join(" / "))
    };
    let rows = names.iter().map(|name| {
        let values: Vec<String> = shown.iter().map(|(_, facts)| values(facts, name)).collect();
        // Measurement times always differ.
        let is_marked = *name != MEASURED && values.iter().any(|value| *value != values[0]);
        Row { cells: [vec![(*name).clone()], values].concat(), is_marked, ..Row::default() }
    });
    let rows: Vec<Row> = rows.collect();
    let different: Vec<String> = rows.iter().filter(|row| row.is_marked).map(|row| row.cells[0].clone()).collect();
    let note = match (shown.len(), different.is_empty()) {
        (1, _) => String::new(),
        (_, true) => "The same in all results.".to_owned(),
        (_, false) => format!("These items differ between the results: {}.", list(&different)),
    };
    let several = results.len() > 1;
    let heads = shown.iter().map(|(result, _)| if several { result.name.clone() } else { "value".to_owned() });
    let columns = std::iter::once("item".to_owned()).chain(heads).map(Column::text).collect();
    Some(Block { table: Some(Table { columns, rows, bars: None }), ..Block::new(title, note) })
}

/// Sorts numbers by value if all values are numbers, and text alphabetically.
fn in_order(values: &BTreeSet<String>) -> Vec<String> {
    let mut values: Vec<String> = values.iter().cloned().collect();
    // NaN compares as equal, and a stable sort leaves it in place.
    let number = |text: &String| text.parse::<f64>().ok();
    if values.iter().all(|value| number(value).is_some()) {
        values.sort_by(|one, other| number(one).partial_cmp(&number(other)).unwrap_or(Ordering::Equal));
    }
    values
}

/// Records of one host.
#[derive(Default)]
struct HostRow<'a> {
    ranks: BTreeSet<u32>,
    devices: BTreeSet<&'a str>,
    threads: BTreeSet<u32>,
    uses: Vec<&'a HostUse>,
}

/// Returns a row for each host of a result; `None` if no record names one.
fn hosts(title: &str, result: &ResultFolder) -> Option<Block> {
    let mut hosts: BTreeMap<&str, HostRow> = BTreeMap::new();
    let measured = || result.training().iter().flat_map(|group| &group.cases).flat_map(|case| case.counted());
    for place in result.heads().flat_map(|head| head.ranks) {
        let host = hosts.entry(&place.host).or_default();
        host.ranks.insert(place.local_rank);
        host.devices.insert(&place.device_name);
        host.threads.insert(place.threads);
    }
    let uses = measured().flat_map(|run| &run.host_use);
    let points = result.scoring().iter().flat_map(|group| &group.cases);
    let uses = uses.chain(points.flat_map(ScoreCase::counted).flat_map(|run| &run.host_use));
    let uses = uses.chain(result.records.values().flat_map(|records| records.host_use()));
    for host_use in uses {
        hosts.entry(&host_use.host).or_default().uses.push(host_use);
    }
    if hosts.is_empty() {
        return None;
    }
    let rows: Vec<Vec<String>> = hosts.iter().map(|(name, host)| cells(name, host)).collect();
    // Name, clock, load and steal time always differ and are not compared.
    let facts = 1..5;
    let usual: Vec<&str> =
        (0..rows[0].len()).map(|column| most_frequent(rows.iter().map(|row| row[column].as_str()))).collect();
    let differs = |row: &[String]| facts.clone().filter(|column| row[*column] != usual[*column]).collect::<Vec<_>>();
    let columns = vec![
        Column::text("host"),
        Column::numbers("ranks", "at most"),
        Column::text("devices"),
        Column::numbers("threads", "per rank"),
        Column::numbers("cores", ""),
        Column::numbers("clock", "MHz").minor(),
        Column::numbers("busy", "% of cores"),
        Column::numbers("steal", "% of cores").minor(),
    ];
    let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let different: Vec<&Vec<String>> = rows.iter().filter(|row| !differs(row).is_empty()).collect();
    let sentences = different.iter().take(SENTENCES).map(|row| {
        let what = differs(row)
            .into_iter()
            .map(|column| format!("{} {} (most hosts: {})", names[column], row[column], usual[column]));
        let what: Vec<String> = what.collect();
        format!("{}: {}", row[0], list(&what))
    });
    let more = different.len().saturating_sub(SENTENCES);
    let sentences = sentences.chain((more > 0).then(|| format!("and {} more", count(more, "host"))));
    let sentences: Vec<String> = sentences.collect();
    let mut note = match (rows.len(), sentences.is_empty()) {
        (1, _) => String::new(),
        (_, true) => format!("All {} hosts have the same ranks, devices, threads and cores.", rows.len()),
        (_, false) => format!("Hosts differ. {}.", sentences.join("; ")),
    };
    // Marked hosts come first if not all are shown.
    let mut shown: Vec<&Vec<String>> = rows.iter().collect();
    if rows.len() > MOST_HOSTS {
        shown.sort_by_key(|row| differs(row).is_empty());
        shown.truncate(HOSTS_SHOWN);
        note += &format!(
            " {HOSTS_SHOWN} of {} hosts are shown, those that differ first; the records contain all.",
            rows.len()
        );
    }
    let rows = shown.into_iter().map(|cells| Row {
        is_marked: !differs(cells).is_empty(),
        cells: cells.clone(),
        ..Row::default()
    });
    let rows = rows.collect();
    Some(Block { table: Some(Table { columns, rows, bars: None }), ..Block::new(title, note) })
}

fn cells(name: &str, host: &HostRow) -> Vec<String> {
    let joined = |values: Vec<String>| if values.is_empty() { "-".to_owned() } else { values.join(" / ") };
    let elapsed: f64 = host.uses.iter().map(|host| host.elapsed.0 * f64::from(host.cores)).sum();
    let share = |part: fn(&HostUse) -> Seconds| {
        let time: f64 = host.uses.iter().map(|host| part(host).0).sum();
        if elapsed > 0.0 { percent_number((time / elapsed).min(1.0)) } else { "-".to_owned() }
    };
    let cores: BTreeSet<u32> = host.uses.iter().map(|host| host.cores).collect();
    let clocks = host.uses.iter().filter_map(|host| host.clock_mhz).flatten();
    let clocks = crate::read::show::page::charts::scale::extent(clocks);
    vec![
        name.to_owned(),
        host.ranks.len().to_string(),
        joined(host.devices.iter().map(ToString::to_string).collect()),
        joined(host.threads.iter().map(ToString::to_string).collect()),
        joined(cores.iter().map(ToString::to_string).collect()),
        clocks.map_or("-".to_owned(), |[low, high]| {
            if high - low < 1.0 { format!("{low:.0}") } else { format!("{low:.0} to {high:.0}") }
        }),
        share(|host| host.busy),
        share(|host| host.steal),
    ]
}

/// Returns the most frequent value; the first one if several are equally frequent.
fn most_frequent<'a>(values: impl Iterator<Item = &'a str>) -> &'a str {
    let mut counts: HashMap<&str, (usize, Reverse<usize>)> = HashMap::new();
    for (index, value) in values.enumerate() {
        counts.entry(value).or_insert((0, Reverse(index))).0 += 1;
    }
    counts.into_iter().max_by_key(|(_, order)| *order).map_or("", |(value, _)| value)
}

/// Returns the topology as `nvidia-smi topo -m` or hwloc prints it, from the first run that recorded one.
fn topology(title: &str, result: &ResultFolder) -> Option<Block> {
    let lines = result.heads().map(|head| &head.environment.topology).find(|lines| !lines.is_empty())?;
    Some(Block { lines: lines.clone(), ..Block::new(title, "") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_sorted_by_value() {
        let ordered = |values: &[&str]| in_order(&values.iter().map(ToString::to_string).collect());
        assert_eq!(ordered(&["16", "2", "1"]), ["1", "2", "16"]);
        assert_eq!(ordered(&["fp32", "bf16", "2", "16"]), ["16", "2", "bf16", "fp32"]);
    }

    #[test]
    fn most_frequent_value_is_that_of_the_majority() {
        assert_eq!(most_frequent(["a", "b", "b"].into_iter()), "b");
        assert_eq!(most_frequent(["a", "b"].into_iter()), "a");
        assert_eq!(most_frequent([].into_iter()), "");
    }
}
