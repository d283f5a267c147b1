//! Command-line interface: converts arguments to configuration. The only module of this package that uses clap.
//!
//! | module | content |
//! |---|---|
//! | [`generate`] | commands generated from the definitions: completions, man |
//! | [`json`] | the option of every command with a table |
//! | [`launch`] | commands that start jobs: sweep, run, alternate, score, bandwidth, input, checkpoint, goodput, accept; and doctor |
//! | [`pack`] | the command that creates data: pack |
//! | [`schema`] | the JSON Schema of files and responses |
//! | [`read`] | commands that read results: extract, check, diff, report, predict |
//! | [`watch`] | the command that shows a running job: watch |

pub mod generate;
pub mod json;
pub mod launch;
pub mod pack;
pub mod read;
pub mod schema;
pub mod watch;

use std::ffi::{OsStr, OsString};

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ringmark_core::dimension::Model;
use ringmark_core::options::help;
use ringmark_core::options::keyword_enum::KeywordEnum;
use ringmark_core::options::migration_hints::{self, MigrationHint, letters};
use ringmark_core::shell::CommandWords;

use crate::cli::generate::{CompletionsOptions, ManOptions};
use crate::cli::launch::accept::AcceptOptions;
use crate::cli::launch::alternate::AlternateOptions;
use crate::cli::launch::config_file;
use crate::cli::launch::doctor::DoctorOptions;
use crate::cli::launch::goodput::GoodputOptions;
use crate::cli::pack::PackOptions;
use crate::cli::read::check::CheckOptions;
use crate::cli::read::diff::DiffOptions;
use crate::cli::read::extract::{ExtractOptions, ExtractRequest};
use crate::cli::read::predict::PredictOptions;
use crate::cli::read::report::ReportOptions;
use crate::cli::schema::SchemaOptions;
use crate::cli::watch::WatchOptions;
use crate::launch::accept::command as accept;
use crate::launch::doctor::command as doctor;
use crate::launch::job::process;
use crate::launch::local::environment::{set_command, typed_command};
use crate::launch::sweep::{alternate, goodput, live};
use crate::output::message::print_error;
use crate::read::diff::DiffConfig;

const EXAMPLES: &str = "\
Examples:
  ringmark sweep --quick --out results/first
      a first look at this machine
  ringmark extract results/first
      its table: speed, speedup and efficiency; --explain adds a breakdown of the time
  ringmark sweep --hosts a:8,b:8 --out results/rack7
      two hosts of 8 GPUs; before, `ringmark doctor --hosts a:8,b:8` checks them

`ringmark COMMAND -h` lists common options with examples, `--help` all of them.";

/// Benchmark of data-parallel training: speed, scaling, and where the time goes.
#[derive(Debug, Parser)]
#[command(name = "ringmark", version, about, after_help = EXAMPLES)]
pub struct Cli {
    /// Selected command.
    #[command(subcommand)]
    pub command: Command,
}

/// Longest time in seconds without a line of another program: many print one every 100 iterations.
const RUN_STALL_TIMEOUT: &str = "600";

impl Cli {
    /// Returns the definition of all commands and options.
    fn program() -> clap::Command {
        let of_run = |run: clap::Command| run.mut_arg("stall_timeout", |limit| limit.default_value(RUN_STALL_TIMEOUT));
        help::grouped(Cli::command().mut_subcommand("run", of_run))
    }

    /// Parses the arguments and the options file; exits if help is requested or if parsing fails.
    pub fn read() -> Cli {
        let program = Cli::program();
        let with_long_names = with_long_out(&program, &typed_command());
        let typed = with_long_names.clone().unwrap_or_else(typed_command);
        if let Some(command) = config_file::inherit(&program, &typed).or(with_long_names) {
            set_command(command);
        }
        let arguments = config_file::expand(
            &program,
            json::before_folder(migration_hints::with_two_dashes(typed_command())),
            with_hint,
        );
        let cli = arguments.map_err(|error| vec![error]).and_then(|arguments| parse(&program, arguments));
        cli.unwrap_or_else(|errors| migration_hints::exit(&errors))
    }
}

/// Replaces `-o` by `--out` for commands in which it is its short form: manifests and messages contain commands, and their
/// readers look for `--out`. `None` if nothing is replaced.
fn with_long_out(program: &clap::Command, typed: &CommandWords) -> Option<CommandWords> {
    let command = program.find_subcommand(typed.subcommand()?)?;
    command.get_arguments().find(|option| option.get_id() == "out" && option.get_short() == Some('o'))?;
    let own = typed.own();
    let long = |(index, word): (usize, &OsString)| {
        let value = word.to_str()?.strip_prefix("-o")?;
        // The value may itself be an option, of another program.
        let is_value = index < 2 || own[index - 1] == "--launcher-args";
        (!is_value).then(|| match value.strip_prefix('=').unwrap_or(value) {
            "" => OsString::from("--out"),
            value => OsString::from(format!("--out={value}")),
        })
    };
    let words = own.iter().enumerate().map(|(index, word)| long((index, word)).unwrap_or_else(|| word.clone()));
    let replaced = typed.clone().with_own(words.collect());
    (replaced != *typed).then_some(replaced)
}

/// Maximum number of wrong options that are reported together.
const MAX_ERRORS: usize = 8;

/// Parses the arguments. After a wrong option, parses again without it, so that the errors name all wrong options.
fn parse(program: &clap::Command, mut arguments: CommandWords) -> Result<Cli, Vec<clap::Error>> {
    let mut errors = Vec::new();
    loop {
        let matches = program.clone().try_get_matches_from(arguments.words());
        let notes = matches.as_ref().map_or_else(|_| Vec::new(), |matches| notes_on_aliases(program, matches));
        let error = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
            Ok(cli) if errors.is_empty() => {
                notes.iter().for_each(|note| print_error(note));
                return Ok(cli);
            }
            Ok(_) => return Err(errors),
            Err(error) => error,
        };
        let others = without_wrong_option(&arguments, &error);
        // Without the wrong options, others may be missing.
        if errors.is_empty() || others.is_some() {
            errors.push(with_hint(error, &typed_command().texts()));
        }
        match others {
            Some(others) if errors.len() < MAX_ERRORS => arguments = others,
            _ => return Err(errors),
        }
    }
}

/// Returns a note for each typed value of a command that starts jobs if it is another name of a keyword.
fn notes_on_aliases(program: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let of_command = || {
        let (name, matches) = matches.subcommand()?;
        let starts_jobs = name == "goodput" || launch::Benchmark::has_subcommand(name);
        Some((program.find_subcommand(name).filter(|_| starts_jobs)?, matches))
    };
    let Some((command, matches)) = of_command() else { return Vec::new() };
    let note = |option: &Arg| {
        let name = option.get_long()?;
        let values = matches.get_raw(option.get_id().as_str())?.filter_map(OsStr::to_str);
        let keywords = option.get_possible_values();
        let keyword = |value: &str| keywords.iter().find(|keyword| keyword.matches(value, false));
        let read = values.filter_map(|value| Some((value, keyword(value)?.get_name())));
        let aliases = read.filter(|(value, keyword)| letters(value) != letters(keyword));
        let notes = aliases.map(|(value, keyword)| format!("note: --{name} {value} is read as {keyword}"));
        Some(notes.collect::<Vec<_>>())
    };
    command.get_arguments().filter_map(note).flatten().collect()
}

/// Returns `arguments` without the option that caused `error` and its value; `None` for an error of another kind.
fn without_wrong_option(arguments: &CommandWords, error: &clap::Error) -> Option<CommandWords> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidValue | ErrorKind::ValueValidation) {
        return None;
    }
    let (option, value) = (text(ContextKind::InvalidArg)?.split(' ').next()?, text(ContextKind::InvalidValue));
    if arguments.subcommand() == Some("run") && !option.starts_with('-') {
        // The words after it belong to the program.
        return None;
    }
    let words = arguments.texts();
    let is_option = |word: &str| match word.strip_prefix(option) {
        Some(rest) => rest.is_empty() || rest.starts_with('=') || (option.len() == 2 && option.starts_with('-')),
        None => false,
    };
    // An alias is found by its value.
    let of_value = || words.iter().skip(1).position(|word| Some(word.as_str()) == value);
    let place = words.iter().position(|word| is_option(word)).or_else(of_value)?;
    let is_value = |word: &String| Some(word.as_str()) == value || !word.starts_with('-');
    let has_value = words[place].starts_with('-') && !words[place].contains('=');
    let number = if has_value && words.get(place + 1).is_some_and(is_value) { 2 } else { 1 };
    let others = arguments.words().enumerate().filter(|(index, _)| !(place..place + number).contains(index));
    Some(others.map(|(_, word)| word).collect())
}

/// Adds a migration hint to an error caused by an option of another program.
fn with_hint(error: clap::Error, typed: &[String]) -> clap::Error {
    let hints: &[&[MigrationHint]] = match typed.get(1).map(String::as_str) {
        Some("bandwidth") => {
            &[migration_hints::BANDWIDTH_HINTS, migration_hints::LAUNCHER_HINTS, migration_hints::COMMON_HINTS]
        }
        Some("pack") => &[migration_hints::PACK_HINTS],
        Some("checkpoint") => {
            &[migration_hints::CHECKPOINT_HINTS, migration_hints::LAUNCHER_HINTS, migration_hints::COMMON_HINTS]
        }
        Some(command) if ["goodput", "alternate"].contains(&command) || launch::Benchmark::has_subcommand(command) => {
            &[migration_hints::LAUNCHER_HINTS, migration_hints::COMMON_HINTS]
        }
        Some("doctor" | "accept") => {
            &[migration_hints::HOST_HINTS, migration_hints::READER_HINTS, migration_hints::LAUNCHER_HINTS]
        }
        Some(option) if option.starts_with('-') => &[migration_hints::LAUNCHER_HINTS, migration_hints::COMMON_HINTS],
        _ => &[migration_hints::READER_HINTS],
    };
    let mut error = migration_hints::with_hint::<Model>(error, hints, typed);
    if error.get(ContextKind::Suggested).is_some() {
        return error;
    }
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let tip = match (error.kind(), word(ContextKind::InvalidArg), word(ContextKind::InvalidSubcommand)) {
        (ErrorKind::UnknownArgument, Some(word), _) => match word.parse::<Model>() {
            Ok(model) => Some(format!("`--model {model}`")),
            Err(_) if word.starts_with('-') => None,
            Err(_) => takes_out(typed).then(|| format!("`--out {word}` if this is the folder for the results")),
        },
        (ErrorKind::InvalidSubcommand, _, Some(word)) => {
            word.parse::<Model>().ok().map(|model| format!("`ringmark sweep --model {model}`"))
        }
        (ErrorKind::InvalidValue, Some(option), _) if option.starts_with("--model") => Some(networks()),
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::ValidValue);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
    error
}

/// Lists ringmark's networks in several lines, as a tip.
fn networks() -> String {
    const WIDTH: usize = 100;
    let (mut text, mut width) = ("the networks are".to_owned(), 0);
    for network in Model::ALL.iter().filter(|model| model.is_built_in()) {
        let keyword = network.keyword();
        (width, text) = match width + keyword.len() > WIDTH {
            true => (keyword.len(), format!("{text}\n       {keyword},")),
            false => (width + keyword.len() + 2, format!("{text} {keyword},")),
        };
    }
    text.trim_end_matches(',').to_owned()
}

/// Returns true for a command that writes a folder of results and takes no word without an option.
fn takes_out(typed: &[String]) -> bool {
    typed.get(1).is_some_and(|command| {
        ["sweep", "score", "bandwidth", "checkpoint", "goodput", "accept"].contains(&command.as_str())
    })
}

/// Subcommand of the program.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Benchmark to run.
    #[command(flatten)]
    Benchmark(launch::Benchmark),
    /// Run several sweeps in turn, one run of each per round, and compare them
    ///
    /// Drift of the machine then affects all of them alike.
    Alternate(AlternateOptions),
    /// Measure what checkpoints and failures cost: goodput by interval between checkpoints
    ///
    /// Trains under failures at random times, shows the lost time by cause, and predicts the goodput of other numbers of
    /// hosts.
    Goodput(Box<GoodputOptions>),
    /// Follow a sweep that runs in another shell or on another host
    Watch(WatchOptions),
    /// Check every host (ssh, programs, devices, network); print each problem with its fix
    Doctor(DoctorOptions),
    /// Find the hosts, GPUs and links of a cluster that are not fit
    ///
    /// Runs short jobs on every host alone, on pairs, on groups and on all of them, and compares the hosts.
    Accept(Box<AcceptOptions>),
    /// Print the figures of a result, and write them as JSON, CSV and Markdown
    Extract(ExtractOptions),
    /// Check that a result is complete, unedited, consistent and reliable
    Check(CheckOptions),
    /// Compare two results: each difference with its 95 % interval and a verdict
    Diff(DiffOptions),
    /// Show one result or several as an HTML page, an SVG chart, Markdown or tables
    Report(ReportOptions),
    /// Predict larger cases, each as a range, from a sweep of several cases (of several hosts, to predict more hosts)
    Predict(PredictOptions),
    /// Pack a folder of images into one RecordIO file, as MXNet's im2rec.py does
    Pack(PackOptions),
    /// Print the JSON Schema of a file or of --json output
    Schema(SchemaOptions),
    /// Print a shell completion script
    Completions(CompletionsOptions),
    /// Write man pages of all commands
    Man(ManOptions),
    /// Run a command that ends with its parent process; used to start mpirun
    #[command(hide = true)]
    RunWithParent(RunWithParentOptions),
}

impl Command {
    /// Runs the command.
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Command::Benchmark(benchmark) => benchmark.run(),
            Command::Alternate(options) => options.into_config().and_then(|config| {
                alternate::run(&config)?;
                config.pairs().try_for_each(|[base, test]| crate::read::diff::run(&DiffConfig::new(base, test)))
            }),
            Command::Goodput(options) => {
                options.into_config().and_then(|config| goodput::run(&config, crate::read::goodput::tables))
            }
            Command::Watch(options) => live::watch::run(&options.into_config(), crate::read::extract::summary),
            Command::Doctor(options) => options.into_config().and_then(|config| doctor::run(&config)),
            Command::Accept(options) => options.into_config().and_then(|config| accept::run(&config)),
            Command::Extract(options) => options.into_request().and_then(|request| match request {
                ExtractRequest::Figures(config) => crate::read::extract::run(&config),
                ExtractRequest::Export(config) => crate::read::export::run(&config),
            }),
            Command::Check(options) => crate::read::check::run(&options.into_config()),
            Command::Diff(options) => crate::read::diff::run(&options.into_config()),
            Command::Report(options) => crate::read::report::run(&options.into_config()),
            Command::Predict(options) => crate::read::predict::run(&options.into_config()),
            Command::Pack(options) => options.into_config().and_then(|config| crate::pack::run(&config)),
            Command::Schema(options) => options.print(),
            Command::Completions(options) => options.print(&Cli::program()),
            Command::Man(options) => options.write(&Cli::program()),
            Command::RunWithParent(options) => process::run_with_parent(options.launcher, &options.command),
        }
    }
}

/// Options of `ringmark run-with-parent`.
#[derive(Debug, Args)]
pub struct RunWithParentOptions {
    /// Process ID of the parent, the launcher
    pub launcher: i32,
    /// Command line to run
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// Returns the commands in the examples: lines that start with the program's name, possibly after another program.
    fn typed(examples: &str) -> impl Iterator<Item = &str> {
        examples.lines().filter_map(|line| {
            let line = line.strip_prefix("  ").filter(|line| !line.starts_with(' '))?;
            let end = [" | ", " > ", " && "].iter().filter_map(|end| line.find(end)).min().unwrap_or(line.len());
            line[..end].find("ringmark ").map(|start| &line[start..end])
        })
    }

    #[test]
    fn short_out_is_replaced_where_it_means_a_folder() {
        let program = Cli::program();
        let of = |line: &str| with_long_out(&program, &line.split(' ').collect()).map(|words| words.to_string());
        for (line, long) in [
            ("ringmark sweep -o a --resume", Some("ringmark sweep --out a --resume")),
            ("ringmark score -oa", Some("ringmark score --out=a")),
            ("ringmark run -o=a -- mpirun -o b", Some("ringmark run --out=a -- mpirun -o b")),
            ("ringmark sweep --launcher-args -o --out a", None),
            ("ringmark bandwidth -o sum", None),
            ("ringmark -o", None),
            ("ringmark", None),
        ] {
            assert_eq!(of(line).as_deref(), long, "{line}");
        }
        for command in program.get_subcommands().filter(|command| command.get_name() != "bandwidth") {
            let out = command.get_arguments().find(|option| option.get_id() == "out");
            assert!(out.is_none_or(|out| out.get_short() == Some('o')), "{}", command.get_name());
        }
    }

    #[test]
    fn other_names_of_values_are_noted() {
        let program = Cli::program();
        let notes = |line: &str| {
            let matches = program.clone().try_get_matches_from(line.split(' ')).expect(line);
            notes_on_aliases(&program, &matches).join("\n") + "\n"
        };
        let lines = [
            "ringmark sweep --dtype amp --launcher ssh --strategies horovod,zero-3 --model resnet50",
            "ringmark sweep --dtype fp16 --launcher mpirun --strategy allreduce",
            "ringmark goodput --mtbf 10m --dtype amp",
            "ringmark report x --format md",
        ];
        expect![[r#"
            note: --launcher ssh is read as mpirun
            note: --strategies horovod is read as all-reduce
            note: --strategies zero-3 is read as fsdp
            note: --model resnet50 is read as resnet50_v1b
            note: --dtype amp is read as fp16

            note: --dtype amp is read as fp16

        "#]]
        .assert_eq(&lines.map(notes).concat());
    }

    #[test]
    fn every_option_is_in_a_help_group() {
        Cli::program().debug_assert();
        assert_eq!(help::without_group(&Cli::command()), Vec::<String>::new());
    }

    #[test]
    fn every_command_has_valid_examples() {
        let program = Cli::command();
        program.clone().debug_assert();
        let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
        for command in commands.chain([&program]) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = typed(&help).collect();
            assert!(!lines.is_empty(), "{} has no examples", command.get_name());
            for line in lines {
                let arguments = shell_words::split(line).expect("arguments");
                assert!(command.get_name() == "ringmark" || arguments[1] == command.get_name(), "{line}");
                if let Err(error) = Cli::try_parse_from(arguments) {
                    panic!("{line}: {error}");
                }
            }
        }
    }
}
