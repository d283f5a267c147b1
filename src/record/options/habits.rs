//! Options of other programs that people type out of habit and that are none of ours: an error that one of them causes gets
//! a line with our word. What means the same is an alias in the option table and needs no line here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};

/// Words of other programs with one meaning, and ours for it.
#[derive(Debug)]
pub struct Habit {
    /// As they are typed.
    pub words: &'static [&'static str],
    /// What to type instead; `{}` stands for the number that was typed.
    pub ours: &'static str,
}

/// A line of the table.
macro_rules! habits {
    ($($($word:literal)|+ => $ours:literal),+ $(,)?) => {
        &[$(Habit { words: &[$($word),+], ours: $ours }),+]
    };
}

/// Of whoever types `ringmark`.
pub const OF_LAUNCHER: &[Habit] = habits![
    "-np" | "--np" | "-n" | "--num-proc" | "--nproc-per-node" | "--nproc_per_node" | "--ntasks" | "-g" | "--ngpus"
        | "--num-gpus" | "--world-size"
        => "a case says how many ranks: `--cases 1n{}g` is 1 node with {} ranks, one per GPU",
    "--gpus" => "`CUDA_VISIBLE_DEVICES=0,1` chooses the GPUs, and `--cases 1n2g` how many of them",
    "-N" | "--nnodes" | "--nodes" => "`--hosts a:8,b:8` names the nodes, and `--cases {}n8g` takes {} of them",
    "--master-addr" | "--master_addr" | "--master-port" | "--master_port" | "--rdzv-endpoint" | "--rdzv_endpoint"
        => "`--hosts a:8,b:8` is enough: mpirun starts the ranks and they find each other",
    "-mca" | "--mca" | "-bind-to" | "--bind-to" | "-map-by" | "--map-by" | "-oversubscribe" | "--oversubscribe"
        => "`--launcher-args \"..\"` hands arguments on to mpirun",
    "-allow-run-as-root" | "--allow-run-as-root" => "leave it out: mpirun gets it from ringmark",
    "-x" => "NCCL_*, PATH and LD_LIBRARY_PATH reach every rank; another variable does by `--launcher-args \"-x NAME\"`",
    "--network-interface" | "--network-interfaces" => "`--interface NAME` is the one network of all hosts",
    "-p" => "`--ssh-port PORT` is sshd's port on the hosts",
    "--start-timeout" | "--stall-check-warning-time-seconds" | "--stall-check-shutdown-time-seconds"
        => "`--stall-timeout SECONDS` ends a run without progress and names the rank that hangs",
    "--no-stall-check" => "`--stall-timeout 0` waits for ever",
    "--timeline-filename" => "`--trace-runs 1 --trace-format horovod` of `ringmark sweep` leaves Horovod's timeline beside the record",
    "--output-filename" | "--log-dir" | "--log_dir" => "`--out FOLDER` is for logs and records",
    "--kv-store" | "--kvstore" => "`--kv-store NAME` of `ringmark sweep` and `ringmark bandwidth --model` says where gradients are summed and weights updated",
];

/// Of whoever types `ringmark-worker`.
pub const OF_WORKER: &[Habit] = habits![
    "-np" | "--np" | "-n" | "--num-proc" | "--nproc-per-node" | "--nproc_per_node" | "-g" | "--ngpus" | "-t" | "--nthreads"
        | "-H" | "--hosts"
        => "mpirun starts the ranks: `mpirun -np {} ringmark-worker ..`; `ringmark` does both",
];

/// Of nccl-tests, which only `bandwidth` succeeds: short words that mean something else to others.
pub const OF_BANDWIDTH: &[Habit] = habits![
    "-t" | "--nthreads" => "leave it out: one process of one thread drives one GPU, and a case says how many: `--cases 1n8g`",
    "-z" | "--blocking" | "-G" | "--cudagraph" | "-m" | "--agg_iters" | "-a" | "--average" | "--parallel_init"
        => "leave it out: every rank times every all-reduce by itself, and the record has all of them",
    "-J" | "--output_file" => "`--json FILE`",
];

/// Of whoever types `ringmark pack` and comes from MXNet's im2rec.py.
pub const OF_PACK: &[Habit] = habits![
    "--recursive" => "leave it out: every folder in FOLDER is a class, with all that is in it",
    "--pack-label" => "leave it out: all labels of a line are packed",
    "--root" => "leave it out: FOLDER is what the paths of a list are relative to",
    "--exts" | "--chunks" | "--train-ratio" | "--test-ratio"
        => "`--list FILE.lst` packs what a list of your own says, in its order",
];

/// Of whoever types either.
pub const OF_BOTH: &[Habit] = habits![
    "--test-io" => "`ringmark input --data FILES` reads and decodes alone",
    "--use-adasum" => "leave it out: an all-reduce adds up, and nothing else",
    "--amp" | "--fp16" | "--use-fp16" | "--use_fp16" => "`--dtype fp16` is mixed precision with a dynamic loss scale",
    "--cycle-time-ms" => "leave it out: there is no cycle, a bucket is exchanged when its last gradient is there",
    "--cache-capacity" => "leave it out: ranks negotiate nothing, so that nothing is cached",
    "--no-hierarchical-allreduce" => "`--hierarchical off` is one all-reduce over all ranks, on CPUs; NCCL's ring is one anyway",
    "--hierarchical-allgather" | "--no-hierarchical-allgather"
        => "`--hierarchical on|off` is of the all-gather of codes too: gradients themselves are not gathered",
    "--autotune-warmup-samples" | "--autotune-steps-per-sample" | "--autotune-bayes-opt-max-samples"
        | "--autotune-gaussian-process-noise"
        => "leave it out: `--autotune` tries a fixed list of settings, each a fixed number of steps",
    "--num-warmup-batches" => "`--warmup N`",
    "--num-iters" | "--num-batches" | "--num-batches-per-iter" | "--benchmark-iters" => "`--iters N`: every iteration is timed",
    "--disp-batches" | "--log-interval" => "leave it out: every iteration has its line",
    "--network" | "--num-layers" | "--arch" => "`--model NAME`",
    "--gc-type" | "--gc-threshold" => "`--gradient-compression 2bit:0.5` is kind and threshold in one",
    "--image-shape" => "`--image-size 224`",
    "--no-cuda" => "`--device cpu`",
    "--test-results" => "`ringmark bandwidth --check 0|1`",
    "--data-dir" | "--data_dir" | "--use-rec" | "--rec-train" | "--rec-train-idx" | "--data-train"
        => "`--data FILE` of `ringmark sweep`: .rec files, or a folder of classes",
    "--rec-val" | "--rec-val-idx" | "--data-val" => "`--validate FILE` of `ringmark sweep`",
    "--num-epochs" | "--epochs" => "`--epochs N` of `ringmark sweep`, with `--data`",
    "--distributed-backend" => "`--backend nccl|shared-memory|mpi|none` sums the gradients",
];

/// Adds our word to an error that one of `typed` caused, if it is a word of another program.
pub fn with_hint(mut error: clap::Error, habits: &[&[Habit]], typed: &[String]) -> clap::Error {
    if let Some(hint) = hint(&error, habits, typed) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(hint)]));
    }
    error
}

fn hint(error: &clap::Error, habits: &[&[Habit]], typed: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (refused, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue));
    // Of `-np`, clap refuses `-n`; where there is an option -n, it refuses the value `p`.
    let is_refused = |word: &str| match value {
        None => word.starts_with(refused),
        Some(value) => !value.is_empty() && !word.starts_with("--") && word.get(2..) == Some(value),
    };
    typed.iter().enumerate().find_map(|(place, argument)| {
        let (word, attached) =
            argument.split_once('=').map_or((argument.as_str(), None), |(word, value)| (word, Some(value)));
        let habit = habits.iter().copied().flatten().find(|habit| habit.words.contains(&word) && is_refused(word))?;
        let number = attached.or(typed.get(place + 1).map(String::as_str)).filter(|text| text.parse::<u32>().is_ok());
        Some(format!("{word}: {}", habit.ours.replace("{}", number.unwrap_or("8"))))
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
        with_hint(error, &[OF_LAUNCHER, OF_BOTH], &typed).to_string()
    }

    #[test]
    fn a_word_of_another_program_is_answered_with_ours_and_its_number() {
        for line in ["ringmark -g 2", "ringmark -np 2", "ringmark --iters 3 --nproc-per-node=2"] {
            let error = refused(line);
            assert!(error.contains(": a case says how many ranks: `--cases 1n2g` is 1 node with 2 ranks"), "{error}");
        }
        let error = refused("ringmark --nnodes --cases 1");
        assert!(error.contains("tip: --nnodes: `--hosts a:8,b:8` names the nodes, and `--cases 8n8g`"), "{error}");
    }

    #[test]
    fn any_other_error_stays_as_it_is() {
        for line in ["ringmark --iters p", "ringmark --case 1n1g", "ringmark -n 2 --nothing", "ringmark -n -np"] {
            let error = refused(line);
            assert!(!error.contains("how many ranks"), "{line}: {error}");
        }
    }
}
