//! `--json [FILE]`, shared by every command that prints a table.

use std::path::{Path, PathBuf};

use clap::Args;
use ringmark_core::shell::CommandWords;

use crate::output::Json;

/// Destination of JSON output.
#[derive(Debug, Args)]
pub struct JsonOption {
    /// Write the output as JSON; without FILE to the standard output, instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

impl JsonOption {
    /// Converts the option as typed.
    pub fn into_json(self) -> Json {
        self.json.into()
    }
}

/// Moves `--json` to the end if a folder follows it: `extract --json FOLDER` means `extract FOLDER --json`.
pub fn before_folder(typed: CommandWords) -> CommandWords {
    let is_before = typed.own().windows(2).any(|pair| pair[0] == "--json" && Path::new(&pair[1]).is_dir());
    if is_before { typed.without_flag("--json").with_flag("--json") } else { typed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_after_json_is_not_its_file() {
        let folder = tempfile::tempdir().expect("a folder").keep();
        let name = folder.to_str().expect("ASCII");
        let moved = |words: &[&str]| before_folder(words.iter().collect()).texts();
        assert_eq!(moved(&["ringmark", "extract", "--json", name]), ["ringmark", "extract", name, "--json"]);
        let file = ["ringmark", "extract", "--json", "no/such/file", name];
        assert_eq!(moved(&file), file);
        std::fs::remove_dir(&folder).expect("empty");
    }
}
