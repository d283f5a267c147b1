//! Options of the commands that start jobs, and their defaults.
//!
//! | module | contents |
//! |---|---|
//! | [`hosts`] | hosts and how to start ranks on them, shared by all commands |
//! | [`config_file`] | a sweep as a file: `--config`, `--save-config` |
//! | [`data`] | check of `--data` and `--validate` before anything starts |
//! | [`servers`] | `--server-hosts`, and conflicts with a strategy |
//! | [`trace`] | `--trace`, and what its other options require |
//! | [`axes`] | the axes of a sweep, shared by every benchmark over axes |
//! | [`sweep`], [`run`], [`score`], [`bandwidth`], [`input`], [`checkpoint`] | the commands of [`Benchmark`] |
//! | [`alternate`] | the command that runs several of these in turn |
//! | [`goodput`] | the command that runs sweeps under failures |
//! | [`doctor`] | the command that checks hosts |
//! | [`accept`] | the command that finds hosts and links that are not fit |

pub mod accept;
pub mod alternate;
pub mod axes;
pub mod bandwidth;
pub mod checkpoint;
pub mod config_file;
pub mod data;
pub mod doctor;
pub mod goodput;
pub mod hosts;
pub mod input;
pub mod run;
pub mod score;
pub mod servers;
pub mod sweep;
pub mod trace;

use clap::Subcommand;

use crate::cli::launch::bandwidth::BandwidthOptions;
use crate::cli::launch::checkpoint::CheckpointOptions;
use crate::cli::launch::input::InputOptions;
use crate::cli::launch::run::RunOptions;
use crate::cli::launch::score::ScoreOptions;
use crate::cli::launch::sweep::SweepOptions;
use crate::launch::sweep::benchmarks;
use crate::read::extract;

/// Command of a benchmark.
#[derive(Debug, Subcommand)]
pub enum Benchmark {
    /// Train on 1 to N GPUs, several runs in each case; print speed and scaling efficiency
    ///
    /// Starts the ranks with mpirun, Slurm or Grid Engine, and keeps all logs and records.
    Sweep(Box<SweepOptions>),
    /// Measure another training program: torchrun train.py, or any other
    ///
    /// Starts the program in every case several times, reads its iterations from its output, and keeps the records of a
    /// sweep: extract, diff, report, check and predict read them.
    Run(Box<RunOptions>),
    /// Measure inference: images/s by network, precision and batch size
    Score(Box<ScoreOptions>),
    /// Measure all-reduce and other collectives by message size, as nccl-tests does
    ///
    /// Also measures the gradients of a network (--model). Starts the ranks with mpirun, Slurm or Grid Engine.
    Bandwidth(Box<BandwidthOptions>),
    /// Measure how fast images are read and decoded, by number of threads
    ///
    /// With --against, also shows whether this is fast enough for the devices of a result.
    Input(Box<InputOptions>),
    /// Measure writing and reading of checkpoints: GB/s, stall of training, time to restore
    ///
    /// Compares writers, number of files, page cache and direct I/O, with and without concurrent computation. Starts the
    /// ranks with mpirun, Slurm or Grid Engine.
    Checkpoint(Box<CheckpointOptions>),
}

impl Benchmark {
    /// Runs the benchmark.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Benchmark::Sweep(options) => {
                options.into_config().and_then(|config| benchmarks::train::run(&config, extract::summary))
            }
            Benchmark::Run(options) => {
                options.into_config().and_then(|config| benchmarks::train::run(&config, extract::summary))
            }
            Benchmark::Score(options) => {
                options.into_config().and_then(|config| benchmarks::score::run(&config, extract::score_summary))
            }
            Benchmark::Bandwidth(options) => {
                options.into_config().and_then(|config| benchmarks::bandwidth::run(&config))
            }
            Benchmark::Input(options) => {
                options.into_config().and_then(|config| benchmarks::input::run(&config, input::judge))
            }
            Benchmark::Checkpoint(options) => {
                options.into_config().and_then(|config| benchmarks::checkpoint::run(&config))
            }
        }
    }
}
