//! Shell completions and man pages, generated from the definitions of the commands.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command, ValueHint};
use clap_complete::Shell;

use crate::output;

/// Returns the program without its hidden commands, which clap_complete would offer.
fn without_hidden_commands(program: &Command) -> Command {
    let shown = program.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let empty = Command::new("ringmark").version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    let about = program.get_about().cloned().unwrap_or_default();
    let examples = program.get_after_help().cloned().unwrap_or_default();
    empty.about(about).after_help(examples)
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  ringmark completions bash > ~/.local/share/bash-completion/completions/ringmark
      for the current user's bash; takes effect in the next shell
  ringmark completions zsh > ~/.zfunc/_ringmark
      for zsh, where fpath has ~/.zfunc";

/// Options of `ringmark completions`.
#[derive(Debug, Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub struct CompletionsOptions {
    /// Shell to complete for
    shell: Shell,
}

impl CompletionsOptions {
    /// Prints the completion script of `program`.
    pub fn print(&self, program: &Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut without_hidden_commands(program), "ringmark", &mut script);
        output::print_raw(&String::from_utf8(script)?)
    }
}

const MAN_EXAMPLES: &str = "\
Examples:
  ringmark man ~/.local/share/man/man1
      then: man ringmark-sweep
  ringmark man . && man -l ringmark.1
      without installing anything";

/// Options of `ringmark man`.
#[derive(Debug, Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManOptions {
    /// Folder for ringmark.1 and a page for every command; created if missing
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folder: PathBuf,
}

impl ManOptions {
    /// Writes the man pages of `program`.
    pub fn write(&self, program: &Command) -> anyhow::Result<()> {
        let write = || {
            fs::create_dir_all(&self.folder)?;
            clap_mangen::generate_to(without_hidden_commands(program), &self.folder)
        };
        write().with_context(|| format!("the pages cannot be written to {}", self.folder.display()))
    }
}
