//! The launcher: plans jobs, starts them through mpirun or srun, monitors them, and keeps their output. Results are
//! computed from the files by the reader.
//!
//! | package | contents |
//! |---|---|
//! | [`local`] | this machine: environment, signals, child processes |
//! | [`cluster`] | the hosts and the connections to them |
//! | [`job`] | one launch: its command line, processes, log and record |
//! | [`doctor`] | examines every host before a job does |
//! | [`sweep`] | runs a plan of many jobs, one after the other |
//! | [`accept`] | runs rounds of jobs that find hosts and links that are not fit |

pub mod accept;
pub mod cluster;
pub mod doctor;
pub mod job;
pub mod local;
pub mod sweep;
