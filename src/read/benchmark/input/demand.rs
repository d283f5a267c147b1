//! Images/s that the devices of a host consume during training, for comparison with reading and decoding. No I/O.
//!
//! With synthetic images this is the measured speed. Runs that read images may have waited for them, so each device is
//! assumed to need the speed per device of the smallest case, ideally a single device. That applies to DLPerf's logs,
//! whose runs read ImageNet.

use ringmark_core::dimension::{Case, DeviceKind, UnitsPerSecond};
use ringmark_core::number_text::thousands;

use crate::read::analyze::results::ResultFolder;
use crate::read::analyze::run_group::RunGroup;
use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};

/// Demand of the devices of one host.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// Case, such as `1n8g`, with the name of its table if there are several.
    pub label: String,
    /// Number of devices per host.
    pub devices: u32,
    /// Kind of the devices.
    pub kind: DeviceKind,
    /// Images/s per host.
    pub speed: UnitsPerSecond,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// Source of the speed.
    pub basis: Basis,
}

/// Source of the demand.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// Measured with synthetic images, without reading.
    Synthetic,
    /// Extrapolated from a smaller case, because the runs read images.
    OneDevice {
        /// Case with the fewest devices.
        case: Case,
        /// Speed that the runs reached, in images/s per host.
        trained: UnitsPerSecond,
    },
}

impl Demand {
    /// Returns a text such as `8 GPUs need`.
    pub fn subject(&self) -> String {
        let what = match self.kind {
            DeviceKind::Cuda => "GPU",
            DeviceKind::Cpu => "CPU rank",
        };
        let (plural, need) = if self.devices == 1 { ("", "needs") } else { ("s", "need") };
        format!("{} {what}{plural} {need}", self.devices)
    }

    /// Returns a text such as `8 GPUs need 6,150`, with the source of the speed.
    pub fn text(&self) -> String {
        let basis = match &self.basis {
            Basis::OneDevice { case, .. } if case.gpus_per_node != self.devices => {
                format!(" ({} each, as in {case})", thousands(self.per_device().0, ','))
            }
            _ => String::new(),
        };
        format!("{} {}{basis}", self.subject(), thousands(self.speed.0, ','))
    }

    /// Returns the demand of one device.
    pub fn per_device(&self) -> UnitsPerSecond {
        UnitsPerSecond(self.speed.0 / f64::from(self.devices))
    }
}

/// Returns the demand for images of every case that has figures.
pub fn demands(groups: &[TrainingGroup]) -> Vec<Demand> {
    let label = |group: &TrainingGroup, case: Case| match groups.len() {
        1 => case.to_string(),
        _ => format!("{} {case}", group.label),
    };
    let of_group = |group: &TrainingGroup| -> Vec<Demand> {
        let measured = || group.cases.iter().filter_map(|case| Some((case, units_a_host(case)?)));
        let fewest = measured().min_by_key(|(case, _)| case.case.ranks());
        let recorded = group.conditions.recorded.as_ref();
        let demand = |(case, trained): (&TrainingCase, UnitsPerSecond)| {
            let devices = case.case.gpus_per_node;
            // Runs without records are DLPerf's logs, from GPUs.
            let reads = recorded.is_none_or(|recorded| recorded.config.data.are_read());
            let (speed, basis) = match fewest {
                Some((least, speed)) if reads => {
                    let per_device = speed.0 / f64::from(least.case.gpus_per_node);
                    let speed = UnitsPerSecond(per_device * f64::from(devices));
                    (speed, Basis::OneDevice { case: least.case, trained })
                }
                _ => (trained, Basis::Synthetic),
            };
            Demand {
                label: label(group, case.case),
                devices,
                kind: recorded.map_or(DeviceKind::Cuda, |recorded| recorded.device),
                speed,
                image_size: group
                    .conditions
                    .point
                    .model
                    .image_size(recorded.and_then(|recorded| recorded.config.image_size))
                    .unwrap_or_default(),
                basis,
            }
        };
        measured().map(demand).collect()
    };
    groups.iter().filter(|group| group.unit().is_image()).flat_map(of_group).collect()
}

/// Returns images/s per node of a case; `None` if none of its runs counts.
fn units_a_host(case: &TrainingCase) -> Option<UnitsPerSecond> {
    Some(UnitsPerSecond(case.figures.as_ref()?.speed.0 / f64::from(case.case.nodes)))
}

/// Returns the demands of every training result in the report, with the name of the result if there are several.
pub fn all_demands(results: &[ResultFolder]) -> Vec<Demand> {
    let several = results.iter().filter(|result| !result.training().is_empty()).count() > 1;
    let of_result = |result: &ResultFolder| -> Vec<Demand> {
        let named = |demand: Demand| match several {
            true => Demand { label: format!("{}, {}", result.name, demand.label), ..demand },
            false => demand,
        };
        demands(result.training()).into_iter().map(named).collect()
    };
    results.iter().flat_map(of_result).collect()
}
