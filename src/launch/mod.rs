//! Decides what to run where, starts it through mpirun or srun, watches it, keeps what it wrote. Not for figures: those are
//! read from the files.
//!
//! | package | what it is for |
//! |---|---|
//! | [`local`] | this machine: environment, signals, child processes |
//! | [`cluster`] | the hosts and how they are reached |
//! | [`job`] | one launch: its command line, its processes, its log and record |
//! | [`doctor`] | looks at every host before a job does |
//! | [`sweep`] | a plan of many jobs, run one after the other |

pub mod cluster;
pub mod doctor;
pub mod job;
pub mod local;
pub mod sweep;
