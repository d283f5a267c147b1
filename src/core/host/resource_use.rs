//! What hosts and ranks did from the first iteration's start to the last one's end, as differences of the counters that
//! kernel and driver keep. Facts alone: [`crate::validity`] judges them, and can do so again from the record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, Seconds};
use crate::host::telemetry::Telemetry;

/// One host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostUse {
    /// Its name.
    pub host: String,
    /// Mark of the running kernel: hosts that share it (containers, network namespaces) share cores and counters.
    pub machine: String,
    /// Cores of the machine.
    pub cores: u32,
    /// Cores that the host's ranks may use together, by affinity and control group.
    pub cores_of_ranks: u32,
    /// Between the two looks at the counters.
    pub elapsed: Seconds,
    /// Core time of all processes of the machine.
    pub busy: Seconds,
    /// Core time that the hypervisor gave to other virtual machines.
    pub steal: Seconds,
    /// Read back from swap.
    pub swapped_in: Bytes,
    /// How often cores were slowed for their heat; `None` where the kernel does not count it.
    pub heat_events: Option<u64>,
    /// Mean clock of all cores (of some, where there are more than 16) in MHz, before and after; `None` where the kernel does not report it.
    pub clock_mhz: Option<[f64; 2]>,
    /// Reading by reading; `None` in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
}

/// One rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RankUse {
    /// Core time of all its threads.
    pub core_time: Seconds,
    /// How often it waited for a page of memory to come from a disk.
    pub major_faults: u64,
    /// How long its control group, or one above, was held back by a CPU quota, added up over cores; `None` where no group
    /// counts it.
    pub throttled: Option<Seconds>,
    /// Its GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUse>,
}

/// One GPU, by nvidia-smi. The looks are taken when the device is idle again; the counters tell what was in between.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// SM clock in MHz, before and after.
    pub clock_mhz: [f64; 2],
    /// Highest SM clock of this model in MHz.
    pub highest_clock_mhz: f64,
    /// Degrees Celsius, before and after.
    pub temperature: [f64; 2],
    /// Why the clock was held down, NVML's bits, before and after.
    pub reasons: [u64; 2],
    /// Time slowed for heat in between; `None` where the driver does not count it.
    pub slowed_for_heat: Option<Seconds>,
}
