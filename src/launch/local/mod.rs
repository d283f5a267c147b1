//! This machine and this process: its environment, and the child processes that a launch starts. Contains nothing about
//! other hosts.
//!
//! | module | purpose |
//! |---|---|
//! | [`environment`] | environment and options of this process |
//! | [`interrupt`] | Ctrl-C, SIGTERM or a closed terminal |
//! | [`child`] | starting, awaiting and ending child processes; the only place that does so |
//! | [`disk_error`] | advice for file system errors |
//! | [`open_mpi`] | Open MPI's options by version |
//! | [`results_folder`] | name and path of the results folder |
//! | [`worker`] | path of the worker |
//! | [`side_by_side`] | parallel work for many hosts, with a limit |

pub mod child;
pub mod disk_error;
pub mod environment;
pub mod interrupt;
pub mod open_mpi;
pub mod results_folder;
pub mod side_by_side;
pub mod worker;
