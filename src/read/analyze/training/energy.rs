//! Electric power of a case, and energy per image. No I/O.

use std::collections::{BTreeSet, HashMap, HashSet};

use ringmark_core::dimension::DeviceKind;
use ringmark_core::host::{HostUse, Quantity, Telemetry};
use ringmark_core::stats::run_values::RunValues;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::TrainingCase;
use crate::read::load::run::Measured;

/// Power and energy of all hosts of a case, over the iterations after warm-up. For example, 8 GPUs at 600 W each and
/// two packages at 150 W take 5100 W; at 20,000 images/s that is 0.255 J per image, or 3.92 images/s/W.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Energy {
    /// Mean power of all components in `of`, median over runs.
    pub watts: f64,
    /// `watts / (images/s)` of a run, median over runs.
    pub joules_per_unit: f64,
    /// Reciprocal of `joules_per_unit`.
    pub units_per_second_per_watt: f64,
    /// Measured components on any host: GPUs by NVML (boards including memory), packages and memory by RAPL. Fans,
    /// disks, network and losses of power supplies are not included.
    pub of: BTreeSet<String>,
}

/// Returns the energy over the runs that count; `None` if the power of any of their hosts is unknown.
pub fn case_energy(case: &TrainingCase) -> Option<Energy> {
    let over_runs = |figure: fn(&Measured) -> Option<f64>| case.counted().map(figure).collect::<Option<RunValues>>();
    let joules_per_unit = over_runs(joules_per_unit)?.median()?;
    Some(Energy {
        watts: over_runs(watts)?.median()?,
        joules_per_unit,
        units_per_second_per_watt: 1.0 / joules_per_unit,
        of: case.counted().flat_map(|run| &run.host_use).flat_map(parts).collect(),
    })
}

/// Returns the energy per image of one run in joules.
pub fn joules_per_unit(run: &Measured) -> Option<f64> {
    Some(watts(run)? / run.speed.0)
}

/// Returns the power of all hosts. Hosts on the same machine (containers) read the same sensors, which count once. If
/// an error excludes GPUs from a host's power, the total is unknown.
fn watts(run: &Measured) -> Option<f64> {
    let warmup = run.figures.iterations().map_or(0, |[_, warmup]| warmup as u32);
    let mut sum = 0.0;
    let mut machines = HashSet::new();
    let mut gpus: HashMap<&str, usize> = HashMap::new();
    for rank in run.figures.ranks.iter().filter(|rank| rank.place.device == DeviceKind::Cuda) {
        *gpus.entry(&rank.place.host).or_default() += 1;
    }
    for host in &run.host_use {
        let telemetry = host.telemetry.as_ref()?;
        let is_known = !machines.insert(host.machine.as_str());
        // Each container reads only the GPUs of its own ranks.
        let gpus = gpus.get(host.host.as_str()).copied().unwrap_or(0);
        let read = telemetry.series_of(Quantity::Power).filter(|series| series.is_of_gpu()).count();
        if gpus != read {
            return None;
        }
        if gpus > 0 || !is_known {
            sum += telemetry
                .mean_sum(Quantity::Power, warmup, |series| series.is_of_gpu() || !is_known)
                .filter(|it| *it > 0.0)?;
        }
    }
    (!run.host_use.is_empty()).then_some(sum)
}

fn parts(host: &HostUse) -> Vec<String> {
    let of = |telemetry: &Telemetry| telemetry.series_of(Quantity::Power).map(|series| series.of.clone()).collect();
    host.telemetry.as_ref().map(of).unwrap_or_default()
}
