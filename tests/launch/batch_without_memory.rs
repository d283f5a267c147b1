//! Batch sizes that exceed a device's memory: a result in a sweep over several sizes, the subject of the search with
//! `--batch-size auto`, and otherwise an error. Uses the real worker with a resource limit on its memory.

use std::fs;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::manifest::{Manifest, RunState};

use crate::support::core_tokens::{take_all_cores, take_cores};
use crate::support::sandbox::{Sandbox, fails, ringmark, run, succeeds, words};
use crate::support::worker as worker_program;

/// A network with little arithmetic: a batch that fills the memory is fast.
const SMALL: &str = "--device cpu --model mxnet-lenet --iters 3 --warmup 1 --threads 1 --no-doctor";

/// Limit of a process's private memory, in bytes: enough for the program, libtorch and a small batch.
const BYTES: u64 = 400_000_000;

/// Returns `ringmark` limited to `bytes` of memory, for a small network, with results in the sandbox's folder `out`.
fn limited_to(sandbox: &Sandbox, bytes: u64, options: &str) -> Command {
    limited(sandbox, bytes, &format!("{options} {SMALL}"))
}

fn limited(sandbox: &Sandbox, bytes: u64, options: &str) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--data={bytes}")).arg(env!("CARGO_BIN_EXE_ringmark")).args(words(options));
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")).stdin(Stdio::null());
    command
}

fn manifest(folder: &Path) -> Manifest {
    Manifest::find(folder).expect("sound").expect("a manifest")
}

#[test]
fn out_of_memory_batch_is_recorded_and_sweep_continues() {
    let sandbox = Sandbox::real();
    let options = "sweep --batch-sizes 65536,2,32768 --cases 1n1g --runs 2";
    let first_turn = take_cores(1);
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, options));
    drop(first_turn);
    for batch_size in [65536, 32768] {
        let line = format!("1n1g b{batch_size} run 1 of 2: out of memory at batch {batch_size}: 0.");
        assert!(stdout.contains(&line) && !stdout.contains(&format!("b{batch_size} run 2")), "{stdout}");
        let failure = sandbox.failure(&format!("1n1g/mxnet-lenet_b{batch_size}_fp32_1.log"));
        let begins = failure.starts_with(&format!("out of memory at batch {batch_size}: 0."));
        assert!(begins && failure.ends_with(" of 0.4 GB"), "{failure}");
    }
    assert!(stdout.contains("1n1g b2 run 2 of 2: "), "{stdout}");
    let states: Vec<RunState> = manifest(&sandbox.path("out")).runs.into_iter().map(|run| run.state).collect();
    let is_short = |state: &RunState| match state {
        RunState::OutOfMemory { memory } => memory.taken.0 <= memory.total.0 && memory.total.0 == BYTES,
        state => panic!("{state:?}"),
    };
    assert!(is_short(&states[0]) && is_short(&states[4]), "{states:?}");
    assert_eq!((&states[1], &states[5]), (&RunState::Planned, &RunState::Planned));
    assert_eq!(states[2..4], [RunState::Finished, RunState::Finished]);

    // The result is final: no run is missing.
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, &format!("{options} --resume")));
    assert!(stdout.contains("2 of 6 runs are finished") && !stdout.contains("run 1 of 2"), "{stdout}");
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("out")));
    assert!(stdout.contains("PASS    complete  2 of 6 runs are finished, 4 lack memory"), "{stdout}");
    let stdout = succeeds(ringmark("extract").arg(sandbox.path("out")));
    assert!(!stdout.contains("65536 per rank"), "{stdout}");

    // `--repeat` tries it again.
    let _tokens = take_cores(1);
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, &format!("{options} --resume --repeat 1n1g")));
    assert!(stdout.contains("1n1g b32768 run 1 of 2: out of memory at batch 32768: "), "{stdout}");
    assert!(stdout.contains("1n1g b2 run 1 of 2: "), "{stdout}");
}

/// A rank of `all-reduce` exceeds the limit, and ranks that share weights, gradients and optimizer states do not.
#[test]
fn out_of_memory_strategy_is_recorded_and_sweep_continues() {
    let sandbox = Sandbox::real();
    let options = "sweep --strategies all-reduce,fsdp --cases 1n2g --hosts localhost:2 --model gpt2-124m --batch-size 1 \
                   --sequence-length 16 --optimizer adamw --device cpu --runs 1 --iters 2 --warmup 1 --no-doctor";
    let tokens = take_all_cores();
    let stdout = succeeds(&mut limited(&sandbox, 1_900_000_000, options));
    drop(tokens);
    assert!(stdout.contains("1n2g all-reduce run 1 of 1: out of memory at batch 1 x 16 tokens: 1."), "{stdout}");
    assert!(stdout.contains("1n2g fsdp run 1 of 1: "), "{stdout}");
    let stdout = succeeds(ringmark("extract").arg(sandbox.path("out")));
    assert!(stdout.contains("GPT-2 124M, fp32, 1n2g: out of memory at batch "), "{stdout}");
}

/// Reduces the limit until six runs had too little memory. The failing allocation may be in libtorch's allocator, a
/// oneDNN kernel, or at the start of a thread; not all of these check the result.
#[test]
fn rank_reports_out_of_memory_or_succeeds() {
    let _tokens = take_cores(1);
    let folder = tempfile::tempdir().expect("a folder");
    let record = folder.path().join("record.jsonl");
    let train = |limit: &str| {
        let mut worker = Command::new("prlimit");
        worker.args([limit, "--core=0"]).arg(worker_program()).args(words(
            "train --device cpu --threads 2 --model resnet18 --batch-size 16 --image-size 64 --iters 1 --warmup 0",
        ));
        run(worker.arg("--record").arg(&record).stdin(Stdio::null()))
    };
    assert_eq!(train("--data=unlimited").0, Some(0));
    let sound = RunRecord::read(BufReader::new(fs::File::open(&record).expect("written"))).expect("a record");
    let peak = sound.end.expect("an end").peak_memory[0].0;
    let (mut limit, mut short, mut sound) = (peak + peak / 3, 0, 0);
    while short < 6 {
        let (status, stdout, stderr) = train(&format!("--data={limit}"));
        let says = stderr.lines().any(|line| line.contains(": out of memory: 0.") && line.contains(" GB in use"));
        assert!((status == Some(0)) != says, "{limit} bytes, {status:?}: {stdout}{stderr}");
        short += u32::from(says);
        sound += u32::from(!says);
        limit -= peak / 28;
    }
    println!("{sound} had enough, the last {} of {peak} bytes", limit + 7 * (peak / 28));
    assert!(sound > 0, "four thirds of what it had are too little");
}

#[test]
fn out_of_memory_of_the_only_batch_is_an_error() {
    let sandbox = Sandbox::real();
    let first_turn = take_all_cores();
    let stderr = fails(&mut limited_to(&sandbox, BYTES, "sweep --batch-size 16384 --cases 1n2g --runs 1"));
    drop(first_turn);
    let failure = sandbox.failure("1n2g/mxnet-lenet_b16384_fp32_1.log");
    assert!(failure.starts_with("rank ") && failure.contains(" of 2 on host "), "{failure}");
    assert!(failure.contains(": out of memory: ") && failure.contains(" of 0.4 GB in use, "), "{failure}");
    assert!(failure.contains(" more requested: use a smaller --batch-size, "), "{failure}");
    assert!(stderr.contains(&failure), "{stderr}");
    assert!(sandbox.left().is_empty(), "{:?}", sandbox.left());

    // Several batch sizes, none of which fits.
    let sandbox = Sandbox::real();
    let _tokens = take_cores(1);
    let stderr = fails(&mut limited_to(&sandbox, BYTES, "sweep --batch-sizes 16384,65536 --cases 1n1g --runs 1"));
    assert!(
        stderr.contains(
            "nothing fits in the memory of the device: choose a smaller --batch-size, or a --strategy that shards the \
             weights"
        ),
        "{stderr}"
    );
}

#[test]
fn largest_fitting_batch_is_found_and_saved() {
    let sandbox = Sandbox::real();
    // Trials start with the profile's 128.
    let options = "sweep --profile dlperf --batch-size auto --cases 1n1g --runs 1";
    let tokens = take_cores(1);
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, options));
    drop(tokens);
    let found = stdout.lines().find_map(|line| line.strip_prefix("1n1g mxnet-lenet fp32: batch size "));
    let numbers = found.expect(&stdout).split([' ', ':']).filter_map(|word| word.parse().ok());
    let [chosen, fits, lacks]: [u32; 3] = numbers.collect::<Vec<u32>>().try_into().expect(&stdout);
    assert!(fits >= 128 && lacks > fits && lacks - fits <= fits / 32, "{stdout}");
    // Leaves a margin because runs differ in their memory use.
    assert!(chosen >= fits / 2 && chosen <= 2 * fits - lacks, "{stdout}");
    assert!(stdout.contains(&format!("trial of batch size {fits}: fits")), "{stdout}");
    assert!(stdout.contains(&format!("trial of batch size {lacks}: out of memory at batch {lacks}: ")), "{stdout}");
    let manifest = manifest(&sandbox.path("out"));
    let runs: Vec<String> = manifest.runs.iter().map(|run| run.name.to_string()).collect();
    assert_eq!(runs, [format!("1n1g/mxnet-lenet_b{chosen}_fp32_1.log")]);

    // Trials are not runs, and are made once.
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, &format!("{options} --resume")));
    assert!(stdout.contains("1 of 1 runs are finished") && !stdout.contains("trial"), "{stdout}");
    succeeds(ringmark("extract").arg(sandbox.path("out")));
    let (_, stdout, _) = run(ringmark("check").arg(sandbox.path("out")));
    assert!(stdout.contains("PASS    complete") && stdout.contains("PASS    rules"), "{stdout}");
    let trials: Vec<_> = fs::read_dir(sandbox.path("out/batch-size-trials/1n1g")).expect("files are kept").collect();
    assert!(trials.len() > 4, "{trials:?}");
    // With DLPerf's scale the first updates of fp16 overflow, so a run without other updates would not count.
    let log = fs::read_to_string(sandbox.path("out/batch-size-trials/1n1g/mxnet-lenet_b128_fp32_1.log")).expect("kept");
    assert!(log.lines().next().is_some_and(|command| command.contains(" --loss-scale 1 ")), "{log}");
}

#[test]
fn dry_run_starts_no_trials() {
    let sandbox = Sandbox::real();
    let stdout = succeeds(&mut limited_to(&sandbox, BYTES, "sweep --dry-run --batch-size auto --cases 1n1g --runs 1"));
    assert!(stdout.starts_with("# --batch-size auto: commands with batch size 8, the first to be tried\n"), "{stdout}");
    assert!(!sandbox.path("out").exists());
}
