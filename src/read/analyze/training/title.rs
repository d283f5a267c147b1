//! Titles of groups of runs: measurement, devices and options in a few lines.

use std::collections::BTreeSet;

use ringmark_core::benchmark::exchange::{BackendChoice, Switch};
use ringmark_core::benchmark::measured_and_warmup;
use ringmark_core::benchmark::strategy::StrategyConfig;
use ringmark_core::benchmark::train::{Recompute, TrainConfig};
use ringmark_core::dimension::{Case, DeviceChoice, DeviceKind};
use ringmark_core::file::run_name::Point;
use ringmark_core::line::other_tool::tool::Tool;
use ringmark_core::number_text::count;

use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};
use crate::read::load::environment;

/// Returns the title lines of a group: measurement, devices, options, length.
pub fn title(group: &TrainingGroup) -> Vec<String> {
    let conditions = &group.conditions;
    let quick = if group.is_quick() { " - QUICK PROFILE" } else { "" };
    let (dtype, batch) = (conditions.point.dtype, conditions.point.batch);
    let counts = |values: &BTreeSet<usize>| values.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
    // Without records, logs may have different lengths; their warm-up is the same.
    let first = group.warmup.first().copied().unwrap_or_default();
    let measured: BTreeSet<usize> = group.timed.iter().map(|timed| timed - first).collect();
    let (timed, warmup) = (counts(&group.timed), counts(&group.warmup));
    let length = match conditions.tool {
        _ if group.timed.is_empty() => match failure(group) {
            Some(reason) => format!("no run counts: {reason}"),
            None => "no run counts".to_owned(),
        },
        None => format!("{} iterations", measured_and_warmup(counts(&measured), warmup)),
        Some(_) => format!("windows of iterations: {timed}, omitted: {warmup}"),
    };
    let parts = match conditions.recorded.as_ref().map(|recorded| &recorded.config) {
        Some(TrainConfig { micro_batch: Some(samples), .. }) => format!(" in parts of {samples}"),
        Some(TrainConfig { accumulate: parts @ 2.., .. }) => format!(" in {parts} parts"),
        _ => String::new(),
    };
    let strategy = conditions.point.strategy;
    let strategy = if strategy.is_all_reduce() { String::new() } else { format!(", strategy {strategy}") };
    let scaling = if group.is_strong() && group.cases.len() > 1 { ", strong scaling" } else { "" };
    let what = format!(
        "{}, {dtype}, {}{scaling}{parts}{strategy}{quick}",
        conditions.point.model.facts().title,
        batch.per_process(process(group))
    );
    match &conditions.recorded {
        None => {
            let why = match failure(group) {
                Some(_) => "no run wrote a record",
                None => "no records next to the logs",
            };
            let unknown = match group.requested_device {
                Some(device) => format!("device {device} (from the manifest): {why}"),
                None => format!("device unknown: {why}"),
            };
            [what, unknown].into_iter().chain(conditions.tool.map(tool_title)).chain([length]).collect()
        }
        Some(recorded) => {
            let config = &recorded.config;
            let backend = match config.exchange.backend {
                BackendChoice::Auto if config.exchange.hierarchical == Some(Switch::Off) => {
                    ", hierarchical off".to_owned()
                }
                BackendChoice::Auto => String::new(),
                chosen => format!(", backend {chosen}"),
            };
            let clipped =
                config.clip_norm.map(|norm| format!(", gradients clipped to norm {norm}")).unwrap_or_default();
            let recomputed = match config.recompute {
                Recompute::None => String::new(),
                chosen => format!(", recompute {chosen}"),
            };
            let options = format!(
                "{}overlap {}, {} on the wire{backend}{clipped}{recomputed}",
                config
                    .model
                    .image_size(config.image_size)
                    .map(|size| format!("{size} pixels, {}, ", config.layout))
                    .unwrap_or_default(),
                config.overlap,
                config.wire_text()
            );
            let work_load = config.work_load.as_ref().map(|work_load| format!("work load {work_load}"));
            let device = format!("{}: {}", recorded.device, devices(group));
            [what, device, options]
                .into_iter()
                .chain(servers(config.strategy))
                .chain(work_load)
                .chain([length])
                .collect()
        }
    }
}

/// Returns the number of servers of a strategy that has them.
fn servers(StrategyConfig { strategy, servers, .. }: StrategyConfig) -> Option<String> {
    match servers {
        None => strategy.has_servers().then(|| "one server per host".to_owned()),
        Some(servers) => Some(count(servers, "server")),
    }
}

/// Returns the reason why the first run of a group without counted runs is excluded.
fn failure(group: &TrainingGroup) -> Option<&str> {
    let runs = || group.with_baselines().flat_map(|case| &case.runs);
    let first = runs().find_map(|run| run.outcome.as_ref().err())?;
    runs().all(|run| run.outcome.is_err()).then_some(first.what.as_str())
}

/// Names the groups by the conditions that differ, such as `dist_sync` or `ResNet18-v1, fp32`, or by their labels if
/// these names are not unique.
pub fn distinctions(groups: &[&TrainingGroup]) -> Vec<String> {
    let values = |group: &&TrainingGroup| {
        let Point { model, batch, dtype, strategy } = group.conditions.point;
        [model.facts().title.to_owned(), dtype.to_string(), batch.to_string(), strategy.to_string()]
    };
    let values: Vec<[String; 4]> = groups.iter().map(values).collect();
    let differs = |index: usize| values.iter().any(|other| other[index] != values[0][index]);
    let name = |values: &[String; 4]| {
        let differing = values.iter().enumerate().filter(|(index, _)| differs(*index));
        differing.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(", ")
    };
    let names: Vec<String> = values.iter().map(name).collect();
    match names.iter().collect::<BTreeSet<_>>().len() == names.len() {
        true => names,
        false => groups.iter().map(|group| group.label.clone()).collect(),
    }
}

/// Returns a sentence that names the base of the figures if it is not a case of the table.
pub fn common_base(group: &TrainingGroup) -> Option<String> {
    let base = group.base_text().filter(|_| group.common_base.is_some())?;
    Some(format!("speedup, efficiency and loss are relative to {base}, which all strategies share"))
}

/// Returns the line about logs of another tool.
pub fn tool_title(tool: Tool) -> String {
    format!("logs of {}: no times of single iterations", tool.title())
}

/// Returns the word for a rank in texts: `rank` on CPUs, `GPU` otherwise.
pub fn process(group: &TrainingGroup) -> &'static str {
    match &group.conditions.recorded {
        Some(recorded) if recorded.device == DeviceKind::Cpu => "rank",
        None if group.requested_device.is_some_and(|device| device != DeviceChoice::Cuda) => "rank",
        _ => "GPU",
    }
}

/// Formats the devices of a group with [`environment::devices_text`].
pub fn devices(group: &TrainingGroup) -> String {
    let threads = group.cases.iter().flat_map(TrainingCase::threads).collect();
    let device = group.conditions.recorded.as_ref().map(|recorded| recorded.device);
    environment::devices_text(&group.device_names, &threads, device)
}

/// Returns a sentence if the number of threads per rank differs between cases, because speedup and efficiency then
/// compare unequal devices.
pub fn unlike_devices(group: &TrainingGroup) -> Option<String> {
    let is_cpu = group.conditions.recorded.as_ref().is_some_and(|recorded| recorded.device == DeviceKind::Cpu);
    let threads = |case: &TrainingCase| Some((case.case, case.threads())).filter(|(_, threads)| !threads.is_empty());
    let cases: Vec<(Case, BTreeSet<u32>)> = group.cases.iter().filter_map(threads).collect();
    let differ = is_cpu && cases.windows(2).any(|pair| pair[0].1 != pair[1].1);
    let case = |(case, threads): &(Case, BTreeSet<u32>)| {
        format!("{case}: {}", threads.iter().map(u32::to_string).collect::<Vec<_>>().join(" or "))
    };
    differ.then(|| {
        let each = cases.iter().map(case).collect::<Vec<_>>().join(", ");
        format!("cases have different numbers of threads per rank: efficiency compares unequal devices ({each})")
    })
}
