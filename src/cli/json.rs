//! `--json [FILE]`, the same in every command that prints a table.

use std::path::PathBuf;

use clap::Args;

use crate::output::Json;

/// Whether and where the answer goes as JSON.
#[derive(Debug, Args)]
pub struct JsonOption {
    /// Write the figures as JSON; without FILE to the standard output instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl JsonOption {
    /// As typed.
    pub fn into_json(self) -> Json {
        self.json.into()
    }
}
