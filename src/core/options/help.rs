//! Help of commands with many options: groups, the common options in `-h`, all of them in `--help`.

use clap::{Arg, Command};

/// Options under one heading of the help, by name without dashes.
struct Group {
    heading: &'static str,
    /// Listed in `-h` and `--help`.
    common: &'static [&'static str],
    /// Listed in `--help` only.
    others: &'static [&'static str],
}

/// Commands whose help is grouped.
const GROUPED: [&str; 5] = ["sweep", "train", "score", "bandwidth", "input"];

/// Options of [`GROUPED`], in the order of the help within each heading. Headings appear in the order in which the
/// commands declare the first option of each.
const GROUPS: [Group; 7] = [
    Group {
        heading: "What to run",
        common: &[
            "quick",
            "cases",
            "op",
            "begin",
            "end",
            "factor",
            "model",
            "models",
            "dtype",
            "dtypes",
            "batch-size",
            "batch-sizes",
            "iters",
            "runs",
            "decode-threads",
            "cache",
            "against",
            "fold",
            "check",
            "min-busbw",
        ],
        others: &[
            "config",
            "profile",
            "suite",
            "redop",
            "root",
            "increment",
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
            "threads",
            "cores-divided-by",
            "layout",
            "kernels",
            "graphs",
            "seed",
        ],
    },
    Group {
        heading: "Output",
        common: &["out", "resume", "json", "dry-run"],
        others: &[
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
    Group { heading: "Faults", common: &["timeout", "stall-timeout"], others: &["inject"] },
    Group {
        heading: "Exchange",
        common: &["backend", "wire", "kv-store", "kv-stores"],
        others: &[
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
        heading: "Learning",
        common: &["epochs", "validate"],
        others: &[
            "lr",
            "lr-warmup-iters",
            "lr-schedule",
            "lr-step-epochs",
            "lr-factor",
            "optimizer",
            "momentum",
            "weight-decay",
            "loss-scale",
            "label-smoothing",
            "dropout",
            "freeze-batch-norm",
            "init",
            "checkpoint",
            "checkpoint-every",
            "from-checkpoint",
        ],
    },
    Group {
        heading: "Data",
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
const FEW_KEYWORDS: usize = 6;

/// Maximum length of a default that `-h` shows, in characters.
const SHORT_DEFAULT: usize = 16;

/// Groups the options of those commands of `program` that have many, and moves their examples to `--help`.
pub fn grouped(program: Command) -> Command {
    let name = program.get_name().to_owned();
    program.mut_subcommands(|command| {
        if !GROUPED.contains(&command.get_name()) {
            return command;
        }
        let examples = command.get_after_help().cloned().unwrap_or_default();
        let all = format!("All options, and examples: {name} {} --help", command.get_name());
        command.mut_args(with_group).after_long_help(examples).after_help(all)
    })
}

fn with_group(argument: Arg) -> Arg {
    let Some((group, place)) = argument.get_long().and_then(position) else { return argument };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let long = argument.get_long_help().map(ToString::to_string).unwrap_or_else(|| help.clone());
    let keywords: Vec<String> =
        argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let argument = argument.help_heading(group.heading).display_order(place).help(first_clause(&help));
    let argument = argument.hide_short_help(place >= group.common.len());
    if keywords.len() <= FEW_KEYWORDS || !argument.get_action().takes_values() {
        return argument.long_help(long);
    }
    argument.hide_possible_values(true).long_help(format!("{long} [possible values: {}]", keywords.join(", ")))
}

/// Returns the group of the option `name` and its position there; the common options come first.
fn position(name: &str) -> Option<(&'static Group, usize)> {
    GROUPS.iter().find_map(|group| {
        let place = group.common.iter().chain(group.others).position(|option| *option == name)?;
        Some((group, place))
    })
}

/// Returns true if `-h` lists the option.
pub fn is_common(name: &str) -> bool {
    GROUPS.iter().any(|group| group.common.contains(&name))
}

/// Returns the part of a help text that `-h` shows: its first clause, with a short default.
fn first_clause(help: &str) -> String {
    let (text, default) = match help.split_once(" [default: ") {
        Some((text, default)) => (text, Some(default.trim_end_matches(']'))),
        None => (help, None),
    };
    let end = ["; ", ": ", ". "].iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    let default = default.filter(|default| default.chars().count() <= SHORT_DEFAULT);
    text[..end].to_owned() + &default.map(|default| format!(" [default: {default}]")).unwrap_or_default()
}

/// Returns the options of the grouped commands of `program` that are in no group.
#[doc(hidden)]
pub fn without_group(program: &Command) -> Vec<String> {
    let commands = program.get_subcommands().filter(|command| GROUPED.contains(&command.get_name()));
    let options = commands.flat_map(|command| command.get_arguments().filter(|option| !option.is_hide_set()));
    options.filter_map(Arg::get_long).filter(|name| position(name).is_none()).map(str::to_owned).collect()
}
