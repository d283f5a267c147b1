//! Help of commands: one line per option and three examples in `-h`, everything in `--help`. Commands with many options
//! have groups, and `-h` lists the common ones.

use clap::{Arg, Command};

/// Options under one heading of the help, by name without dashes.
struct Group {
    heading: &'static str,
    /// Listed in `-h` and `--help`.
    common: &'static [&'static str],
    /// Listed in `--help` only.
    others: &'static [&'static str],
}

/// Number of options above which the help of a command is grouped: that of benchmarks, but not that of the doctor.
const MANY_OPTIONS: usize = 25;

/// Options of grouped commands, in the order of the help within each heading. Headings appear in the order in which the
/// commands declare the first option of each.
const GROUPS: [Group; 7] = [
    Group {
        heading: "What to run",
        common: &[
            "quick",
            "profile",
            "suite",
            "mtbf",
            "duration",
            "checkpoint-intervals",
            "cases",
            "folder",
            "op",
            "begin",
            "end",
            "factor",
            "model",
            "size",
            "writers",
            "io",
            "mode",
            "dtype",
            "batch-size",
            "lines",
            "start",
            "iters",
            "runs",
            "cache",
            "against",
            "fold",
            "check",
            "min-busbw",
        ],
        others: &[
            "config",
            "models",
            "dtypes",
            "batch-sizes",
            "global-batch",
            "program",
            "program-start",
            "program-lines",
            "program-finds-warmup",
            "sequence-length",
            "sequence-lengths",
            "batch-factor",
            "redop",
            "root",
            "increment",
            "files",
            "arrays",
            "pairs",
            "network",
            "num-layers",
            "seconds",
            "batches",
            "disp-batches",
            "warmup",
            "cooldown",
            "image-size",
            "work-load",
            "accumulate",
            "micro-batch",
            "recompute",
            "threads",
            "cores-divided-by",
            "bind",
            "layout",
            "kernels",
            "graphs",
            "fingerprint",
            "seed",
        ],
    },
    Group {
        heading: "Output",
        common: &["out", "resume", "json", "dry-run"],
        others: &[
            "verbose",
            "repeat",
            "save-config",
            "record",
            "save",
            "case",
            "run",
            "trace",
            "trace-runs",
            "trace-iterations",
            "trace-format",
            "profile-layers",
            "profile-operators",
            "format",
            "metrics-port",
            "metrics-bind",
            "watch-ranks",
        ],
    },
    Group {
        heading: "Hosts",
        common: &["hosts", "hostfile", "launcher", "device", "interface", "sync"],
        others: &["gpus", "launcher-args", "ssh-port", "worker", "no-doctor"],
    },
    Group {
        heading: "Time limits and faults",
        common: &["timeout", "stall-timeout"],
        others: &["restarts", "spare-hosts", "failures", "failure-seed", "predict-hosts", "host-mtbf", "inject"],
    },
    Group {
        heading: "Gradient exchange",
        common: &["backend", "wire", "strategy"],
        others: &[
            "strategies",
            "hierarchical",
            "nccl-algo",
            "overlap",
            "bucket-mb",
            "tail-mb",
            "chunk-kb",
            "gradient-compression",
            "servers",
            "server-hosts",
            "key-placement",
            "autotune",
            "autotune-log",
            "autotune-over",
        ],
    },
    Group {
        heading: "Training recipe",
        common: &["epochs"],
        others: &[
            "validate",
            "lr",
            "lr-warmup-iters",
            "lr-schedule",
            "lr-step-epochs",
            "lr-factor",
            "optimizer",
            "momentum",
            "adam-beta1",
            "adam-beta2",
            "adam-eps",
            "weight-decay",
            "weight-decay-on",
            "clip-norm",
            "loss-scale",
            "label-smoothing",
            "dropout",
            "freeze-batch-norm",
            "init",
            "checkpoint",
            "checkpoint-every",
            "checkpoint-mode",
            "from-checkpoint",
        ],
    },
    Group {
        heading: "Training data",
        common: &["data", "decode-threads"],
        others: &[
            "augmentation",
            "resize",
            "interpolation",
            "decoder",
            "decode-scaling",
            "prefetch",
            "shuffle",
            "on-bad-image",
            "image-limits",
        ],
    },
];

/// Maximum number of keywords that `-h` lists.
const FEW_KEYWORDS: usize = 7;

/// Maximum length of a default that `-h` shows, in characters.
const SHORT_DEFAULT: usize = 27;

/// Number of examples in `-h`.
const SHORT_EXAMPLES: usize = 3;

/// Shortens `-h` of every command of `program`, and groups the options of those that have many.
pub fn grouped(program: Command) -> Command {
    let name = program.get_name().to_owned();
    program.mut_subcommands(|command| {
        let all = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (is_grouped, mut short) = (has_groups(&command), first_examples(&all));
        if is_grouped {
            short += &format!("\n\nAll options: {name} {} --help", command.get_name());
        }
        let change = |argument| if is_grouped { with_group(shortened(argument)) } else { shortened(argument) };
        command.mut_args(change).after_long_help(all).after_help(short)
    })
}

fn has_groups(command: &Command) -> bool {
    command.get_arguments().count() > MANY_OPTIONS
}

/// Returns the first examples, without the paragraphs that follow them.
fn first_examples(all: &str) -> String {
    let (examples, _) = all.split_once("\n\n").unwrap_or((all, ""));
    let mut count = 0;
    let is_short = |line: &&str| {
        count += usize::from(line.starts_with("  ") && !line.starts_with("   "));
        count <= SHORT_EXAMPLES
    };
    examples.lines().take_while(is_short).collect::<Vec<_>>().join("\n")
}

/// Sets the help of `-h`: the first paragraph if there are several, otherwise the first clause; then a few keywords.
fn shortened(argument: Arg) -> Arg {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (mut short, mut long) = match argument.get_long_help() {
        Some(long) => (help, long.to_string()),
        None => (first_clause(&help), help),
    };
    let keywords: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if keywords.is_empty() || !argument.get_action().takes_values() {
        return argument.help(short).long_help(long);
    }
    if keywords.len() <= FEW_KEYWORDS {
        let end = split_default(&short).0.len();
        short.insert_str(end, &format!(": {}", keywords.join(", ")));
    }
    long += &format!(" [possible values: {}]", keywords.join(", "));
    argument.help(short).long_help(long).hide_possible_values(true)
}

fn with_group(argument: Arg) -> Arg {
    let Some((group, place)) = argument.get_long().and_then(position) else { return argument };
    let is_hidden = place >= group.common.len();
    argument.help_heading(group.heading).display_order(place).hide_short_help(is_hidden)
}

/// Returns the group of the option `name` and its position there; the common options come first.
fn position(name: &str) -> Option<(&'static Group, usize)> {
    GROUPS.iter().find_map(|group| {
        let place = group.common.iter().chain(group.others).position(|option| *option == name)?;
        Some((group, place))
    })
}

/// Returns the part of a help text that `-h` shows: its first clause, with a short default.
fn first_clause(help: &str) -> String {
    let (text, default) = split_default(help);
    let end = ["; ", ": ", ". "].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let default = default.filter(|default| default.chars().count() <= SHORT_DEFAULT);
    default.map_or(text[..end].to_owned(), |default| with_default(&text[..end], default))
}

/// Separator of a help text and the default.
const DEFAULT: &str = " [default: ";

/// Appends the default to a help text.
pub fn with_default(text: &str, default: &str) -> String {
    format!("{text}{DEFAULT}{default}]")
}

/// Splits a help text into the description and the default, as [`with_default`] and the texts of clap join them.
fn split_default(help: &str) -> (&str, Option<&str>) {
    help.split_once(DEFAULT).map_or((help, None), |(text, default)| (text, Some(default.trim_end_matches(']'))))
}

/// Returns the options of the grouped commands of `program` that are in no group.
#[doc(hidden)]
pub fn without_group(program: &Command) -> Vec<String> {
    let commands = program.get_subcommands().filter(|command| has_groups(command));
    let options = commands.flat_map(|command| command.get_arguments().filter(|option| !option.is_hide_set()));
    options.filter_map(Arg::get_long).filter(|name| position(name).is_none()).map(str::to_owned).collect()
}
