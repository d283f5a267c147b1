//! What was typed, turned into configuration; the only room of this package that knows clap.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use ringmark_record::case::Case;
use ringmark_record::config::TrainConfig;
use ringmark_record::options::TrainOptions;
use ringmark_record::run::Profile;

/// One rank of a ringmark run; started once a GPU by mpirun, or alone.
#[derive(Debug, Parser)]
#[command(name = "ringmark-worker", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train ResNet50-v1b, exchange gradients, time every iteration
    #[command(after_help = "Examples:\n  \
        ringmark-worker train --batch-size 8 --iters 20 --warmup 5\n  \
        mpirun -np 2 --bind-to none ringmark-worker train --dtype bf16 --record run.jsonl")]
    Train(TrainArguments),
}

/// Options of `ringmark-worker train`.
#[derive(Debug, Args)]
pub struct TrainArguments {
    #[command(flatten)]
    options: TrainOptions,
    /// Where rank 0 writes the run record (JSON Lines)
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Name of the case in the record [default: from the hosts that the ranks are on]
    #[arg(long, value_name = "CASE")]
    case: Option<Case>,
    /// Number of the run in its case
    #[arg(long, value_name = "N", default_value_t = 1)]
    run: u32,
    /// Mark the run as a first look, too short to be quoted
    #[arg(long)]
    quick: bool,
}

/// What one run is called.
#[derive(Debug, Clone, Copy)]
pub struct RunLabel {
    /// As launched; `None` where nobody said.
    pub case: Option<Case>,
    /// From 1.
    pub run: u32,
    /// How it is meant.
    pub profile: Profile,
}

impl TrainArguments {
    /// The validated configuration and the run's label.
    pub fn into_config(self) -> Result<(TrainConfig, RunLabel)> {
        let config = TrainConfig { record: self.record, ..self.options.apply(TrainConfig::default()) };
        config.validate()?;
        let profile = if self.quick { Profile::Quick } else { Profile::Full };
        Ok((config, RunLabel { case: self.case, run: self.run, profile }))
    }
}
