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

pub use binding::{BindChoice, Binding, BindingMode};
pub use environment::{Environment, HostLoad, InitialLoad, RankPlace};
pub use heartbeat::{Heartbeat, LauncherAddress, Message, OutOfMemory, OutOfMemoryCount, Stage};
pub use inspection::{Inspection, Interface, Library, Order, Reply};
pub use memory_shortage::MemoryShortage;
pub use observed::Observed;
pub use resource_use::{GpuUse, HostUse, RankUse};
pub use telemetry::{Energy, Quantity, Series, Telemetry};
