//! What a host and the ranks on it say of themselves.
//!
//! | module | what it tells |
//! |---|---|
//! | [`environment`] | machine, libraries and the variables that matter |
//! | [`inspection`] | what `ringmark doctor` asks a host, and what the host answers |
//! | [`heartbeat`] | that a rank is alive and what it does, while it runs |
//! | [`resource_use`] | what hosts and ranks did while the iterations ran, by the counters of kernel and driver |

pub mod environment;
pub mod heartbeat;
pub mod inspection;
pub mod resource_use;
