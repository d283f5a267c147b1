//! A plan of many jobs, run one after the other: one [`session`] for every [`benchmark`].
//!
//! | module | what it is for |
//! |---|---|
//! | [`benchmark`] | the trait of a benchmark, and the jobs that it plans |
//! | [`benchmarks`] | train, score, bandwidth, input |
//! | [`axes_sweep`] | a sweep over cases, models, types and batch sizes, of train and score |
//! | [`plan`] | axes turned into runs; a rank's part of the cores; pure |
//! | [`session`] | what surrounds the jobs of every benchmark |
//! | [`agenda`] | which jobs of a plan are to run; pure |
//! | [`conditions`] | what figures depend on and is known before a run |
//! | [`ledger`] | a sweep's manifest while it runs, and what of an earlier sweep still counts |
//! | [`folder`] | the folder of results: held by one command, old attempts put aside |
//! | [`cost`] | what a job will take of each rank: arithmetic and memory; pure |
//! | [`estimate`] | what jobs will take, before they run; refuses what this machine has no memory for |
//! | [`live`] | a command while it runs, for whoever watches: its terminal, another shell, Prometheus |
//! | [`trials`] | short jobs before a sweep: the largest batch that fits, the fastest way to exchange |
//! | [`suite`] | PyTorch's DDP suite: its cases, the runs without communication, its lines |

pub mod agenda;
pub mod axes_sweep;
pub mod benchmark;
pub mod benchmarks;
pub mod conditions;
pub mod cost;
pub mod estimate;
pub mod folder;
pub mod ledger;
pub mod live;
pub mod plan;
pub mod session;
pub mod suite;
pub mod trials;
