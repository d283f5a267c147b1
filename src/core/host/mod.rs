//! Data about a host and the ranks on it.

pub mod binding;
pub mod control_group;
pub mod environment;
pub mod heartbeat;
pub mod host_list;
pub mod inspection;
pub mod kernel_file;
pub mod memory;
pub mod memory_shortage;
pub mod observed;
pub mod processors;
pub mod resource_use;
pub mod telemetry;

use std::time::{SystemTime, UNIX_EPOCH};

use crate::dimension::Seconds;

pub use binding::{BindChoice, Binding, BindingMode};
pub use environment::{Environment, HostLoad, InitialLoad, RankPlace};
pub use heartbeat::{Heartbeat, LauncherAddress, Message, OutOfMemory, OutOfMemoryCount, Stage};
pub use inspection::{Inspection, Interface, Library, Order, Reply};
pub use memory_shortage::MemoryShortage;
pub use observed::Observed;
pub use resource_use::{GpuUse, HostUse, RankUse};
pub use telemetry::{Energy, Quantity, Series, Telemetry};

/// Returns true for a name by which every machine knows itself.
pub fn is_loopback(host: &str) -> bool {
    ["localhost", "127.0.0.1"].contains(&host)
}

/// Returns the time since 1970-01-01 UTC; 0 if the clock is set before it.
pub fn unix_time() -> Seconds {
    Seconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}
