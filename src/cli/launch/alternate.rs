//! Options of `ringmark alternate`.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use ringmark_core::options::usage::usage;
use ringmark_core::options::value::number;
use ringmark_core::shell::CommandWords;

use crate::launch::local::results_folder;
use crate::launch::sweep::alternate::{AlternateConfig, Side};

const EXAMPLES: &str = "\
Examples:
  ringmark alternate 'sweep --cases 1n8g --layout nchw' 'sweep --cases 1n8g --layout nhwc' --names nchw,nhwc
      did this option help? Five runs of each, in turn, and their difference
  ringmark alternate 'run --batch-size 64 --lines horovod -- python synthetic.py' 'sweep --batch-size 64' --runs 3
      another trainer and ringmark's own step

Exit status 1: a command failed, or the results cannot be compared; 2: a usage error; 130: Ctrl-C.";

/// Commands that keep runs in a folder and continue with more of them.
const COMMANDS: [&str; 3] = ["sweep", "run", "score"];

/// Options of these commands that each round sets.
const OWN_OPTIONS: [&str; 4] = ["--out", "-o", "--runs", "--resume"];

/// Options of `ringmark alternate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct AlternateOptions {
    /// Commands in quotes: sweep, run or score with their options, except --out, --runs and --resume
    #[arg(value_name = "COMMAND", required = true, num_args = 1..)]
    commands: Vec<String>,
    /// Names of the commands, in their order [default: a,b,..]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    names: Vec<String>,
    /// Runs of each command, one in each round
    #[arg(long, value_name = "N", default_value = "5", value_parser = number(1..=1000_u32))]
    runs: u32,
    /// Folder of the results, with a folder for each command [default: results/TIME_alternate]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Continue the rounds in --out
    #[arg(long, requires = "out")]
    resume: bool,
}

impl AlternateOptions {
    /// Fills in defaults and checks the options.
    pub fn into_config(self) -> anyhow::Result<AlternateConfig> {
        let commands: Vec<_> =
            self.commands.iter().map(|text| command(text)).collect::<Result<_, _>>().map_err(usage)?;
        ensure!(
            commands.len() > 1,
            usage(anyhow!(
                "alternate compares several commands, but there is only one: add another in quotes, as in ringmark alternate \
                 'sweep --layout nchw' 'sweep --layout nhwc'"
            ))
        );
        let names = if self.names.is_empty() {
            ('a'..='z').take(commands.len()).map(String::from).collect()
        } else {
            self.names
        };
        check_names(&names, commands.len()).map_err(usage)?;
        let sides = names.into_iter().zip(commands).map(|(name, command)| Side { name, command });
        Ok(AlternateConfig {
            sides: sides.collect(),
            rounds: self.runs,
            out: self.out.unwrap_or_else(|| results_folder::default_path("alternate", SystemTime::now())),
            resume: self.resume,
        })
    }
}

/// Parses a command, with the program or without.
fn command(text: &str) -> anyhow::Result<CommandWords> {
    let words = shell_words::split(text).with_context(|| format!("{text:?} is not a command"))?;
    let words = words.into_iter().skip_while(|word| word == "ringmark");
    let command: CommandWords = ["ringmark".to_owned()].into_iter().chain(words).collect();
    ensure!(
        command.subcommand().is_some_and(|name| COMMANDS.contains(&name)),
        "{text:?} does not begin with {}: give each command with its options in quotes",
        COMMANDS.join(", ")
    );
    if let Some(option) = OWN_OPTIONS.iter().find(|option| command.has(option)) {
        return Err(anyhow!("{option} in {text:?}: each round sets it; omit it there"));
    }
    Ok(command)
}

fn check_names(names: &[String], commands: usize) -> anyhow::Result<()> {
    ensure!(names.len() == commands, "--names lists {} names for {commands} commands", names.len());
    for (index, name) in names.iter().enumerate() {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        ensure!(
            name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(is_plain),
            "--names: {name:?} is not the name of a folder: use letters, digits, hyphens and underscores"
        );
        ensure!(!names[..index].contains(name), "--names lists {name} twice");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn commands_and_names_are_checked() {
        let words = command("ringmark run --lines '(?P<ms>[0-9]+) ms' -- train --out x").expect("a command");
        assert_eq!(words.to_string(), "ringmark run --lines '(?P<ms>[0-9]+) ms' -- train --out x");
        let error = |result: anyhow::Result<()>| format!("{:#}\n", result.expect_err("an error"));
        let of = |text: &str| error(command(text).map(drop));
        let names =
            |names: &[&str]| error(check_names(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), 2));
        let errors = [
            of("bandwidth --hosts a"),
            of("sweep --runs=3"),
            of("sweep 'x"),
            names(&["a"]),
            names(&["a", "../b"]),
            names(&["a", "a"]),
        ];
        expect![[r#"
            "bandwidth --hosts a" does not begin with sweep, run, score: give each command with its options in quotes
            --runs in "sweep --runs=3": each round sets it; omit it there
            "sweep 'x" is not a command: missing closing quote
            --names lists 1 names for 2 commands
            --names: "../b" is not the name of a folder: use letters, digits, hyphens and underscores
            --names lists a twice
        "#]]
        .assert_eq(&errors.concat());
    }
}
