//! The hosts and the connections to them. Independent of jobs.
//!
//! | module | contents |
//! |---|---|
//! | [`typed_hosts`] | hosts as they are typed |
//! | [`slots`] | asks a host how many ranks it takes |
//! | [`hosts`] | the machines and how many ranks each takes |
//! | [`interface`] | the network that the hosts use among themselves |
//! | [`remote`] | runs a command on a host, here or by ssh |
//! | [`ssh_failure`] | reason of a failed ssh connection |
//! | [`sync`] | copies the program and its libraries to the hosts |

pub mod hosts;
pub mod interface;
pub mod remote;
pub mod slots;
pub mod ssh_failure;
pub mod sync;
pub mod typed_hosts;
