//! This machine and this process: what a launch finds here, and the child processes that it starts. Knows no host but
//! this one.
//!
//! | module | what it is for |
//! |---|---|
//! | [`environment`] | what this process was started with and in |
//! | [`interrupt`] | Ctrl-C, SIGTERM or a closed terminal |
//! | [`child`] | the one way to start, await and end a child process |
//! | [`disk_error`] | fixes for errors of a disk |
//! | [`results_folder`] | its name and path |
//! | [`worker`] | where the worker is |
//! | [`print`] | lines on the standard output and the standard error |
//! | [`side_by_side`] | the same work for many hosts, some of them at a time |

pub mod child;
pub mod disk_error;
pub mod environment;
pub mod interrupt;
pub mod print;
pub mod results_folder;
pub mod side_by_side;
pub mod worker;
