//! Tests of `--autotune` and `--autotune-over`: candidates and choice of a search of the real worker or of real trial
//! jobs, the log in Horovod's columns, and unchanged training afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::exchange::Switch;
use ringmark_core::benchmark::train::RunRecord;

use crate::support::core_tokens::take_all_cores;
use crate::support::sandbox::{Sandbox, refused, ringmark, run, succeeds, words};
use crate::support::worker_run::{Run, checksum};

/// Horovod's columns, as written by `parameter_manager.cc`.
const HOROVOD: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score";

/// A network of three layers.
const SMALL: &str = "--model mlp --batch-size 2 --image-size 28";

/// Reads a log as users of Horovod's do: columns by name, cells trimmed, because Horovod's contains a stray blank.
fn read(path: &Path) -> Vec<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).expect("a log");
    let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<String>>();
    let mut lines = text.lines().map(cells);
    let header = lines.next().expect("a header");
    assert_eq!(header[..7].join(","), HOROVOD);
    let row = |line: Vec<String>| {
        assert_eq!(line.len(), header.len(), "{line:?}");
        header.iter().cloned().zip(line).collect()
    };
    lines.map(row).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column}: {row:?}"))
}

#[test]
fn autotune_log_matches_horovod() {
    let options = format!("{SMALL} --iters 2 --lr 0.0001 --lr-warmup-iters 0");
    let plain = Run::ranks(2, &options).finish().valid_record();
    let log = |options: &str| {
        let run = Run::ranks(2, &format!("{options} --autotune"));
        let path = run.path("autotune.csv");
        let finished = run.file("--autotune-log", &path).finish();
        let rows = read(&path);
        (finished.valid_record(), rows)
    };
    let (record, rows) = log(&options);
    assert_eq!(checksum(&record), checksum(&plain), "the search changes no result");
    let tuning = record.header.tuning.as_ref().expect("a search");
    assert_eq!(rows.len(), tuning.trials.len() + 1);
    assert_eq!(rows.last(), Some(&rows[tuning.chosen]), "the last row repeats the best");
    let gradients: u64 = record.header.buckets.iter().map(|bytes| bytes.0).sum();
    for (row, trial) in rows.iter().zip(&tuning.trials) {
        assert_eq!(number(row, "tensor_fusion_threshold"), trial.bucket_mb);
        let score = gradients as f64 / (trial.step.0 * 1e6);
        assert!((number(row, "score") - score).abs() < 0.001, "{row:?} {score}");
        let flags = ["hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "cache_enabled"];
        assert_eq!(flags.map(|flag| row[flag].as_str()), ["1", "0", "0", "0"]);
        assert_eq!((row["cycle_time_ms"].as_str(), row["strategy"].as_str()), ("0", "all-reduce"));
    }
    assert_eq!(log(&format!("{options} --hierarchical off")).1[0]["hierarchical_allreduce"], "0");

    // A single rank has nothing to choose and writes a log without rows.
    let alone = Run::single_rank(&format!("{options} --autotune"));
    let path = alone.path("autotune.csv");
    let folder = alone.file("--autotune-log", &path).finish();
    assert_eq!((read(&path).len(), folder.valid_record().header.tuning), (0, None));
}

fn sweep(sandbox: &Sandbox, out: &str, cases: &str, options: &str) -> Command {
    let mut command = ringmark(&format!("sweep --no-doctor --device cpu {SMALL} --iters 4 --warmup 1 --threads 1"));
    command.args(words("--hosts localhost:2 --runs 1 --lr 0.001 --lr-warmup-iters 0 --cases")).arg(cases);
    command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path(out));
    command
}

/// Returns a record of the sweep's case with two ranks.
fn record_of(sandbox: &Sandbox, out: &str) -> RunRecord {
    let folder = fs::read_dir(sandbox.path(out).join("1n2g")).expect("a case");
    let paths: Vec<_> = folder.map(|file| file.expect("a file").path()).collect();
    let record = paths.iter().find(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    RunRecord::read(&fs::read(record.expect("a record")).expect("readable")[..]).expect("a record")
}

/// Returns the tuned options of a configuration as command-line arguments.
fn typed(record: &RunRecord) -> String {
    let config = &record.header.config;
    let hierarchical = config.exchange.hierarchical.map(|it| format!("--hierarchical {it}")).unwrap_or_default();
    let (strategy, code) = (config.strategy.strategy, config.gradient_compression);
    format!("--strategy {strategy} {hierarchical} --wire {} --gradient-compression {code}", config.exchange.wire)
}

#[test]
fn sweep_uses_the_fastest_trial() {
    let sandbox = Sandbox::real();
    let log = sandbox.path("autotune.csv");
    let over = "--autotune-over strategy=all-reduce,device,dist_sync --autotune-over hierarchical=on,off \
                --autotune-over gradient-compression=none,2bit:0.001";
    let tuned = |options: &str| {
        let mut command = sweep(&sandbox, "tuned", "1n1g,1n2g", &format!("{over} {options}"));
        run(command.arg("--autotune-log").arg(&log))
    };
    let tokens = take_all_cores();
    let (status, stdout, stderr) = tuned("");
    assert_eq!(status, Some(0), "{stdout}{stderr}");

    // The requested configuration, then the candidates option by option, then the best one again.
    let rows = read(&log);
    let column = |name: &str| rows.iter().map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!(column("strategy")[..3], ["all-reduce", "device", "dist_sync"]);
    assert_eq!(column("servers")[..3], ["0", "0", "1"]);
    assert_eq!(column("hierarchical_allreduce")[..3], ["1", "1", "0"]);
    let (tried, best) = (&rows[..rows.len() - 1], rows.last().expect("the best"));
    assert!(tried.contains(best) && tried.iter().all(|row| number(row, "score") > 0.0), "{rows:?}");
    let folders = fs::read_dir(sandbox.path("tuned/autotune-trials")).expect("trials stay").count();
    assert_eq!((folders, stdout.matches("ms per step\n").count()), (tried.len(), tried.len()), "{stdout}");
    // Values that are incompatible with the best configuration so far are skipped with a message. Servers have no
    // hierarchy, so nothing is tried if they are best.
    let left_out = stdout.lines().filter(|line| line.contains(": skipped: --")).count();
    let least = if best["strategy"] == "dist_sync" { 4 } else { 5 };
    assert!(tried.len() + left_out >= least, "{stdout}");
    assert_eq!(stdout.matches("\nautotune chose strategy ").count(), 1, "{stdout}");

    // The runs use the best configuration, as if it had been given on the command line.
    let record = record_of(&sandbox, "tuned");
    let config = &record.header.config;
    assert_eq!(config.strategy.strategy.to_string(), best["strategy"]);
    assert_eq!(config.gradient_compression.to_string(), best["gradient_compression"]);
    let is_hierarchical = config.exchange.hierarchical == Some(Switch::On);
    assert_eq!(
        is_hierarchical,
        [&best["hierarchical_allreduce"], &best["hierarchical_allgather"]].contains(&&"1".to_owned())
    );
    succeeds(&mut sweep(&sandbox, "plain", "1n2g", &typed(&record)));
    drop(tokens);
    assert_eq!(checksum(&record_of(&sandbox, "plain")), checksum(&record), "{}", typed(&record));

    // The resumed sweep keeps the choice and tries nothing again.
    let (status, stdout, stderr) = tuned("--resume");
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    assert!(stdout.contains("2 of 2 runs are finished") && !stdout.contains("trial"), "{stdout}");

    // Trials do not count as runs.
    let stdout = succeeds(ringmark("extract").arg(sandbox.path("tuned")));
    assert!(!stdout.contains("autotune-trials"), "{stdout}");
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("tuned")));
    assert!(stdout.contains("PASS    complete") && stdout.contains("PASS    rules"), "{stdout}");
}

#[test]
fn invalid_autotune_is_rejected_at_start() {
    let sandbox = Sandbox::new("exit 1");
    let errors = [
        "--autotune-over strategy",
        "--autotune-over batch-size=8,16",
        "--autotune-over wire=fp8",
        "--autotune-over wire=bf16 --autotune-over wire=fp16",
        "--autotune-over wire=bf16 --cases 1n1g",
        "--autotune-over wire=bf16 --dtypes fp32,bf16",
        "--autotune-over wire=bf16 --strategies all-reduce,device",
        "--autotune-over wire=bf16 --suite ddp",
        "--autotune-over wire=bf16 --batch-size auto",
        "--autotune-over strategy=local --hosts a:2,b:2 --cases 2n2g",
        "--autotune-over hierarchical=on,off --backend mpi",
        "--autotune-over gradient-compression=2bit --dtype fp16",
        "--autotune --autotune-log a.csv",
    ]
    .map(|options| {
        let mut command = ringmark("sweep --no-doctor --device cpu");
        if !options.contains("--hosts") {
            command.args(words("--hosts localhost:2"));
        }
        command.args(words(options)).arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out"));
        let error = refused(&mut command, 2);
        assert!(!sandbox.path("out").exists(), "{options}");
        error
    });
    expect![[r#"
        error: invalid value 'strategy' for '--autotune-over <NAME=VALUE,..>': "strategy" is not NAME=VALUE,..: write it as strategy=all-reduce,device; NAME is one of strategy, hierarchical, wire, gradient-compression, overlap, bucket-mb, tail-mb, chunk-kb, nccl-algo

        For more information, try '--help'.
        error: invalid value 'batch-size=8,16' for '--autotune-over <NAME=VALUE,..>': "batch-size" cannot be tuned: choose one of strategy, hierarchical, wire, gradient-compression, overlap, bucket-mb, tail-mb, chunk-kb, nccl-algo

        For more information, try '--help'.
        error: invalid value 'wire=fp8' for '--autotune-over <NAME=VALUE,..>': --wire fp8

        For more information, try '--help'.
        error: --autotune-over lists wire twice: list all its values once, as in wire=fp16
        error: --autotune-over tunes the exchange of gradients, which one rank does not need: add a case with several ranks to --cases
        error: --autotune-over tunes a single network, precision, batch size and strategy: omit all --dtypes but one
        error: --autotune-over tunes a single network, precision, batch size and strategy: omit --strategies, and name those to be tried by --autotune-over strategy=..,
        error: --autotune-over tunes a single network, precision, batch size and strategy: omit --suite ddp
        error: --autotune-over tunes a single network, precision, batch size and strategy: omit --batch-size auto
        error: --strategy local works on one host only, but case 2n2g has 2: use --strategy zero1 or dist_sync, or --cases with one host
        error: --autotune-over hierarchical=on: --hierarchical on conflicts with --backend mpi, which is one MPI_Allreduce over all ranks: omit one of them, or use --backend shared-memory, which sums within each host first
        error: --autotune-over gradient-compression=2bit: --gradient-compression 2bit:0.5 needs finite gradients, but --dtype fp16 finds its loss scale by overflow: use --dtype bf16 or fp32
        error: --autotune-log a.csv records one search, but in a sweep with --autotune every run has its own, in its record: add --autotune-over, or log one run with ringmark-worker train --autotune --autotune-log FILE
    "#]].assert_eq(&errors.concat());
    let error = Run::single_rank("--iters 1 --autotune-log a.csv").refusal(2);
    expect![[r#"
        error: --autotune-log a.csv needs a search: add --autotune
    "#]]
    .assert_eq(&error);
}

#[test]
fn dry_run_starts_no_trials() {
    let sandbox = Sandbox::new("exit 1");
    let stdout = succeeds(sweep(&sandbox, "out", "1n1g,1n2g", "--autotune-over wire=bf16,fp16").arg("--dry-run"));
    let line = "# --autotune-over: commands with the requested settings; up to 3 trials in case 1n2g run first\n";
    assert!(stdout.starts_with(line) && !sandbox.path("out").exists(), "{stdout}");
}
