//! Benchmarks, one module each, and their commands. A benchmark is a function that gets a
//! [`Session`](crate::job::session::Session).

pub mod bandwidth;
pub mod checkpoint;
pub mod input;
pub mod score;
pub mod train;

use anyhow::Result;
use clap::{Args, Subcommand};
use ringmark_core::benchmark::bandwidth::BandwidthConfig;
use ringmark_core::benchmark::checkpoint::CheckpointConfig;
use ringmark_core::benchmark::input::InputConfig;
use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::benchmark::{RunLabel, RunProfile};
use ringmark_core::dimension::Case;
use ringmark_core::host::LauncherAddress;
use ringmark_core::options::clap_binding::WorkerOptions;
use ringmark_core::options::option_table::Options;
use ringmark_core::options::usage::usage;

use crate::job::session::RequestedLabel;

/// Command of a benchmark.
#[derive(Debug, Subcommand)]
pub enum Benchmark {
    /// Train a network as one rank, and time every iteration
    #[command(after_help = "Examples:\n  \
        ringmark-worker train --batch-size 8 --iters 20 --warmup 5\n      \
            one rank, 15 measured iterations after 5 of warm-up\n  \
        mpirun -np 2 --bind-to none ringmark-worker train --dtype bf16 --record run.jsonl\n      \
            two ranks on this machine; `ringmark sweep` starts them itself")]
    Train(RunArguments<TrainConfig>),
    /// Measure inference as one rank
    #[command(after_help = "Examples:\n  \
        ringmark-worker score --batch-size 32\n  \
        ringmark-worker score --model resnet18 --dtype bf16 --batch-size 1 --iters 50 --record score.json")]
    Score(RunArguments<ScoreConfig>),
    /// Measure all-reduce and other operations as one rank
    #[command(after_help = "Examples:\n  \
        mpirun -np 2 --bind-to none ringmark-worker bandwidth -b 8 -e 1G -f 2\n  \
        mpirun -np 2 --bind-to none ringmark-worker bandwidth --model resnet50_v1b --wire fp16 --optimizer sgd\n  \
        mpirun -np 8 ringmark-worker bandwidth -b 1G -e 1G --min-busbw 300 --json bandwidth.json")]
    Bandwidth(Arguments<BandwidthConfig>),
    /// Measure how fast images are read and decoded, as one rank per host
    #[command(after_help = "Examples:\n  \
        ringmark-worker input --data imagenet/train.rec\n  \
        mpirun -np 4 --map-by node --bind-to none ringmark-worker input --data imagenet/train --decode-threads 8,16")]
    Input(Arguments<InputConfig>),
    /// Measure writing and reading of checkpoints as one rank
    #[command(after_help = "Examples:\n  \
        ringmark-worker checkpoint --folder /scratch --size 1G\n  \
        mpirun -np 8 ringmark-worker checkpoint --folder /scratch --model gpt2 --optimizer adamw --writers rank-0,shards")]
    Checkpoint(Arguments<CheckpointConfig>),
}

impl Benchmark {
    /// Runs one rank from start to end; `launcher` is the address of the program that started it.
    pub fn run(self, launcher: Option<LauncherAddress>) -> Result<()> {
        match self {
            Benchmark::Train(RunArguments { options, label }) => {
                let check = |config: &TrainConfig| {
                    config.validate()?;
                    config.strategy.check_servers()?;
                    config.learning.check_checkpoint()
                };
                train::run(&checked(options, check)?, label.into(), launcher)
            }
            Benchmark::Score(RunArguments { options, label }) => {
                score::run(&checked(options, ScoreConfig::validate)?, label.into(), launcher)
            }
            Benchmark::Bandwidth(Arguments { options }) => {
                let check = |config: &BandwidthConfig| {
                    config.validate()?;
                    config.strategy.check_servers()
                };
                bandwidth::run(&checked(options, check)?, launcher)
            }
            Benchmark::Input(Arguments { options }) => input::run(&checked(options, InputConfig::validate)?, launcher),
            Benchmark::Checkpoint(Arguments { options }) => {
                checkpoint::run(&checked(options, CheckpointConfig::validate)?, launcher)
            }
        }
    }
}

fn checked<C: Options + Default>(options: WorkerOptions<C>, check: impl Fn(&C) -> Result<()>) -> Result<C> {
    let config = options.apply(C::default()).map_err(usage)?;
    check(&config).map_err(usage)?;
    Ok(config)
}

/// Options of a benchmark.
#[derive(Debug, Args)]
pub struct Arguments<C: Options> {
    #[command(flatten)]
    options: WorkerOptions<C>,
}

/// Options of a benchmark with several runs in a sweep.
#[derive(Debug, Args)]
pub struct RunArguments<C: Options> {
    #[command(flatten)]
    options: WorkerOptions<C>,
    #[command(flatten)]
    label: LabelArguments,
}

/// Name of the run in its record.
#[derive(Debug, Args)]
struct LabelArguments {
    /// Name of the case in the record [default: from the hosts that the ranks are on]
    #[arg(long = RunLabel::CASE, value_name = "CASE")]
    case: Option<Case>,
    /// Number of the run in its case
    #[arg(long = RunLabel::RUN, value_name = "N", default_value_t = 1)]
    run: u32,
    /// Mark the run as a first look, too short for a reliable result
    #[arg(long = RunLabel::QUICK)]
    quick: bool,
}

impl From<LabelArguments> for RequestedLabel {
    fn from(LabelArguments { case, run, quick }: LabelArguments) -> RequestedLabel {
        RequestedLabel { case, run, profile: if quick { RunProfile::Quick } else { RunProfile::Full } }
    }
}
