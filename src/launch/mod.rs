//! Decides what to run where, starts it through mpirun, watches it, keeps what it wrote. Not for figures: those are
//! read from the files.
//!
//! | room | what it is for |
//! |---|---|
//! | [`hosts`] | the machines and how many ranks each takes |
//! | [`mpirun`] | case, hosts and configuration turned into mpirun's command line; starts nothing |
//! | [`process`] | starts one job, hands out its lines, ends all of it |
//! | [`job`] | a planned job with its log and record: what the commands below have in common |
//! | [`folder`] | the folder of results: held by one command, old attempts put aside, its errors with their cures |
//! | [`ledger`] | a sweep's manifest while it runs, and what of an earlier sweep still counts |
//! | [`progress`] | what the terminal shows of a training run while it goes, and of a sweep |
//! | [`sweep`] | plans every training run, then runs them |
//! | [`bandwidth`] | all-reduce alone, once a case |

pub mod bandwidth;
pub mod folder;
pub mod hosts;
pub mod job;
pub mod ledger;
pub mod mpirun;
pub mod process;
pub mod progress;
pub mod sweep;
