//! Tests of `ringmark run`: other programs under the real worker and mpirun.

use std::fs;
use std::io::BufReader;
use std::process::Command;

use expect_test::expect;
use ringmark_core::benchmark::Record;
use ringmark_core::benchmark::train::{ProgramUse, RunRecord, TimeSource};
use ringmark_core::benchmark::warning::WarningKind;
use ringmark_core::dimension::Seconds;

use crate::support::sandbox::{Sandbox, check_refusals, fails, refused, ringmark, run, succeeds, wait_until, words};

/// Prints 24 lines like nanoGPT's on rank 0, which claim four slow iterations of 20 s, then 20 of 5 s. The lines arrive
/// earlier than they claim, also on a busy machine.
const NANOGPT: &str = "#!/bin/sh
i=0
while [ $i -lt 24 ]; do
    i=$((i + 1)) time=5000.00
    [ $i -le 4 ] && time=20000.00
    [ $RANK = 0 ] && printf 'iter %d: loss 2.%d000, time %sms, mfu -100.00%%\\n' $i $i $time
    sleep 0.02
done
echo \"rank $RANK of $WORLD_SIZE, $MASTER_ADDR\"
";

/// Returns `ringmark run` of a program whose lines have this format.
fn command(sandbox: &Sandbox, lines: &str, options: &str, program: &[&str]) -> Command {
    let mut command = ringmark("run --no-doctor --runs 1 --device cpu --hosts localhost:2");
    command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")).args(words(options));
    command.args(["--lines", lines, "--"]).args(program);
    command
}

fn record(sandbox: &Sandbox, name: &str) -> RunRecord {
    let file = fs::File::open(sandbox.path("out").join(name)).expect(name);
    RunRecord::read(BufReader::new(file)).expect("a record")
}

fn use_of(record: &RunRecord) -> &ProgramUse {
    record.end.as_ref().and_then(|end| end.program.as_ref()).expect("a program")
}

#[test]
fn program_of_every_rank_has_the_figures_of_its_lines() {
    let sandbox = Sandbox::real();
    let program = sandbox.write_program("train", NANOGPT);
    let program = [program.to_str().expect("a path")];
    let options = "--model images --cases 1n1g,1n2g --batch-size 3";
    let stdout = succeeds(&mut command(&sandbox, "nanogpt", options, &program));
    // 2 ranks x 3 images / 5 s, and 3 images / 5 s.
    assert!(stdout.contains("1n2g run 1 of 1: 1.200 images/s"), "{stdout}");
    assert!(stdout.contains("1n1g run 1 of 1: 0.600 images/s"), "{stdout}");
    let log = sandbox.log("1n2g/images_b3_fp32_1.log");
    assert!(log.contains("> 0: iter 24: loss 2.24000, time 5000.00ms"), "{log}");
    assert!(log.contains("> 1: rank 1 of 2, 127.0.0.1"), "{log}");
    assert!(log.contains("Epoch[0] Batch[5]\tSpeed: 1.20 samples/sec\tloss=2.500000"), "{log}");
    assert!(log.contains("# 19 measured + 5 warm-up iterations (found by MSER-5)"), "{log}");
    let record = record(&sandbox, "1n2g/images_b3_fp32_1.jsonl");
    assert_eq!((record.iterations.len(), record.header.config.warmup), (24, 5));
    assert_eq!(record.iterations[5].step, vec![Seconds(5.0); 2]);
    let ProgramUse { source, iterations_per_line, ranks_with_lines, is_ended, .. } = *use_of(&record);
    assert_eq!((source, iterations_per_line, ranks_with_lines, is_ended), (TimeSource::Times, 1.0, 1, false));
    let warnings = record.end.map(|end| end.warnings).unwrap_or_default();
    assert!(warnings.iter().all(|warning| warning.kind != WarningKind::WallClock), "{warnings:?}");

    let out = sandbox.path("out");
    let table = succeeds(ringmark("extract").arg(&out));
    assert!(table.contains("100.0") && !table.contains("forward"), "{table}");
    // The machine may be busy.
    let (_, checked, _) = run(ringmark("check").arg(&out));
    assert!(checked.contains("PASS    rules") && checked.contains("PASS    unedited"), "{checked}");
    succeeds(ringmark("diff").arg(&out).arg(&out));
    succeeds(ringmark("report").arg(&out).arg("-o").arg(sandbox.path("page.html")));
    let (_, _, refusal) = run(ringmark("predict").arg(&out));
    assert!(refusal.contains(&format!(" --out NEW_FOLDER -- {}", program[0])), "{refusal}");
    // A second command finds finished runs.
    let again = succeeds(ringmark("run --resume --out").arg(&out));
    assert!(again.contains("2 of 2 runs are finished"), "{again}");
}

#[test]
fn program_of_a_host_starts_its_ranks() {
    let sandbox = Sandbox::real();
    let script = "for i in 10 20 30 40; do echo \"step $i $1 tokens: $((i / 10))e3 tok/s\"; sleep 0.1; done; env >&2";
    let options = "--cases 1n2g --batch-size 4 --sequence-length 100 --start host --warmup 1 --model gpt2-124m";
    let lines = r"step (?P<step>\d+) .*: (?P<tokens_per_s>[\d.e]+) tok/s";
    let program = ["sh", "-c", script, "sh", "--nproc={ranks_per_host}/{ranks}-{case}-b{global_batch}"];
    succeeds(command(&sandbox, lines, options, &program).env("OTHER_VARIABLE", "kept"));
    let log = sandbox.log("1n2g/gpt2-124m_b4_s100_fp32_1.log");
    assert!(log.contains("> 0: step 10 --nproc=2/2-1n2g-b8 tokens: 1e3 tok/s"), "{log}");
    assert!(!log.contains("> 1: "), "one program per host: {log}");
    let has = |text: &str| log.contains(&format!("> 0: {text}"));
    assert!(has("OTHER_VARIABLE=kept") && has("WORLD_SIZE=2") && has("PYTHONUNBUFFERED=1"), "{log}");
    assert!(!has("OMPI_") && !has("PMIX_") && !has("RINGMARK_"), "{log}");
    let record = record(&sandbox, "1n2g/gpt2-124m_b4_s100_fp32_1.jsonl");
    // 2 x 4 x 100 tokens at 1,000 to 4,000 tokens/s.
    let steps: Vec<f64> = record.iterations.iter().map(|iteration| iteration.step[1].0).collect();
    assert_eq!(steps, [0.8, 0.4, 0.8 / 3.0, 0.2]);
    assert!(record.iterations[0].loss[0].is_nan());
    let ProgramUse { source, iterations_per_line, claimed, .. } = *use_of(&record);
    assert_eq!((source, iterations_per_line), (TimeSource::Rates, 10.0));
    assert!((claimed.0 - 10.0 * (0.4 + 0.8 / 3.0 + 0.2)).abs() < 1e-9, "{claimed}");
}

#[test]
fn program_is_ended_after_the_requested_iterations_with_all_of_its_processes() {
    let sandbox = Sandbox::real();
    // Each rank leaves a process in a session of its own, as torchrun does. Times come from the arrival of lines.
    let script = "#!/bin/sh
trap '' TERM
if [ $# = 0 ]; then setsid \"$0\" orphan & fi
i=0
while true; do
    i=$((i + 1))
    [ $# = 0 ] && echo \"done $i\"
    sleep 0.1
done
";
    let program = sandbox.write_program("endless", script);
    let options = "--cases 1n2g --batch-size 1 --iters 5 --warmup 0";
    let program = [program.to_str().expect("a path")];
    let stdout = succeeds(&mut command(&sandbox, r"done (?P<step>\d+)", options, &program));
    assert!(stdout.contains("1n2g run 1 of 1: "), "{stdout}");
    let record = record(&sandbox, "1n2g/images_b1_fp32_1.jsonl");
    let ProgramUse { source, is_ended, ranks_with_lines, .. } = *use_of(&record);
    assert_eq!((source, is_ended, record.iterations.len()), (TimeSource::Arrival, true, 5));
    assert!(ranks_with_lines >= 1);
    assert!(record.iterations.iter().all(|iteration| iteration.step[0].0 > 0.05), "{:?}", record.iterations);
    wait_until("all processes end", || sandbox.left().is_empty());
}

#[test]
fn failing_program_is_named_with_its_rank() {
    let sandbox = Sandbox::real();
    let script = "[ $RANK = 1 ] && exit 3; echo started; sleep 3600";
    let options = "--model images --cases 1n2g --batch-size 1";
    let error = fails(&mut command(&sandbox, "nanogpt", options, &["sh", "-c", script]));
    assert!(error.contains("rank 1 of 2 on host ") && error.contains("exited with status 3"), "{error}");
    let killed = Sandbox::real();
    let script = "[ $RANK = 0 ] && kill -9 $$; sleep 3600";
    let error = fails(&mut command(&killed, "nanogpt", options, &["sh", "-c", script]));
    assert!(error.contains("rank 0 of 2 on host ") && error.contains("was ended by signal 9 (SIGKILL)"), "{error}");
    let error = fails(&mut command(
        &Sandbox::real(),
        "nanogpt",
        "--model images --cases 1n1g --batch-size 1",
        &["no-such-program"],
    ));
    assert!(error.contains("exited with status 127: a command was not found"), "{error}");
    for sandbox in [sandbox, killed] {
        wait_until("all processes end", || sandbox.left().is_empty());
    }
}

#[test]
fn wrong_output_is_refused() {
    let sandbox = Sandbox::real();
    let print = |text: &str| -> String {
        let program = ["sh", "-c", &format!("echo '{text}'; sleep 0.1; echo '{text}'")];
        let error = fails(&mut command(&sandbox, "megatron", "--model images --cases 1n1g --batch-size 8", &program));
        fs::remove_dir_all(sandbox.path("out")).expect("removed");
        error
    };
    let batch =
        "iteration 2/ 9 | elapsed time per iteration (ms): 10.0 | global batch size:    16 | lm loss: 1.0E+00 |";
    let error = print(batch);
    assert!(
        error.contains("the program states a global batch of 16, but batch size 8 on 1n1g is 8: correct --batch-size"),
        "{error}"
    );
    let error = print(&batch.replace("16 ", "8 ").replace("1.0E+00", "nan"));
    assert!(error.contains("the program's loss is NaN in iteration 1"), "{error}");
    let error = print("training");
    assert!(error.contains("the program printed no line with an iteration's time (megatron expected)"), "{error}");
}

#[test]
fn incomplete_options_are_refused() {
    check_refusals(
        &expect![[r#"
            -- train
                error: --lines is missing: the trainer that prints them (torchtitan, megatron, nanogpt, nemo, nanotron, deepspeed, composer, pytorch-imagenet, horovod, tf-cnn-benchmarks, mlperf, hf-trainer), or a regular expression such as '(?P<ms>[\d.]+) ms'
            --lines nanogpt -- train
                error: --batch-size is missing: give the images or sequences that the program computes per rank and iteration, or --global-batch
            --lines nanogpt --batch-size 8 -- train
                error: --lines nanogpt needs --sequence-length: the tokens of a sequence
            --lines nanogpt --model tokens --batch-size 8 -- train
                error: --model tokens needs --sequence-length: the tokens of a sequence
            --lines nanogpt --batch-size 8
                error: the following required arguments were not provided:
                <COMMAND>...
            --lines horovod --batch-size 8 -- train {gpus}
                error: "{gpus}" contains a brace that is no placeholder: write {{ or }} for a brace, or one of {ranks} {rank} {local_rank} {ranks_per_host} {nodes} {node} {hosts} {master} {port} {batch} {global_batch} {sequence_length} {dtype} {model} {case} {run} {out}
            --lines x --batch-size 8 -- train
                error: invalid value 'x' for '--lines <FORMAT>': "x" is neither a known trainer (torchtitan, megatron, nanogpt, nemo, nanotron, deepspeed, composer, pytorch-imagenet, horovod, tf-cnn-benchmarks, mlperf, hf-trainer) nor a regular expression with a group such as (?P<ms>[\d.]+); groups: step, s, ms, tokens_per_s, rank_tokens_per_s, images_per_s, rank_images_per_s, samples_per_s, rank_samples_per_s, loss, batch
        "#]],
        |options| refused(ringmark("run").args(words(options)), 2),
    );
}

#[test]
fn known_launchers_start_once_per_host_or_job() {
    let dry_run = |cases: &str, program: &str| {
        let options = "--hosts a:8,b:8 --device cuda --dtype bf16 --batch-size 4 --lines horovod --no-doctor --dry-run";
        ringmark(&format!("run {options} --cases {cases} -- {program}"))
    };
    let torchrun = "torchrun --nproc-per-node={ranks_per_host}";
    let plan = succeeds(&mut dry_run("1n8g", &format!("{torchrun} train.py")));
    assert!(
        plan.contains("# program, one per host: torchrun ") && plan.contains(", until the program ends, "),
        "{plan}"
    );
    let plan = succeeds(&mut dry_run("1n8g", "deepspeed train.py"));
    assert!(plan.contains("# program, one per job: deepspeed "), "{plan}");
    let connected = "--nnodes={nodes} --node-rank={node} --master-addr={master} --master-port={port}";
    succeeds(&mut dry_run("1n8g,2n8g", &format!("{torchrun} {connected} train.py")));
    let error = refused(&mut dry_run("2n8g", &format!("{torchrun} train.py")), 2);
    assert!(error.contains("torchrun connects several hosts only with --nnodes={nodes} "), "{error}");
    let accelerate = "accelerate launch --num_processes={ranks}";
    let error = refused(&mut dry_run("2n8g", &format!("{accelerate} train.py")), 2);
    assert!(error.contains("accelerate connects several hosts only with --num_machines={nodes} "), "{error}");
    let connected = "--num_machines={nodes} --machine_rank={node} --main_process_ip={master}";
    succeeds(&mut dry_run("1n8g,2n8g", &format!("{accelerate} {connected} train.py")));
    let error = refused(&mut dry_run("1n1g,1n8g", "deepspeed train.py"), 2);
    assert!(error.contains("the command is the same in all 2 cases") && error.contains("write {ranks} "), "{error}");
}
