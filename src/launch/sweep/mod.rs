//! Runs a plan of many jobs, one after the other: one [`session`] for every [`benchmark`].
//!
//! | module | contents |
//! |---|---|
//! | [`benchmark`] | the trait of a benchmark, and the jobs that it plans |
//! | [`benchmarks`] | train, score, bandwidth, input, checkpoint |
//! | [`alternate`] | several sweeps in turn, one run of each in every round |
//! | [`goodput`] | sweeps in which ranks are lost at random times, for each interval between checkpoints |
//! | [`axes_sweep`] | a sweep over cases, models, types and batch sizes, for train and score |
//! | [`plan`] | expands axes into runs; a rank's share of the cores; pure |
//! | [`session`] | the steps around the jobs that all benchmarks share |
//! | [`schedule`] | jobs of a plan that must run; pure |
//! | [`conditions`] | conditions on which results depend, known before a run |
//! | [`ledger`] | a sweep's manifest while it runs, and the valid results of an earlier sweep |
//! | [`folder`] | the results folder: locked by one command, old attempts moved aside |
//! | [`cost`] | arithmetic and memory of a job per rank; pure |
//! | [`estimate`] | estimated duration and memory of jobs; refuses jobs for which this machine has too little memory |
//! | [`live`] | progress of a running command: terminal, another shell, Prometheus |
//! | [`trials`] | short jobs before a sweep: the largest batch that fits, the fastest exchange |
//! | [`suite`] | PyTorch's DDP suite: its cases, its baselines without communication, its lines |

pub mod alternate;
pub mod axes_sweep;
pub mod benchmark;
pub mod benchmarks;
pub mod conditions;
pub mod cost;
pub mod estimate;
pub mod folder;
pub mod goodput;
pub mod ledger;
pub mod live;
pub mod plan;
pub mod schedule;
pub mod session;
pub mod suite;
pub mod trials;
