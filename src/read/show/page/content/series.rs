//! Grouping of runs that may share a chart: those with equal kind of device, model, precision, batch size and image
//! size. Runs that differ in other options, such as overlap or buckets, form separate series.

use std::collections::BTreeSet;

use ringmark_core::dimension::{BatchShape, DeviceKind, Dtype, Model, SampleSize};
use ringmark_core::file::run_name::Point;

use ringmark_core::file::run_name::RunName;
use ringmark_core::trace::Timeline;

use crate::output::table::Style;
use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::cost::Price;
use crate::read::analyze::training::figures::TrainingGroup;
use crate::read::analyze::training::title;

/// Series that may be compared.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Conditions that the series share.
    pub title: String,
    /// Devices of each series.
    pub note: String,
    pub series: Vec<PageSeries<'a>>,
}

#[derive(Debug)]
pub struct PageSeries<'a> {
    pub name: String,
    pub style: Style,
    pub group: &'a TrainingGroup,
    /// Price per hour, if given.
    pub price: Option<&'a Price>,
    /// Traces of the result, for the runs of all its groups.
    pub traces: &'a [(RunName, Timeline)],
}

impl Setting<'_> {
    /// Returns `laptop, 1n2g` if there are several series, otherwise `1n2g`.
    pub fn named(&self, series: &PageSeries, what: impl std::fmt::Display) -> String {
        if self.series.len() > 1 { format!("{}, {what}", series.name) } else { what.to_string() }
    }

    /// Returns `Every rank: laptop` if there are several series, otherwise `Every rank`.
    pub fn titled(&self, title: &str, series: &PageSeries) -> String {
        if self.series.len() > 1 { format!("{title}: {}", series.name) } else { title.to_owned() }
    }

    /// Returns `GPU` or `rank`.
    pub fn process(&self) -> &'static str {
        self.series.first().map_or("rank", |series| title::process(series.group))
    }
}

/// Conditions that must be equal. Logs without records have an unknown device, which equals only another unknown
/// device.
type Key = (Option<DeviceKind>, Model, Dtype, BatchShape, Option<SampleSize>);

fn key(group: &TrainingGroup) -> Key {
    let conditions = &group.conditions;
    let recorded = conditions.recorded.as_ref();
    let size = recorded.map(|recorded| recorded.config.sample_size());
    (
        recorded.map(|recorded| recorded.device),
        conditions.point.model,
        conditions.point.dtype,
        conditions.point.batch,
        size,
    )
}

/// Returns a sentence for each pair of results without a common setting, which names the conditions that differ.
pub fn not_comparable(results: &[ResultFolder]) -> Vec<String> {
    let with_keys: Vec<(&str, Vec<Key>)> =
        results.iter().map(|result| (result.name.as_str(), result.training().iter().map(key).collect())).collect();
    let trained: Vec<&(&str, Vec<Key>)> = with_keys.iter().filter(|(_, keys)| !keys.is_empty()).collect();
    let mut sentences = Vec::new();
    for (index, (name, keys)) in trained.iter().enumerate() {
        for (other_name, others) in &trained[index + 1..] {
            if keys.iter().all(|key| !others.contains(key)) {
                sentences.push(format!("{name} and {other_name}: {}", differences(keys, others)));
            }
        }
    }
    sentences
}

/// Name of a condition, and its value as text.
type Condition = (&'static str, fn(&Key) -> String);

/// Describes the conditions of which two results have no value in common: `precision fp32 and bf16`.
fn differences(keys: &[Key], others: &[Key]) -> String {
    let conditions: [Condition; 5] = [
        ("model", |key| key.1.facts().title.to_owned()),
        ("precision", |key| key.2.to_string()),
        ("batch size", |key| key.3.numbers()),
        ("image size", |key| key.4.map_or_else(|| "unknown".to_owned(), |size| size.number().to_string())),
        ("device", |key| device_title(key.0).to_owned()),
    ];
    let differs = |(name, value): &Condition| {
        let [own, other] = [keys, others].map(|keys| keys.iter().map(value).collect::<BTreeSet<String>>());
        let joined = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" or ");
        own.is_disjoint(&other).then(|| format!("{name} {} and {}", joined(own), joined(other)))
    };
    let differing: Vec<String> = conditions.iter().filter_map(differs).collect();
    match differing.as_slice() {
        [] => "no table with the same conditions".to_owned(),
        differing => differing.join(", "),
    }
}

/// Groups all runs of all results by setting, in the order of their appearance.
pub fn settings(results: &[ResultFolder]) -> Vec<Setting<'_>> {
    let mut settings: Vec<(Key, Setting)> = Vec::new();
    for (number, result) in results.iter().enumerate() {
        for group in result.training() {
            let key = key(group);
            let index = settings.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                let setting = Setting { title: title(group), note: String::new(), series: Vec::new() };
                settings.push((key, setting));
                settings.len() - 1
            });
            let series = &mut settings[index].1.series;
            let style = Style { color: number, shape: series.len() };
            series.push(PageSeries {
                name: result.name.clone(),
                style,
                group,
                price: result.price.as_ref(),
                traces: &result.traces,
            });
        }
    }
    settings.into_iter().map(|(_, setting)| named(setting)).collect()
}

/// Makes the names of the series distinct, and adds the devices of each.
fn named(mut setting: Setting) -> Setting {
    let mut results: Vec<String> = setting.series.iter().map(|series| series.name.clone()).collect();
    results.dedup();
    for result in results {
        let mut series: Vec<&mut PageSeries> =
            setting.series.iter_mut().filter(|series| series.name == result).collect();
        let groups: Vec<&TrainingGroup> = series.iter().map(|series| series.group).collect();
        for (series, distinction) in series.iter_mut().zip(title::distinctions(&groups)) {
            series.name = match distinction.as_str() {
                "" => result.clone(),
                distinction => format!("{result}: {distinction}"),
            };
        }
    }
    for series in setting.series.iter_mut().filter(|series| series.group.is_quick()) {
        series.name.push_str(" (quick)");
    }
    let several = setting.series.len() > 1;
    let on = setting.series.iter().map(|series| match several {
        true => format!("{}: {}", series.name, device(series.group)),
        false => device(series.group),
    });
    setting.note = on.collect::<Vec<_>>().join("; ");
    setting
}

/// Returns the conditions: `ResNet50-v1b, bf16, batch size 8 per rank, 224 pixels, CPU`.
fn title(group: &TrainingGroup) -> String {
    let conditions = &group.conditions;
    let model = conditions.point.model.facts().title;
    let process = title::process(group);
    let Point { dtype, batch, .. } = conditions.point;
    let mut title = format!("{model}, {dtype}, {}", batch.per_process(process));
    match &conditions.recorded {
        Some(recorded) => {
            let device = device_title(Some(recorded.device));
            let pixels = recorded.config.model.image_size(recorded.config.image_size);
            title.push_str(&pixels.map(|size| format!(", {size} pixels")).unwrap_or_default());
            title.push_str(&format!(", {device}"));
        }
        None => match group.requested_device {
            Some(device) => title.push_str(&format!(", device {device}")),
            None => title.push_str(&format!(", {}", device_title(None))),
        },
    }
    title
}

/// Returns a kind of device for a heading.
pub fn device_title(device: Option<DeviceKind>) -> &'static str {
    match device {
        Some(DeviceKind::Cpu) => "CPU",
        Some(DeviceKind::Cuda) => "GPU",
        None => "device unknown",
    }
}

pub fn device(group: &TrainingGroup) -> String {
    match (&group.conditions.recorded, group.conditions.tool) {
        (Some(_), _) => title::devices(group),
        (None, None) => "no records next to the logs".to_owned(),
        (None, Some(tool)) => format!("no records next to the logs; {}", title::tool_title(tool)),
    }
}
