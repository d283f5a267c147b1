//! Options of the commands that read what was written.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::read::extract::{ExtractConfig, Format};

const EXTRACT_EXAMPLES: &str = "\
Examples:
  ringmark extract results/first
      the table, and results/first/first_result.json, .csv and .md
  ringmark extract logs/ngc/mxnet/resnet50 --out result
      DLPerf's own logs
  ringmark extract results/first --format csv > first.csv
  ringmark extract results/first --format pytorch-ddp > first.json
      for diff.py of PyTorch's DDP benchmark; --format pytorch-ddp-lines prints its lines

Exit status 1 says that figures are not complete: what is not in them, and why, is on the standard error.";

/// Options of `ringmark extract`.
#[derive(Debug, Args)]
#[command(after_help = EXTRACT_EXAMPLES)]
pub struct ExtractOptions {
    /// Folder that holds CASE/rn50_bBATCH_DTYPE_RUN.log, with or without a record (.jsonl) beside each
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Folder for NAME_result.json, .csv and .md, NAME being the last part of FOLDER [default: FOLDER]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// First iterations of a run to leave out [default: as its record says, 20 without one]
    #[arg(long, value_name = "N")]
    warmup: Option<u32>,
    /// What to print; the files are written in any case
    #[arg(long, default_value = "table", value_parser = PossibleValuesParser::new(Format::WORDS).try_map(|word| word.parse::<Format>()))]
    format: Format,
    /// Write what `--format json` prints; without FILE to the standard output, in the place of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "format")]
    json: Option<PathBuf>,
}

impl ExtractOptions {
    /// Takes what was typed as it is; whether the folder is there is found out by reading it.
    pub fn into_config(self) -> ExtractConfig {
        let ExtractOptions { folder, out, warmup, format, json } = self;
        ExtractConfig { folder, out, warmup, format, json: json.into() }
    }
}
