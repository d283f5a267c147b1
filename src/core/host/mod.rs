//! Data about a host and the ranks on it.

pub mod control_group;
pub mod environment;
pub mod heartbeat;
pub mod host_list;
pub mod inspection;
pub mod kernel_file;
pub mod memory;
pub mod memory_shortage;
pub mod resource_use;
pub mod telemetry;

pub use environment::{Environment, HostLoad, InitialLoad, RankPlace};
pub use heartbeat::{Heartbeat, LauncherAddress, Message, OutOfMemory, OutOfMemoryCount, Stage};
pub use inspection::{Inspection, Interface, Library, Order, Reply};
pub use memory_shortage::MemoryShortage;
pub use resource_use::{GpuUse, HostUse, RankUse};
pub use telemetry::{Energy, Quantity, Series, Telemetry};
