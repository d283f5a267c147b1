//! Options in a TOML file: `--config FILE` inserts them before those on the command line, and `--dry-run --save-config
//! FILE` writes them with all others as comments. clap parses the values of a file as it parses typed ones.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail, ensure};
use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Id};
use ringmark_core::accept::Header;
use ringmark_core::benchmark::score::ScoreConfig;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::manifest::Manifest;
use ringmark_core::options::option_table::{self, Options, Setting};
use ringmark_core::options::usage::ERROR;
use ringmark_core::shell::{self, CommandWords};
use toml::{Table, Value};

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::job::launcher::SavedConfig;

const CONFIG: &str = "config";

const SAVE_CONFIG: &str = "save-config";

/// Options of a single start, not of a sweep; rejected in a file.
const COMMAND_LINE_ONLY: [&str; 6] = [CONFIG, SAVE_CONFIG, "dry-run", "verbose", "resume", "repeat"];

/// Options that are not saved: destinations and monitoring belong to a single start, and the rest duplicate others.
const NOT_SAVED: [&str; 7] = ["out", "json", "quick", "hostfile", "metrics-port", "metrics-bind", "watch-ranks"];

/// Command that keeps a journal instead of a manifest.
const ACCEPT: &str = "accept";

/// Key of the command that the options in a file belong to.
const COMMAND: &str = "command";

/// `--config` and `--save-config`, with all options of the command.
#[derive(Debug)]
pub struct ConfigFileOptions {
    save: Option<PathBuf>,
    /// Options from the command line or the file.
    given: Vec<Setting>,
    /// Options with their default values.
    defaults: Vec<Setting>,
}

impl Args for ConfigFileOptions {
    fn augment_args(command: Command) -> Command {
        let file =
            |name: &'static str| Arg::new(name).long(name).value_name("FILE").value_parser(ValueParser::path_buf());
        command
            .arg(file(CONFIG).help(
                "Take options from this TOML file, as --dry-run --save-config writes it; command-line options take \
                 precedence",
            ))
            .arg(file(SAVE_CONFIG).requires("dry_run").help(
                "With --dry-run: write the given options to this file, for --config; the others with their values as \
                 comments",
            ))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFileOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ConfigFileOptions, clap::Error> {
        let settings = |source: ValueSource| {
            let mut settings: Vec<Setting> = given(matches, source).map(|id| setting(matches, id)).collect();
            // An unset flag.
            settings.retain(|setting| setting.values != ["false"]);
            settings.sort();
            settings
        };
        Ok(ConfigFileOptions {
            save: matches.get_one::<PathBuf>(SAVE_CONFIG).cloned(),
            given: settings(ValueSource::CommandLine),
            defaults: settings(ValueSource::DefaultValue),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns every option whose value comes from `source`.
fn given(matches: &ArgMatches, source: ValueSource) -> impl Iterator<Item = &Id> {
    let is_given = move |id: &&Id| matches.value_source(id.as_str()) == Some(source);
    // The values of a group are IDs of options; those of an option are not.
    let is_option = |id: &&Id| matches.try_get_one::<Id>(id.as_str()).is_err();
    matches.ids().filter(is_given).filter(is_option)
}

/// Returns an option with its values as given.
fn setting(matches: &ArgMatches, id: &Id) -> Setting {
    let values = matches.get_raw(id.as_str()).into_iter().flatten();
    let values = values.map(|value| value.to_string_lossy().into_owned()).collect();
    Setting::new(id.as_str().replace('_', "-"), values)
}

impl ConfigFileOptions {
    /// Returns the file to write for `command`, if requested: the given options and `filled_in`, which takes
    /// precedence. Values that were not given are comments, so that the file fits other machines. Given hosts are written
    /// with their slots.
    pub(super) fn into_saved<C: Options + Default>(
        self,
        command: &str,
        hosts: &Hosts,
        mut filled_in: Vec<Setting>,
    ) -> Option<SavedConfig> {
        let path = self.save?;
        let defaults = option_table::filled_in(&C::default());
        if self.given.iter().any(|setting| ["hosts", "hostfile"].contains(&setting.name.as_str())) {
            let hosts: Vec<String> = hosts.all().iter().map(|Host { name, slots }| format!("{name}:{slots}")).collect();
            filled_in.insert(0, Setting::new("hosts", vec![hosts.join(",")]));
        }
        let is_saved = |Setting { name, .. }: &&Setting| {
            let mut others = COMMAND_LINE_ONLY.iter().chain(&NOT_SAVED).copied();
            others.all(|other| other != name) && filled_in.iter().all(|other| other.name != *name)
        };
        let mut text = format!(
            "# ringmark {command} --config {}\n#\n# Command-line options take precedence over this file.\n{COMMAND} = {}\n\n",
            shell::quote(&path.display().to_string()),
            value(command)
        );
        let line = |Setting { name, values, .. }: &Setting| match &values[..] {
            [] => None,
            [single] => Some(format!("{name} = {}\n", value(single))),
            several => {
                let list = Value::Array(several.iter().map(|text| value(text)).collect());
                Some(format!("{name} = {list}\n"))
            }
        };
        let is_given = |name: &str| self.given.iter().any(|given| given.name == name);
        let is_default = |setting: &&Setting| {
            let name = setting.name.as_str();
            let is_derived = setting.is_derived || is_set_by_profile(name) || defaults.contains(setting);
            is_derived && !is_given(name) && !(name == "profile" && is_given("quick"))
        };
        let (defaults, chosen): (Vec<&Setting>, Vec<&Setting>) = filled_in.iter().partition(is_default);
        text.extend(self.given.iter().filter(is_saved).chain(chosen).filter_map(line));
        text += "\n# Not given, with the values for this machine:\n";
        let defaults = self.defaults.iter().filter(is_saved).chain(defaults);
        text.extend(defaults.filter_map(line).map(|line| format!("# {line}")));
        Some(SavedConfig { path, text })
    }
}

/// Returns true if each profile gives the option of this name a value.
fn is_set_by_profile(name: &str) -> bool {
    name == "runs"
        || option_table::is_set_by_profile::<TrainConfig>(name)
        || option_table::is_set_by_profile::<ScoreConfig>(name)
}

/// Converts to a TOML boolean, number or string.
fn value(text: &str) -> Value {
    let number = || Some(Value::Float(text.parse().ok().filter(|number: &f64| number.is_finite())?));
    match text.parse() {
        Ok(number) => Value::Integer(number),
        Err(_) if text == "true" => Value::Boolean(true),
        Err(_) => number().unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

/// Inserts the options of the `--config` file before the typed ones. Errors are about the file; `explain` may extend
/// them, given the arguments that the file stands for. A typed profile overrides the options that a profile sets.
pub fn expand(
    program: &Command,
    typed: CommandWords,
    explain: fn(clap::Error, &[String]) -> clap::Error,
) -> Result<CommandWords, clap::Error> {
    // Errors on the command line itself are reported when all of it is parsed.
    let Ok(matches) = program.clone().ignore_errors(true).try_get_matches_from(typed.words()) else { return Ok(typed) };
    let Some((name, matches)) = matches.subcommand() else { return Ok(typed) };
    let (Some(command), Ok(Some(path))) = (program.find_subcommand(name), matches.try_get_one::<PathBuf>(CONFIG))
    else {
        return Ok(typed);
    };
    let in_file = |what: String| clap::Error::raw(ErrorKind::InvalidValue, format!("{}: {what}\n", path.display()));
    let options = read(path, name).map_err(|error| in_file(format!("{error:#}")))?;
    let start = [program.get_name().to_owned(), name.to_owned()];
    let alone: Vec<String> = start.into_iter().chain(options.iter().flat_map(arguments)).collect();
    if let Err(error) = program.clone().try_get_matches_from(&alone) {
        let text = explain(error, &alone).render().to_string();
        return Err(in_file(text.trim_start_matches(ERROR).trim_end().to_owned()));
    }
    let of_file = options.iter().filter(|option| !is_overridden(option, command, matches)).flat_map(arguments);
    Ok(typed.with_first(of_file))
}

/// Adds the options of the sweep in `--out` that the typed ones do not override, with `--resume`; `None` if nothing is
/// added.
pub fn inherit(program: &Command, typed: &CommandWords) -> Option<CommandWords> {
    let is_of_start =
        |id: &&Id| id.as_str() == "out" || COMMAND_LINE_ONLY.contains(&id.as_str().replace('_', "-").as_str());
    let matches = program.clone().ignore_errors(true).try_get_matches_from(typed.words()).ok()?;
    let (name, matches) = matches.subcommand()?;
    let command = program.find_subcommand(name)?;
    let is_resumed =
        matches.try_get_one::<bool>("resume").ok()? == Some(&true) && !matches.try_contains_id(CONFIG).unwrap_or(false);
    let out = matches.try_get_one::<PathBuf>("out").ok()?.filter(|_| is_resumed)?;
    // The command itself reports an unreadable manifest or journal.
    let earlier = match name {
        ACCEPT => Header::find(out).ok()??.command,
        _ => Manifest::find(out).ok()??.command,
    };
    let words = expand(program, earlier.into_iter().collect(), |error, _| error).ok()?;
    let earlier = program.clone().try_get_matches_from(words.words()).ok()?;
    let (_, earlier) = earlier.subcommand().filter(|(earlier, _)| *earlier == name)?;
    let is_own = |id: &&Id| !is_of_start(id) && id.as_str() != PROGRAM_WORDS;
    let inherited = given(earlier, ValueSource::CommandLine).filter(is_own).map(|id| setting(earlier, id));
    let inherited = inherited.filter(|option| !is_overridden(option, command, matches));
    let inherited = inherited.flat_map(|option| arguments(&option).collect::<Vec<_>>());
    Some(typed.clone().with_first(inherited).with_rest_of(&words))
}

/// Argument that holds the words of another program.
const PROGRAM_WORDS: &str = "command";

/// Reads the options in a file for `command`, without parsing their values.
fn read(path: &Path, command: &str) -> anyhow::Result<Vec<Setting>> {
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => anyhow!("file not found: correct the path, or write one with --save-config"),
        _ => anyhow!("the file cannot be read: {error}"),
    })?;
    let mut table: Table = text.parse().map_err(|error: toml::de::Error| {
        let line = 1 + error.span().map_or(0, |span| text[..span.start].matches('\n').count());
        anyhow!("line {line} is not valid TOML: {}", error.message())
    })?;
    if let Some((name, _)) = table.iter().find(|(_, value)| value.is_table()) {
        bail!("[{name}]: the file has no sections: write every option on a line of its own, such as batch-size = 8");
    }
    if let Some(of) = table.remove(COMMAND) {
        ensure!(of.as_str() == Some(command), "{COMMAND} = {of}: the file is not for `ringmark {command}`");
    }
    // Records spell options with underscores.
    let setting = |(name, value): (String, Value)| {
        let name = name.replace('_', "-");
        Ok(Setting::new(name.as_str(), texts(&name, value)?))
    };
    table.into_iter().map(setting).collect()
}

fn texts(name: &str, value: Value) -> anyhow::Result<Vec<String>> {
    ensure!(!COMMAND_LINE_ONLY.contains(&name), "{name}: not allowed in a file: use the command-line option --{name}");
    Ok(match value {
        Value::String(text) => vec![text],
        Value::Integer(number) => vec![number.to_string()],
        Value::Float(number) => vec![number.to_string()],
        Value::Boolean(truth) => vec![truth.to_string()],
        Value::Array(values) => {
            let texts = values.into_iter().map(|value| texts(name, value)).collect::<anyhow::Result<Vec<_>>>()?;
            texts.concat()
        }
        Value::Datetime(_) | Value::Table(_) => {
            bail!("{name} = {value}: expected a string, a number, true, or a list of them")
        }
    })
}

/// Returns an option as command-line arguments, one for each value.
fn arguments(Setting { name, values, .. }: &Setting) -> impl Iterator<Item = String> {
    values.iter().filter_map(move |value| match value.as_str() {
        "true" => Some(format!("--{name}")),
        "false" => None,
        value => Some(format!("--{name}={value}")),
    })
}

fn has_name(option: &Arg, name: &str) -> bool {
    option.get_long() == Some(name) || option.get_all_aliases().into_iter().flatten().any(|alias| alias == name)
}

/// Returns true if a typed option overrides this one of a file or an earlier sweep.
fn is_overridden(setting: &Setting, command: &Command, typed: &ArgMatches) -> bool {
    let options = || command.get_arguments();
    let Some(option) = options().find(|option| has_name(option, &setting.name)) else { return false };
    let typed = given(typed, ValueSource::CommandLine);
    typed.filter_map(|id| options().find(|typed| typed.get_id() == id)).any(|typed| overrides(command, typed, option))
}

/// Returns true if a typed option overrides that of a file: it is the same option, the two are mutually exclusive, or
/// it is a profile, and profiles set the other.
fn overrides(command: &Command, typed: &Arg, option: &Arg) -> bool {
    let conflicts = |one: &Arg, other: &Arg| command.get_arg_conflicts_with(one).contains(&other);
    let is_profile = ["profile", "quick"].map(Some).contains(&typed.get_long());
    typed.get_id() == option.get_id()
        || conflicts(typed, option)
        || conflicts(option, typed)
        || (is_profile && option.get_long().is_some_and(is_set_by_profile))
}
