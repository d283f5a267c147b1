//! A plan of many jobs, run one after the other.
//!
//! | module | what it is for |
//! |---|---|
//! | [`benchmark`] | what is a benchmark's own |
//! | [`ledger`] | a sweep's manifest while it runs, and what of an earlier sweep still counts |
//! | [`folder`] | the folder of results: held by one command, old attempts put aside |
//! | [`progress`] | what the terminal shows of a run while it goes |
//! | [`suite`] | PyTorch's DDP suite: its cases, the runs without communication, its lines |

pub mod benchmark;
pub mod folder;
pub mod ledger;
pub mod progress;
pub mod suite;
