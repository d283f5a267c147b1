//! Options of `ringmark check`.

use std::path::PathBuf;

use clap::Args;

use crate::cli::json::JsonOption;
use crate::read::check::CheckConfig;

const EXAMPLES: &str = "\
Examples:
  ringmark check results/rack7
      checks one result; exit status 1 if a check fails or is unknown
  ringmark check results/rack7 --json check.json
      the same for CI

Exit status 1: a check failed or is unknown.";

/// Options of `ringmark check`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckOptions {
    /// Folder that `ringmark sweep`, `score`, `bandwidth`, `input` or `checkpoint` wrote
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// JSON output.
    #[command(flatten)]
    json: JsonOption,
}

impl CheckOptions {
    /// Converts the parsed options.
    pub fn into_config(self) -> CheckConfig {
        CheckConfig { folder: self.folder, json: self.json.into_json() }
    }
}
