//! Collectives as a side of a comparison: records of `ringmark bandwidth` and files of nccl-tests. Each file is one run
//! of every message in it. Both programs measure the same quantity, so they can be compared with each other.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use ringmark_core::benchmark::bandwidth::config::Messages;
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MessageResult, Timing};
use ringmark_core::benchmark::optimizer::OptimizerChoice;
use ringmark_core::benchmark::{Record, warning};
use ringmark_core::dimension::{Bytes, DeviceKind, Seconds};
use ringmark_core::number_text::binary_size;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::stats::busbw::{Bus, algbw, busbw};
use ringmark_core::stats::summary::{mean, step_percentiles};
use serde_json::Value;

use crate::read::analyze::comparison::side::{PROGRAM, RunFigures, Side, SideGroup, case_of, word};
use crate::read::analyze::reliability::{self, ReliabilityWarning};
use crate::read::load::environment::{self, EnvironmentText};
use crate::read::load::formats::nccl_tests::{self, Message, NcclTests, VERSIONS};

/// Tolerance for a rate relative to the value computed from its time; larger than any rounding error.
const RATE_TOLERANCE: f64 = 0.02;

/// Names of out-of-place and in-place results.
const PLACES: [&str; 2] = ["out", "in"];

/// Adds a record of `ringmark bandwidth`.
pub fn add_record(side: &mut Side, file: &Path, record: &BandwidthRecord) -> anyhow::Result<()> {
    record.check_valid()?;
    let ranks = record.ranks.len() as u32;
    let hosts: BTreeSet<&str> = record.ranks.iter().map(|rank| rank.host.as_str()).collect();
    let device = record.ranks.first().map(|rank| rank.device).context("a record without ranks")?;
    let mut around = EnvironmentText::new();
    environment::add_environment(&mut around, &record.environment);
    environment::add_ranks(&mut around, &record.ranks);
    environment::add(&mut around, &format!("{} by", record.config.operation.text()), record.backend.keyword());
    environment::add_nccl(&mut around, &record.nccl);
    side.started.extend(environment::moment(record.started));

    // Fills in the defaults that older records do not contain.
    let mut settings = text_of_options(&serde_json::to_value(record.config.on(device))?);
    // The operation and the messages are part of the names, file locations do not matter, and automatic choices are
    // recorded as the values chosen.
    for of_no_interest in ["operation", "reduction", "root", "messages", "json", "min_busbw", "device"] {
        settings.remove(of_no_interest);
    }
    if matches!(record.config.messages, Messages::Sizes { .. }) {
        // Options that affect only gradients.
        for of_gradients in ["strategy", "servers", "key_placement"] {
            settings.remove(of_gradients);
        }
    }
    let optimizer = settings.remove("optimizer").filter(|optimizer| *optimizer != OptimizerChoice::None.to_string());
    settings.insert(PROGRAM.to_owned(), "ringmark bandwidth".to_owned());
    settings.extend(nccl_variables(&record.environment.variables));
    let warnings: Vec<String> = warning::texts(&record.warnings);
    let case = case_of(ranks, hosts.len());
    let reliability_warnings = reliability::record_warnings(case, case, record);
    let gradients = match record.config.messages {
        Messages::Sizes { .. } => String::new(),
        Messages::Gradients(model) => format!(" of {model}"),
    };
    let operands = record.config.operands();
    let mut what = name(&operands.operation.to_string(), &operands.reduction_name(), ranks, hosts.len());
    if operands.root_number() >= 0 {
        what += &root_text(&operands.root.to_string());
    }
    // If an operation cannot be in place, the in-place result differs from that of nccl-tests: see docs/bandwidth.md.
    let places = if operands.operation.goes_in_place() { PLACES } else { ["out", "in, by a copy"] };
    for result in &record.results {
        let group = SideGroup {
            name: what.clone(),
            must: vec![
                ("element type", Some(result.element.clone())),
                ("device", Some(device.to_string())),
                ("optimizer", optimizer.clone()),
            ],
            settings: settings.clone(),
            ..SideGroup::default()
        };
        let message = format!("{}{gradients}", binary_size(result.bytes));
        let seen =
            FileContext { environment: &around, warnings: &warnings, reliability_warnings: &reliability_warnings };
        let figures = |timing: &Option<Timing>| Some(record_figures(result, timing.as_ref()?, record.bus()));
        let figures = [figures(&result.out_of_place), figures(&result.in_place)];
        add_message(side, group, file, (&message, places), figures, seen);
    }
    Ok(())
}

/// Contents of a file apart from its figures.
#[derive(Clone, Copy)]
struct FileContext<'a> {
    environment: &'a EnvironmentText,
    warnings: &'a [String],
    reliability_warnings: &'a [ReliabilityWarning],
}

/// Adds the results of one message, out of place and in place.
fn add_message(
    side: &mut Side,
    group: SideGroup,
    file: &Path,
    (message, places): (&str, [&str; 2]),
    figures: [Option<anyhow::Result<RunFigures>>; 2],
    seen: FileContext,
) {
    let group = side.group(group);
    let mut left_out = Vec::new();
    for (place, figures) in places.into_iter().zip(figures) {
        let message = format!("{message} {place}");
        match figures {
            None => {}
            Some(Ok(figures)) => {
                let case = group.case(&message);
                case.environment.clone_from(seen.environment);
                case.warnings.extend_from_slice(seen.warnings);
                case.reliability_warnings.extend_from_slice(seen.reliability_warnings);
                case.runs.push(figures);
            }
            Some(Err(why)) => left_out.push(format!("{}: {message}: {why}", file.display())),
        }
    }
    side.left_out.extend(left_out);
}

fn record_figures(result: &MessageResult, timing: &Timing, bus: Bus) -> anyhow::Result<RunFigures> {
    check_wrong(timing.wrong)?;
    let time = timing.mean().unwrap_or_default();
    // A single rank sends nothing and has no bus bandwidth.
    let rate = if bus.ranks > 1 { busbw(result.bytes, time, bus) } else { algbw(result.bytes, time) };
    RunFigures::new(rate.0, time, step_percentiles(timing.pooled()))
        .with_context(|| format!("invalid time (mean: {time})"))
}

/// Adds a file of nccl-tests.
pub fn add_nccl_tests(side: &mut Side, file: &Path, read: &NcclTests) -> anyhow::Result<()> {
    let mut notes = Vec::new();
    if !VERSIONS.contains(&read.version) {
        let (version, last) = (read.version, VERSIONS.end());
        notes.push(format!("nccl-tests format {version}; this ringmark reads only the fields of format {last}"));
    }
    // Messages are rounded down to whole elements, so a sweep that starts at 1 byte has messages of size 0.
    let measured: Vec<&Message> = read.results.iter().filter(|message| message.size > 0).collect();
    if measured.len() < read.results.len() {
        notes.push("messages of 0 bytes are not compared: they have no bandwidth".to_owned());
    }
    let Some(config) = read.config.as_ref().filter(|_| !measured.is_empty()) else {
        let message = read.errors.iter().find(|error| !error.is_empty());
        bail!("no results: the test failed{}", message.map(|error| format!(": {error}")).unwrap_or_default());
    };
    let mut around = EnvironmentText::new();
    for device in &config.devices {
        environment::add(&mut around, "host", &device.hostname);
        environment::add(&mut around, "device name", &device.device_info);
    }
    for (name, value) in read.variables() {
        environment::add(&mut around, name, value);
    }
    side.started.extend(read.start_time.clone());

    let mut settings = text_of_options(&Value::Object(config.options.clone().into_iter().collect()));
    for seen_in_the_messages in ["minimum_bytes", "maximum_bytes", "step_bytes", "step_factor"] {
        settings.remove(seen_in_the_messages);
    }
    settings.insert(PROGRAM.to_owned(), "nccl-tests".to_owned());
    settings.insert("NCCL".to_owned(), read.nccl());
    settings.extend(nccl_variables(&read.variables()));
    for cycles in same_message(measured) {
        let message = cycles[0];
        let mut what = name(read.collective(), &message.redop, config.ranks(), config.hosts().len());
        if config.groups() > 1 {
            what += &format!(", {} groups at once", config.groups());
        }
        if message.root.trim() != "-1" {
            what += &root_text(message.root.trim());
        }
        let group = SideGroup {
            name: what,
            must: vec![
                ("element type", Some(message.element.clone())),
                ("device", Some(DeviceKind::Cuda.to_string())),
                ("optimizer", None),
            ],
            settings: settings.clone(),
            ..SideGroup::default()
        };
        let figures = |timing: PartSelector<nccl_tests::Timing>, iterations: PartSelector<nccl_tests::Iterations>| {
            let timings: Vec<&nccl_tests::Timing> = cycles.iter().filter_map(|cycle| timing(cycle)).collect();
            let iterations = cycles.iter().filter_map(|cycle| iterations(cycle));
            let counted = read.counted(cycles[0].size, config.ranks());
            (!timings.is_empty()).then(|| nccl_tests_figures(&timings, iterations, counted))
        };
        let figures = [
            figures(|message| message.out_of_place.as_ref(), |message| message.out_of_place_per_iter.as_ref()),
            figures(|message| message.in_place.as_ref(), |message| message.in_place_per_iter.as_ref()),
        ];
        let seen = FileContext { environment: &around, warnings: &notes, reliability_warnings: &[] };
        add_message(side, group, file, (&binary_size(Bytes(message.size)), PLACES), figures, seen);
    }
    Ok(())
}

type PartSelector<Part> = fn(&Message) -> Option<&Part>;

/// Converts the cycles (`-N`) of one process to one run with their mean.
fn nccl_tests_figures<'a>(
    cycles: &[&nccl_tests::Timing],
    iterations: impl Iterator<Item = &'a nccl_tests::Iterations>,
    counted: Option<[f64; 2]>,
) -> anyhow::Result<RunFigures> {
    let all = |figure: fn(&nccl_tests::Timing) -> Option<f64>| {
        cycles.iter().map(|timing| figure(timing)).collect::<Option<Vec<f64>>>().and_then(|figures| mean(&figures))
    };
    cycles.iter().filter_map(|timing| timing.nwrong).try_for_each(|wrong| match wrong {
        number if number.is_finite() && number >= 0.0 => check_wrong(Some(number.ceil() as u64)),
        none => bail!("invalid number of wrong elements: {none}: correctness is unknown"),
    })?;
    let time = all(|timing| timing.time).context("no time (-C records the CPU time instead: omit -C)")?;
    let written = all(|timing| timing.bus_bw).context("no bus bandwidth")?;
    cycles.iter().try_for_each(|timing| counted.map_or(Ok(()), |counted| check_rates(timing, counted)))?;
    // Computed from the time, as is the verdict: the rate in the file is rounded to kB/s, and a single rank has no bus
    // bandwidth.
    let rate = match counted {
        Some([_, on_the_bus]) if on_the_bus > 0.0 => on_the_bus / time * 1e-3,
        Some([size, _]) => size / time * 1e-3,
        None => written,
    };
    let times: Vec<f64> = iterations
        .flat_map(|iterations| iterations.times_us.iter().skip(iterations.skipped_iterations))
        .map(|microseconds| microseconds * 1e-6)
        .collect();
    RunFigures::new(rate, Seconds(time * 1e-6), step_percentiles(times))
        .with_context(|| format!("invalid time (mean: {time} us)"))
}

/// Checks that the time and the rates in a file agree: they are three forms of one measurement.
fn check_rates(timing: &nccl_tests::Timing, counted: [f64; 2]) -> anyhow::Result<()> {
    let time = timing.time.unwrap_or(f64::NAN);
    for ((name, rate), bytes) in [("alg_bw", timing.alg_bw), ("bus_bw", timing.bus_bw)].into_iter().zip(counted) {
        let expected = bytes / time * 1e-3;
        // Rates have six decimals in the file. An invalid time is reported elsewhere; an invalid rate is a mismatch.
        let differs =
            |rate: &f64| time > 0.0 && (rate.is_nan() || (rate - expected).abs() > RATE_TOLERANCE * expected + 1e-6);
        if let Some(rate) = rate.filter(differs) {
            bail!("{name} is {rate} GB/s, but its time of {time} us gives {expected:.6}: one of them is wrong");
        }
    }
    Ok(())
}

/// Groups results by message, in order of first appearance.
fn same_message(results: Vec<&Message>) -> Vec<Vec<&Message>> {
    let mut places = HashMap::new();
    let mut messages: Vec<Vec<&Message>> = Vec::new();
    for result in results {
        let place =
            *places.entry((result.size, &result.element, &result.redop, &result.root)).or_insert(messages.len());
        match messages.get_mut(place) {
            Some(message) => message.push(result),
            None => messages.push(vec![result]),
        }
    }
    messages
}

fn check_wrong(wrong: Option<u64>) -> anyhow::Result<()> {
    let wrong = wrong.unwrap_or_default();
    ensure!(wrong == 0, "{wrong} wrong elements: speed is not reported for incorrect sums");
    Ok(())
}

fn root_text(root: &str) -> String {
    format!(", root {root}")
}

fn name(collective: &str, operation: &str, ranks: u32, hosts: usize) -> String {
    let operation = if operation == "none" { String::new() } else { format!(" {operation}") };
    let hosts = if hosts == 1 { "one host".to_owned() } else { format!("{hosts} hosts") };
    format!("{collective}{operation}, {ranks} ranks on {hosts}")
}

/// Returns the variables that change the behavior of NCCL, which are conditions like options.
fn nccl_variables<Text: AsRef<str> + Ord>(variables: &BTreeMap<Text, Text>) -> Vec<(String, String)> {
    let of_nccl = variables.iter().filter(|(name, _)| name.as_ref().starts_with("NCCL_"));
    of_nccl.map(|(name, value)| (name.as_ref().to_owned(), value.as_ref().to_owned())).collect()
}

fn text_of_options(options: &Value) -> BTreeMap<String, String> {
    let options = options.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    options.map(|(name, value)| (name.clone(), word(value))).collect()
}
