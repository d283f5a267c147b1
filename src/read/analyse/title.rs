//! What a group of runs measured, on what and how, in a few lines: the head of every table of it.

use std::collections::BTreeSet;

use ringmark_record::device::DeviceKind;
use ringmark_record::exchange::BackendChoice;

use crate::read::analyse::figures::Group;

/// What was measured, on what, and how.
pub fn title(group: &Group) -> Vec<String> {
    let conditions = &group.conditions;
    let quick = if group.is_quick() { " - QUICK PROFILE" } else { "" };
    let (dtype, batch_size) = (conditions.dtype, conditions.batch_size);
    let counts = |values: &BTreeSet<usize>| values.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
    let length = match group.iterations.is_empty() {
        true => "no run counts".to_owned(),
        false => format!("{} iterations, the first {} left out", counts(&group.iterations), counts(&group.warmup)),
    };
    let what =
        format!("{}, {dtype}, batch size {batch_size} per {}{quick}", conditions.model.facts().title, process(group));
    match &conditions.recorded {
        None => vec![what, "device unknown: there are no records beside the logs".to_owned(), length],
        Some(recorded) => {
            let names: Vec<&str> = group.device_names.iter().map(String::as_str).collect();
            let config = &recorded.config;
            let collective = match config.exchange.backend {
                BackendChoice::Auto => String::new(),
                chosen => format!(", collective {chosen}"),
            };
            let options = format!(
                "{} pixels, {}, overlap {}, {} on the wire{collective}",
                config.image_size, config.layout, config.overlap, config.exchange.wire
            );
            vec![what, format!("{}: {}", recorded.device, names.join(" / ")), options, length]
        }
    }
}

/// What a rank drives.
pub fn process(group: &Group) -> &'static str {
    match &group.conditions.recorded {
        Some(recorded) if recorded.device == DeviceKind::Cpu => "rank",
        _ => "GPU",
    }
}
