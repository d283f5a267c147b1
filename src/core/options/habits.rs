//! Hints for options of other programs that ringmark does not have: an error caused by one of them gets a line with
//! ringmark's equivalent. An option with the same meaning is an alias in the option table instead.

use std::io::IsTerminal;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options or commands of other programs with one meaning, and ringmark's equivalent.
#[derive(Debug)]
pub struct MigrationHint {
    /// Words as typed.
    pub words: &'static [&'static str],
    /// Replacement to type; `{}` stands for the number that was typed.
    pub ours: &'static str,
}

/// Creates a table of hints.
macro_rules! habits {
    ($($($word:literal)|+ => $ours:literal),+ $(,)?) => {
        &[$(MigrationHint { words: &[$($word),+], ours: $ours }),+]
    };
}

/// Hints for `ringmark`.
pub const LAUNCHER_HINTS: &[MigrationHint] = habits![
    "-np" | "--np" | "-n" | "--num-proc" | "--nproc-per-node" | "--nproc_per_node" | "--ntasks" | "-g" | "--ngpus"
        | "--num-gpus" | "--nprocs" | "--world-size" | "--gpus-per-node" | "--ntasks-per-node"
        => "use `--cases 1n{}g` for 1 node with {} ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each",
    "-N" | "--nnodes" | "--nodes" | "--num-nodes" => "`--hosts a:8,b:8` lists the nodes, and `--cases {}n8g` uses {} \
                                                      of them",
    "--master-addr" | "--master_addr" | "--master-port" | "--master_port" | "--rdzv-endpoint" | "--rdzv_endpoint"
        => "`--hosts a:8,b:8` is enough: mpirun starts and connects the ranks",
    "-mca" | "--mca" | "-bind-to" | "--bind-to" | "-map-by" | "--map-by" | "-oversubscribe" | "--oversubscribe"
        => "`--launcher-args \"..\"` passes arguments to mpirun",
    "-allow-run-as-root" | "--allow-run-as-root" => "omit it: ringmark passes it to mpirun",
    "-x" => "NCCL_*, PATH and LD_LIBRARY_PATH reach every rank; for other variables use `--launcher-args \"-x NAME\"`",
    "--network-interface" | "--network-interfaces" => "`--interface NAME` selects the network of all hosts",
    "-v" | "--verbose" => "omit it: the logs in `--out FOLDER` contain every iteration, and `--dry-run` prints every \
                           command",
    "-o" | "--output" | "--output-dir" => "`--out FOLDER` is for logs and records",
    "--json" => "`ringmark extract FOLDER --json` prints the figures of a sweep, and `--format pytorch-ddp` those for \
                 PyTorch's diff.py",
    "-p" => "`--ssh-port PORT` is sshd's port on the hosts",
    "-s" => "`--servers {}` is the number of server processes of a kv-store",
    "--partition" | "--account" | "--qos" | "--gres" => "pass it to sbatch: scripts/slurm.sbatch is a template",
    "--start-timeout" | "--stall-check-warning-time-seconds" | "--stall-check-shutdown-time-seconds"
        => "`--stall-timeout SECONDS` ends a run without progress and names the rank that hangs",
    "--no-stall-check" => "`--stall-timeout 0` waits indefinitely",
    "--timeline-filename" => "`--trace-runs 1 --trace-format horovod` of `ringmark sweep` writes Horovod's timeline \
                              next to the record",
    "--output-filename" | "--log-dir" | "--log_dir" => "`--out FOLDER` is for logs and records",
    "--kv-store" | "--kvstore" => "`--kv-store NAME` of `ringmark sweep` and `ringmark bandwidth --model` selects \
                                   where gradients are summed and weights updated",
];

/// Hints for `ringmark-worker`.
pub const WORKER_HINTS: &[MigrationHint] = habits![
    "-np" | "--np" | "-n" | "--num-proc" | "--nproc-per-node" | "--nproc_per_node" | "-g" | "--ngpus" | "-t" | "--nthreads"
        | "-H" | "--hosts"
        => "mpirun starts the ranks: `mpirun -np {} ringmark-worker ..`; `ringmark` does both",
];

/// Hints for users of nccl-tests, for `bandwidth` only: its short options mean something else in other programs.
pub const BANDWIDTH_HINTS: &[MigrationHint] = habits![
    "-t" | "--nthreads" => "omit it: each rank drives one GPU with one thread, and `--cases 1n8g` sets the number of \
                            ranks",
    "-C" | "--report_cputime" | "-z" | "--blocking" | "-G" | "--cudagraph" | "-m" | "--agg_iters" | "-a" | "--average" | "--parallel_init"
        => "omit it: every rank times every all-reduce, and the record contains all times",
    "-J" | "--output_file" => "`--json FILE`",
    "--quick" => "omit it: `-e 1M -n 5` is a short run",
    "--image-shape" | "--image-size" => "omit it: the network determines it: 299 for inception-v3, otherwise 224",
    "--size" | "--sizes" => "`-b 8 -e 128M` are the smallest and the largest message",
];

/// Hints for `ringmark pack`, for users of MXNet's im2rec.py.
pub const PACK_HINTS: &[MigrationHint] = habits![
    "--recursive" => "omit it: every folder in FOLDER is a class, with all files below it",
    "--pack-label" => "omit it: all labels of a line are packed",
    "--root" => "omit it: the paths of a list are relative to FOLDER",
    "--exts" | "--chunks" | "--train-ratio" | "--test-ratio"
        => "`--list FILE.lst` packs the images of your own list, in its order",
];

/// Hints for both programs.
pub const COMMON_HINTS: &[MigrationHint] = habits![
    "--test-io" => "`ringmark input --data FILES` reads and decodes alone",
    "--use-adasum" => "omit it: the all-reduce always sums",
    "--quick" => "omit it: `ringmark sweep` and `ringmark score` have a quick profile",
    "--bf16" | "--use-bf16" => "`--dtype bf16`",
    "--amp" | "--fp16" | "--use-fp16" | "--use_fp16" => "`--dtype fp16` is mixed precision with a dynamic loss scale",
    "--cycle-time-ms" => "omit it: there is no cycle; a bucket is exchanged as soon as its last gradient is ready",
    "--cache-capacity" => "omit it: ranks do not negotiate, so there is no cache",
    "--no-hierarchical-allreduce" => "`--hierarchical off` is one all-reduce over all ranks, on CPUs; NCCL's ring is one anyway",
    "--hierarchical-allgather" | "--no-hierarchical-allgather"
        => "`--hierarchical on|off` also applies to the all-gather of codes; gradients are not gathered",
    "--autotune-warmup-samples" | "--autotune-steps-per-sample" | "--autotune-bayes-opt-max-samples"
        | "--autotune-gaussian-process-noise"
        => "omit it: `--autotune` tries a fixed list of settings, each for a fixed number of steps",
    "--num-warmup-batches" | "--warmup-iters" | "--warmup-steps" => "`--warmup N`",
    "--num-iters" | "--num-batches" | "--num-batches-per-iter" | "--benchmark-iters" | "--steps" | "--num-steps"
        | "--max-steps" => "`--iters N`: every iteration is timed",
    "--trials" | "--repeats" | "--repetitions" => "`--runs N`",
    "--learning-rate" => "`--lr RATE`",
    "--optimizer" => "omit it: `ringmark sweep` trains by SGD with `--momentum`",
    "--compression" => "`--gradient-compression fp16`, or another keyword",
    "--threads" | "--num-workers" | "--workers" | "-j" => "`--decode-threads N` is the number of decoder threads per \
                                                           rank",
    "--disp-batches" | "--log-interval" => "omit it: every iteration is printed",
    "--network" | "--num-layers" | "--arch" => "`--model NAME`",
    "--gc-threshold" => "`--gradient-compression 2bit:0.5` is kind and threshold in one",
    "--image-shape" => "`--image-size {}`",
    "--bs" | "--batch" | "-b" => "`--batch-size {}` is the number of images per rank and iteration",
    "--num-classes" => "omit it: every network has 1000 classes",
    "--launcher" | "--standalone" | "--local-rank" | "--local_rank" | "--node-rank" | "--node_rank" | "--rank"
        => "omit it: mpirun, srun or Grid Engine starts the ranks and assigns their numbers",
    "--no-cuda" | "--cpu" => "`--device cpu`",
    "--gpu" | "--cuda" => "`--device cuda`",
    "--gloo" | "--mpi" | "--nccl" => "`--backend nccl`, `mpi` or `shared-memory` chooses how gradients are summed",
    "--test-results" => "`ringmark bandwidth --check 0|1`",
    "--data-dir" | "--data_dir" | "--dataset" | "--data-path" | "--train-dir" | "--use-rec" | "--rec-train" | "--rec-train-idx" | "--data-train"
        => "`--data FILE` of `ringmark sweep`: .rec files, or a folder of classes",
    "--rec-val" | "--rec-val-idx" | "--data-val" => "`--validate FILE` of `ringmark sweep`",
    "--num-epochs" | "--epochs" => "`--epochs N` of `ringmark sweep`, with `--data`",
    "--distributed-backend" => "`--backend nccl|shared-memory|mpi|none` sums the gradients",
];

/// Commands of other programs, and ringmark's equivalents.
pub const COMMANDS: &[MigrationHint] = habits![
    "train" | "run" | "bench" | "benchmark" | "launch" | "start"
        => "`ringmark sweep` trains every case; `ringmark-worker train` is one rank, for a manual run",
    "all_reduce_perf" | "all_gather_perf" | "reduce_scatter_perf" | "reduce_perf" | "broadcast_perf" | "alltoall_perf"
        | "sendrecv_perf" | "allreduce" | "nccl"
        => "`ringmark bandwidth` measures an all-reduce, and other operations by `--op`",
    "inference" | "eval" => "`ringmark score` measures inference",
    "compare" => "`ringmark diff BASE TEST`",
    "plot" | "show" | "table" => "`ringmark report FOLDER`, or `ringmark extract FOLDER`",
    "version" => "`ringmark --version`",
];

/// Values of other programs: option, value there, and ringmark's equivalent.
const VALUES: &[(&str, &[&str], &str)] = &[
    ("--device", &["gpu", "nvidia", "0", "cuda:0"], "`--device cuda`"),
    ("--backend", &["gloo", "ucc"], "on CPUs use shared-memory or mpi"),
    ("--dtype", &["fp8", "int8", "fp64", "float64"], "use fp32, tf32, fp16 or bf16"),
];

/// Options that take one value, each with the option that takes several.
const PLURALS: [(&str, &str); 4] = [
    ("--batch-size", "--batch-sizes"),
    ("--dtype", "--dtypes"),
    ("--model", "--models"),
    ("--kv-store", "--kv-stores"),
];

/// Adds a hint to an error that one of `typed` caused, if that is a word of another program, and drops clap's
/// suggestions that are similar only by chance.
pub fn with_hint(mut error: clap::Error, habits: &[&[MigrationHint]], typed: &[String]) -> clap::Error {
    let own = hint(&error, habits, typed).or_else(|| hint_for_word(&error));
    if own.is_some() {
        // The hint replaces clap's list of values.
        error.remove(ContextKind::ValidValue);
    }
    for (kind, typed) in [
        (ContextKind::SuggestedArg, ContextKind::InvalidArg),
        (ContextKind::SuggestedValue, ContextKind::InvalidValue),
        (ContextKind::SuggestedSubcommand, ContextKind::InvalidSubcommand),
    ] {
        let Some(suggested) = error.remove(kind).filter(|_| own.is_none()) else { continue };
        let is_close = |word: &String| context(&error, typed).is_some_and(|typed| is_close(typed, word));
        match suggested {
            ContextValue::String(word) if is_close(&word) => {
                error.insert(kind, ContextValue::String(word));
            }
            ContextValue::Strings(words) => {
                let close: Vec<String> = words.into_iter().filter(is_close).collect();
                if !close.is_empty() {
                    error.insert(kind, ContextValue::Strings(close));
                }
            }
            _ => {}
        }
    }
    if error.kind() != ErrorKind::MissingRequiredArgument {
        // The usage shows an option that clap considers similar.
        error.remove(ContextKind::Usage);
    }
    if error.kind() == ErrorKind::UnknownArgument {
        // clap suggests passing the option as a value, which no command takes.
        error.remove(ContextKind::Suggested);
    }
    if let Some(hint) = own {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

/// Prints the error and exits. After a tip, the reference to the help is omitted.
pub fn exit(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        error.exit();
    }
    let styled = error.render();
    let text = if std::io::stderr().is_terminal() { styled.ansi().to_string() } else { styled.to_string() };
    let mut paragraphs: Vec<&str> = text.trim_end().split("\n\n").collect();
    let has_tip = paragraphs.iter().any(|paragraph| paragraph.contains("tip:"));
    paragraphs.retain(|paragraph| !has_tip || !paragraph.starts_with("For more information"));
    eprintln!("{}", paragraphs.join(if has_tip { "\n" } else { "\n\n" }));
    std::process::exit(error.exit_code());
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    }
}

/// Returns true if the words differ by at most two letters and by less than a third of them, or only in their endings.
fn is_close(typed: &str, suggested: &str) -> bool {
    let [typed, suggested] = [typed, suggested].map(|word| word.trim_start_matches('-'));
    if typed.len() >= 3 && suggested.starts_with(typed) {
        return true;
    }
    let distance = strsim::damerau_levenshtein(typed, suggested);
    distance <= 2 && 3 * distance < typed.chars().count().max(suggested.chars().count())
}

/// Returns the hint for a command, a value or a word without an option.
fn hint_for_word(error: &clap::Error) -> Option<String> {
    if let Some(command) = context(error, ContextKind::InvalidSubcommand) {
        let habit = COMMANDS.iter().find(|habit| habit.words.contains(&command))?;
        return Some(habit.ours.to_owned());
    }
    let argument = context(error, ContextKind::InvalidArg)?;
    let Some(value) = context(error, ContextKind::InvalidValue) else {
        let is_number = |text: &str| text.parse::<u32>().is_ok();
        let is_host = |word: &str| word.split_once(':').is_some_and(|(_, slots)| is_number(slots));
        let is_case = |word: &str| {
            let parts = word.strip_suffix('g').and_then(|word| word.split_once('n'));
            parts.is_some_and(|(nodes, gpus)| is_number(nodes) && is_number(gpus))
        };
        return match argument {
            option if option.starts_with('-') => None,
            case if is_case(case) => Some(format!("did you mean `--cases {case}`?")),
            host if is_host(host) => Some(format!("separate hosts by commas: `--hosts a:8,{host}`")),
            _ => None,
        };
    };
    let option = argument.split(' ').next()?;
    let is_value = |(known, values, _): &&(&str, &[&str], &str)| *known == option && values.contains(&value);
    if let Some((.., ours)) = VALUES.iter().find(is_value) {
        return Some(if ours.starts_with('`') { format!("did you mean {ours}?") } else { (*ours).to_owned() });
    }
    let letters = |word: &str| word.to_lowercase().replace(|letter: char| !letter.is_alphanumeric(), "");
    let typed = letters(value);
    if let Some(ContextValue::Strings(values)) = error.get(ContextKind::ValidValue)
        && let [only] = values.iter().filter(|known| letters(known).starts_with(&typed)).collect::<Vec<_>>()[..]
        && typed.len() >= 4
    {
        return Some(format!("did you mean `{option} {only}`?"));
    }
    let (_, last) = value.rsplit_once(',')?;
    if option == "--image-size" {
        return Some(format!("did you mean `--image-size {last}`?"));
    }
    let (_, plural) = PLURALS.iter().find(|(single, _)| *single == option)?;
    Some(format!("`{plural} {value}` accepts several values"))
}

fn hint(error: &clap::Error, habits: &[&[MigrationHint]], typed: &[String]) -> Option<String> {
    let (refused, value) = (context(error, ContextKind::InvalidArg)?, context(error, ContextKind::InvalidValue));
    // For `-np`, clap refuses `-n`; if there is an option -n, it refuses the value `p`.
    let is_refused = |word: &str| match value {
        None => word.starts_with(refused),
        Some(value) => !value.is_empty() && !word.starts_with("--") && word.get(2..) == Some(value),
    };
    let value_of = |names: &[&str]| {
        let mut words = typed.iter().zip(typed.iter().skip(1).map(Some).chain([None]));
        words.find_map(|(word, next)| match word.split_once('=') {
            Some((name, value)) => names.contains(&name).then(|| value.to_owned()),
            None => next.filter(|_| names.contains(&word.as_str())).cloned(),
        })
    };
    typed.iter().find_map(|argument| {
        let word = argument.split_once('=').map_or(argument.as_str(), |(word, _)| word);
        let habit = habits.iter().copied().flatten().find(|habit| habit.words.contains(&word) && is_refused(word))?;
        if let ("--network" | "--num-layers", Some(network)) = (word, value_of(&["--network"])) {
            // Also resnet50 for resnet-50.
            let joined = network.strip_prefix("resnet").filter(|layers| layers.parse::<u32>().is_ok());
            let (name, typed_layers) =
                joined.map_or((network.as_str(), None), |layers| ("resnet", Some(layers.to_owned())));
            let layers = value_of(&["--num-layers"]).or(typed_layers);
            let layers = layers.map(|layers| format!("-{layers}")).unwrap_or_default();
            return Some(format!("{word}: `--model mxnet-{name}{layers}`"));
        }
        let last = value_of(&[word]).map(|value| value.rsplit(',').next().unwrap_or_default().to_owned());
        let number = last.filter(|text| text.parse::<u32>().is_ok());
        let usual = if habit.ours.contains("--image-size") { "224" } else { "8" };
        let ours = habit.ours.replace("{}", number.as_deref().unwrap_or(usual)).replace(" 1 ranks", " 1 rank");
        Some(format!("{word}: {ours}"))
    })
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    fn refused(line: &str) -> String {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let iterations = Arg::new("iters").long("iters").short('n').value_parser(clap::value_parser!(u32));
        let command = Command::new("ringmark").arg(iterations).arg(Arg::new("cases").long("cases"));
        let error = command.try_get_matches_from(&typed).expect_err(line);
        with_hint(error, &[LAUNCHER_HINTS, COMMON_HINTS], &typed).to_string()
    }

    #[test]
    fn foreign_option_gets_a_tip_with_its_number() {
        for line in ["ringmark -g 2", "ringmark -np 2", "ringmark --iters 3 --nproc-per-node=2"] {
            let error = refused(line);
            assert!(error.contains(": use `--cases 1n2g` for 1 node with 2 ranks"), "{error}");
        }
        let error = refused("ringmark --nnodes --cases 1");
        assert!(error.contains("tip: --nnodes: `--hosts a:8,b:8` lists the nodes, and `--cases 8n8g`"), "{error}");
    }

    #[test]
    fn tips_cover_foreign_and_misspelled_words() {
        let models = Arg::new("model").long("model").value_parser(["large", "small"]);
        let device = Arg::new("device").long("device").value_parser(["cpu", "cuda"]);
        let batch = Arg::new("batch-size").long("batch-size").value_parser(clap::value_parser!(u32));
        let sweep = Command::new("sweep").arg(models).arg(device).arg(batch);
        let command = Command::new("ringmark").subcommand(sweep).subcommand(Command::new("schema"));
        let refused = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = command.clone().try_get_matches_from(&typed).expect_err(line);
            with_hint(error, &[LAUNCHER_HINTS, COMMON_HINTS], &typed).to_string()
        };
        for (line, tip) in [
            ("ringmark train", "tip: `ringmark sweep` trains every case"),
            ("ringmark sweap", "'sweep'"),
            ("ringmark sweep --device gpu", "tip: did you mean `--device cuda`?"),
            ("ringmark sweep --model La-rge", "tip: did you mean `--model large`?"),
            ("ringmark sweep --batch-size 8,16", "tip: `--batch-sizes 8,16` accepts several values"),
            ("ringmark sweep --batch-sise 8", "'--batch-size'"),
            ("ringmark sweep b:8", "tip: separate hosts by commas: `--hosts a:8,b:8`"),
            ("ringmark sweep 1n2g", "tip: did you mean `--cases 1n2g`?"),
            ("ringmark sweep --image-shape 3,299,299", "tip: --image-shape: `--image-size 299`"),
            ("ringmark sweep --network resnet --num-layers 200", "tip: --network: `--model mxnet-resnet-200`"),
            ("ringmark sweep --network resnet50", "tip: --network: `--model mxnet-resnet-50`"),
            ("ringmark sweep --network inception-v3", "tip: --network: `--model mxnet-inception-v3`"),
        ] {
            let error = refused(line);
            assert!(error.contains(tip) && !error.contains("Usage:"), "{line}: {error}");
        }
        for line in
            ["ringmark benchmarks", "ringmark sweep --bsd 8", "ringmark sweep --device tpu", "ringmark schema --bsd"]
        {
            assert!(!refused(line).contains("tip:"), "{line}: {}", refused(line));
        }
    }

    #[test]
    fn other_errors_are_unchanged() {
        for line in ["ringmark --iters p", "ringmark --case 1n1g", "ringmark -n 2 --nothing", "ringmark -n -np"] {
            let error = refused(line);
            assert!(!error.contains("how many ranks"), "{line}: {error}");
        }
    }
}
