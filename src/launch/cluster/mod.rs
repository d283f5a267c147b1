//! The hosts and how they are reached. Not for jobs.
//!
//! | module | what it is for |
//! |---|---|
//! | [`typed_hosts`] | hosts as they are typed |
//! | [`slots`] | asks a host how many ranks it takes |
//! | [`hosts`] | the machines and how many ranks each takes |
//! | [`interface`] | which network the hosts use among themselves |
//! | [`ssh`] | how ssh reaches the hosts |
//! | [`remote`] | runs a command on a host, here or by ssh |
//! | [`ssh_failure`] | why ssh did not come through |
//! | [`sync`] | copies the program and its libraries to the hosts |

pub mod hosts;
pub mod interface;
pub mod remote;
pub mod slots;
pub mod ssh;
pub mod ssh_failure;
pub mod sync;
pub mod typed_hosts;
