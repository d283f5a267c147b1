//! What the devices of a host take while they train: what reading and decoding are held against. Pure.
//!
//! Of runs with synthetic images it is what was measured. Runs that read images may have waited for them: each device is taken
//! to need what it had where fewest trained, best alone. So it is of DLPerf's logs, whose runs read ImageNet.

use ringmark_core::dimension::{Case, DeviceKind, ImagesPerSecond};
use ringmark_core::number_text::thousands;

use crate::read::analyse::figures::{Group, TrainedCase};

/// What the devices of one host take.
#[derive(Debug, Clone, PartialEq)]
pub struct Demand {
    /// `1n8g`, with its table's name where there are several.
    pub label: String,
    /// Of one host.
    pub devices: u32,
    /// What they are.
    pub kind: DeviceKind,
    /// Of one host.
    pub speed: ImagesPerSecond,
    /// Height and width of an image in pixels.
    pub image_size: u32,
    /// How that is known.
    pub basis: Basis,
}

/// How it is known what devices take.
#[derive(Debug, Clone, PartialEq)]
pub enum Basis {
    /// They trained so, and read nothing.
    Synthetic,
    /// They read images.
    OneDevice {
        /// Where fewest devices trained.
        case: Case,
        /// What they came to, images/s of one host.
        trained: ImagesPerSecond,
    },
}

impl Demand {
    /// `8 GPUs need`.
    pub fn who(&self) -> String {
        let what = match self.kind {
            DeviceKind::Cuda => "GPU",
            DeviceKind::Cpu => "CPU rank",
        };
        let (plural, need) = if self.devices == 1 { ("", "needs") } else { ("s", "need") };
        format!("{} {what}{plural} {need}", self.devices)
    }

    /// `8 GPUs need 6,150`, and what that is taken from.
    pub fn text(&self) -> String {
        let basis = match &self.basis {
            Basis::OneDevice { case, .. } if case.gpus_per_node != self.devices => {
                format!(" ({} each, as in {case})", thousands(self.of_a_device().0, ','))
            }
            _ => String::new(),
        };
        format!("{} {}{basis}", self.who(), thousands(self.speed.0, ','))
    }

    /// What one device takes.
    pub fn of_a_device(&self) -> ImagesPerSecond {
        ImagesPerSecond(self.speed.0 / f64::from(self.devices))
    }
}

/// Of every case that has figures.
pub fn demands(groups: &[Group]) -> Vec<Demand> {
    let label = |group: &Group, case: Case| match groups.len() {
        1 => case.to_string(),
        _ => format!("{} {case}", group.label),
    };
    let of_group = |group: &Group| -> Vec<Demand> {
        let measured = || group.cases.iter().filter_map(|case| Some((case, images_a_host(case)?)));
        let fewest = measured().min_by_key(|(case, _)| case.case.ranks());
        let recorded = group.conditions.recorded.as_ref();
        let demand = |(case, trained): (&TrainedCase, ImagesPerSecond)| {
            let devices = case.case.gpus_per_node;
            // Without records they are DLPerf's logs, of GPUs.
            let reads = recorded.is_none_or(|recorded| recorded.config.data.are_read());
            let (speed, basis) = match fewest {
                Some((least, speed)) if reads => {
                    let of_a_device = speed.0 / f64::from(least.case.gpus_per_node);
                    let speed = ImagesPerSecond(of_a_device * f64::from(devices));
                    (speed, Basis::OneDevice { case: least.case, trained })
                }
                _ => (trained, Basis::Synthetic),
            };
            Demand {
                label: label(group, case.case),
                devices,
                kind: recorded.map_or(DeviceKind::Cuda, |recorded| recorded.device),
                speed,
                image_size: group.conditions.model.image_size(recorded.and_then(|recorded| recorded.config.image_size)),
                basis,
            }
        };
        measured().map(demand).collect()
    };
    groups.iter().flat_map(of_group).collect()
}

/// Over the nodes of a case; `None` where no run of it counts.
fn images_a_host(case: &TrainedCase) -> Option<ImagesPerSecond> {
    Some(ImagesPerSecond(case.figures.as_ref()?.speed.0 / f64::from(case.case.nodes)))
}
