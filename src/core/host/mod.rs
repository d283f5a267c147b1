//! What a host and the ranks on it say of themselves.
//!
//! | module | what it tells |
//! |---|---|
//! | [`environment`] | machine, libraries and the variables that matter |
//! | [`inspection`] | what `ringmark doctor` asks a host, and what the host answers |
//! | [`heartbeat`] | that a rank is alive and what it does, while it runs |
//! | [`resource_use`] | what hosts and ranks did while the iterations ran, by the counters of kernel and driver |
//! | [`telemetry`] | what hosts and GPUs were like meanwhile, reading by reading |
//! | [`memory`] | memory that this process may take, on this host and in its control groups |
//! | [`memory_shortage`] | a batch that a device has no memory for |
//! | [`control_group`] | where this process's control groups are |
//! | [`host_list`] | lists of hosts in Slurm's compact form |
//! | [`kernel_file`] | (the files in which the kernel says it) |

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

pub use environment::{Environment, RankPlace};
pub use heartbeat::{Heartbeat, LauncherAddress, Message, OutOfMemory, OutOfMemoryCount, Stage};
pub use inspection::{Inspection, Interface, Library, Order, Reply};
pub use memory_shortage::MemoryShortage;
pub use resource_use::{GpuUse, HostUse, RankUse};
pub use telemetry::{Energy, Quantity, Series, Telemetry};
