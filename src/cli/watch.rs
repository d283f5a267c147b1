//! Options of `ringmark watch`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::json::JsonOption;
use crate::launch::sweep::live::watch::WatchConfig;

const WATCH_EXAMPLES: &str = "\
Examples:
  ringmark watch results/rack7
      run, speed, slowest rank, position of each host, time left; ends with the sweep
  ringmark watch results/rack7 --json | jq .left
      prints the seconds left and exits

Exit status 0: the command succeeded (with --json: its progress was printed); 1: it failed or exited unexpectedly; \
2: FOLDER contains no progress.";

/// Options of `ringmark watch`.
#[derive(Debug, Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub struct WatchOptions {
    /// Folder of the running sweep, score, bandwidth, input or checkpoint: its --out
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

impl WatchOptions {
    /// Converts the options as typed.
    pub fn into_config(self) -> WatchConfig {
        WatchConfig { folder: self.folder, json: self.json.into_json() }
    }
}
