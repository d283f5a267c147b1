//! What was typed, turned into configuration; the only room of this package that knows clap.
//!
//! | room | what it is for |
//! |---|---|
//! | [`launch`] | the commands that start something: sweep, bandwidth, doctor |
//! | [`read`] | the commands that read what was written: extract, report |

pub mod launch;
pub mod read;

use clap::{Args, Parser, Subcommand};

use crate::cli::launch::{BandwidthCommand, DoctorOptions, SweepOptions};
use crate::cli::read::{ExtractOptions, ReportOptions};

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
    /// Train every case several times through mpirun or Slurm and keep all logs and records
    Sweep(Box<SweepOptions>),
    /// Measure all-reduce alone, by message size or with a network's gradients, through mpirun or Slurm
    Bandwidth(Box<BandwidthCommand>),
    /// Look at every host: ssh, programs, devices, network; say what is wrong and what to do about it
    Doctor(DoctorOptions),
    /// Turn a folder of logs and records into a table, JSON, CSV and Markdown
    Extract(ExtractOptions),
    /// Show one result or several: a page with charts, Markdown, or tables with bars
    Report(ReportOptions),
    /// Become a command that ends with the process of this number, its parent; how mpirun is started
    #[command(hide = true)]
    Leash(LeashOptions),
}

/// What stands behind `ringmark leash`.
#[derive(Debug, Args)]
pub struct LeashOptions {
    /// Process number of the parent
    pub driver: i32,
    /// The command
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}
