//! `ringmark input --against`: what the cases of a training sweep need of reading and decoding.

use std::path::Path;

use anyhow::anyhow;
use ringmark_record::benchmark::input::record::InputRecord;
use ringmark_record::dimension::device::DeviceKind;
use ringmark_record::dimension::units::ImagesPerSecond;
use ringmark_record::options::option_table::OptionValue;
use ringmark_record::options::usage::usage;

use crate::output;
use crate::read::analyse::figures::{CaseRuns, Group};
use crate::read::analyse::input_ceiling::{Demand, verdict};
use crate::read::extract;

/// Makes sentences of a record: what each case of the sweep in `folder` needs, against what was measured.
///
/// # Errors
///
/// Where the folder holds no such sweep, or one that read images itself.
pub fn judge(folder: &Path) -> anyhow::Result<impl Fn(&InputRecord) -> Vec<String> + use<>> {
    let demands = demands(folder).map_err(|error| usage(error.context(format!("--against {}", folder.display()))))?;
    Ok(move |record: &InputRecord| {
        let lines = demands.iter().flat_map(|demand| verdict(record, demand));
        lines.map(|line| output::strip_control_characters(&line)).collect()
    })
}

fn demands(folder: &Path) -> anyhow::Result<Vec<Demand>> {
    let groups = extract::read(folder, None)?.groups;
    for group in &groups {
        let data = group.conditions.recorded.as_ref().map(|recorded| &recorded.config.data);
        if let Some(data) = data.filter(|data| data.are_read()) {
            return Err(anyhow!(
                "{} read images (--data {}), so that its speed may be its input's: give a sweep with synthetic images",
                group.label,
                data.text()
            ));
        }
    }
    let label = |group: &Group, case: &CaseRuns| match groups.len() {
        1 => case.case.to_string(),
        _ => format!("{} {}", group.label, case.case),
    };
    let demand = |group: &Group, case: &CaseRuns| {
        let recorded = group.conditions.recorded.as_ref();
        let figures = case.figures.as_ref()?;
        Some(Demand {
            label: label(group, case),
            devices: case.case.gpus_per_node,
            // Without records they are DLPerf's logs, of GPUs.
            kind: recorded.map_or(DeviceKind::Cuda, |recorded| recorded.device),
            speed: ImagesPerSecond(figures.speed.0 / f64::from(case.case.nodes)),
            image_size: group.conditions.model.image_size(recorded.and_then(|recorded| recorded.config.image_size)),
        })
    };
    let all = groups.iter().flat_map(|group| group.cases.iter().filter_map(move |case| demand(group, case)));
    let all: Vec<Demand> = all.collect();
    match all.is_empty() {
        true => Err(anyhow!("no run of it counts: ringmark extract {} says why", folder.display())),
        false => Ok(all),
    }
}
