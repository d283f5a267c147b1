//! What was typed, turned into configuration; the only room of this package that knows clap.

use clap::{Args, Parser, Subcommand};

/// Benchmark of data-parallel training: how fast, how well does it scale, where is the rest lost.
#[derive(Debug, Parser)]
#[command(name = "ringmark", version, about)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train every case several times through mpirun and keep all logs and records
    Sweep(SweepOptions),
    /// Turn a folder of logs and records into a table, JSON, CSV and Markdown
    Extract(ExtractOptions),
}

/// Options of `ringmark sweep`.
#[derive(Debug, Args)]
pub struct SweepOptions {}

/// Options of `ringmark extract`.
#[derive(Debug, Args)]
pub struct ExtractOptions {}
