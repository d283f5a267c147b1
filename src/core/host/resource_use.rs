//! Resource use of hosts and ranks from the start of the first iteration to the end of the last, as differences of
//! kernel and driver counters. These are raw values: [`crate::validity`] evaluates them, and can do so again from the
//! record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dimension::{Bytes, Seconds};
use crate::host::telemetry::Telemetry;

/// Resource use of one host.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct HostUse {
    /// Host name.
    pub host: String,
    /// Identifier of the running kernel: hosts that share it (containers, network namespaces) share cores and counters.
    pub machine: String,
    /// Hardware threads of the machine.
    pub cores: u32,
    /// Hardware threads that the host's ranks may use together, by affinity and control group.
    pub cores_of_ranks: u32,
    /// Time between the two readings of the counters.
    pub elapsed: Seconds,
    /// Core time of all processes of the machine.
    pub busy: Seconds,
    /// Core time that the hypervisor gave to other virtual machines.
    pub steal: Seconds,
    /// Bytes read back from swap.
    pub swapped_in: Bytes,
    /// Number of times that cores were slowed by heat; `None` if the kernel does not count it.
    pub heat_events: Option<u64>,
    /// Mean clock of all cores (of a sample if there are more than 16) in MHz, before and after; `None` if the kernel
    /// does not report it.
    pub clock_mhz: Option<[f64; 2]>,
    /// Readings over time; `None` in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
}

/// Resource use of one rank.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RankUse {
    /// Core time of all its threads.
    pub core_time: Seconds,
    /// Number of major page faults, which wait for a disk.
    pub major_faults: u64,
    /// Time for which a CPU quota throttled its control group or an ancestor, summed over cores; `None` if no group
    /// counts it.
    pub throttled: Option<Seconds>,
    /// GPU of the rank, if it uses one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuUse>,
}

/// Use of one GPU, by nvidia-smi. Readings are taken when the device is idle; the counters cover the time in between.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GpuUse {
    /// SM clock in MHz, before and after.
    pub clock_mhz: [f64; 2],
    /// Highest SM clock of this model in MHz.
    pub highest_clock_mhz: f64,
    /// Temperature in degrees Celsius, before and after.
    pub temperature: [f64; 2],
    /// Reasons for a reduced clock as NVML's bits, before and after.
    pub reasons: [u64; 2],
    /// Time slowed by heat in between; `None` if the driver does not count it.
    pub slowed_for_heat: Option<Seconds>,
}
