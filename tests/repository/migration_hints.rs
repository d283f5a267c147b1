//! Options of other programs: docs/coming_from.md compared with the answers of `ringmark`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use expect_test::expect;
use ringmark_core::options::migration_hints::{
    BANDWIDTH_HINTS, CHECKPOINT_HINTS, COMMON_HINTS, HOST_HINTS, LAUNCHER_HINTS, PACK_HINTS, READER_HINTS, WORKER_HINTS,
};

use crate::support::golden::assert_golden;
use crate::support::sandbox::{Sandbox, ringmark, run, succeeds};

/// A row of a table: their option, ours, and a comment.
struct Row {
    theirs: String,
    ours: String,
    remark: String,
}

fn rows() -> Vec<Row> {
    let read = |page: &str| {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page)).expect("readable")
    };
    let models = read("language_models.md");
    let (_, of_models) = models.split_once("## From other programs").expect("a section");
    let text = read("coming_from.md") + of_models;
    let row = |line: &str| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix('|')?.split(" |").map(str::trim).collect();
        let [theirs, ours, remark] = cells[..] else { panic!("{line} has not three cells") };
        Some(Row { theirs: theirs.to_owned(), ours: ours.to_owned(), remark: remark.to_owned() })
    };
    let rows: Vec<Row> = text.lines().filter_map(row).collect();
    assert!(rows.len() > 50, "{} rows", rows.len());
    rows
}

/// Returns the texts between backticks.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the options in parts of a command line, without values.
fn options<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let words = pieces.into_iter().flat_map(|piece| piece.split([' ', ',']));
    words.filter(|word| word.starts_with('-')).map(|word| word.split('=').next().unwrap_or(word)).collect()
}

fn known() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for command in [
        "sweep",
        "score",
        "bandwidth",
        "checkpoint",
        "input",
        "extract",
        "report",
        "pack",
        "diff",
        "predict",
        "doctor",
        "accept",
        "goodput",
    ] {
        let help = succeeds(&mut ringmark(&format!("{command} --help")));
        known.extend(help.split([' ', ',', '\n']).filter(|word| word.starts_with('-')).map(str::to_owned));
    }
    known
}

#[test]
fn every_suggested_option_exists() {
    let (known, rows) = (known(), rows());
    let hints = [LAUNCHER_HINTS, WORKER_HINTS, BANDWIDTH_HINTS, PACK_HINTS, READER_HINTS, HOST_HINTS, COMMON_HINTS]
        .into_iter()
        .chain([CHECKPOINT_HINTS])
        .flatten();
    // Options passed on to mpirun are not ours.
    let ours = hints.map(|hint| hint.ours).filter(|ours| !ours.contains("mpirun -np"));
    let pieces = ours.chain(rows.iter().map(|row| row.ours.as_str())).flat_map(code);
    for option in options(pieces.map(|piece| piece.split('"').next().unwrap_or(piece))) {
        assert!(known.contains(option), "no command has {option}");
    }
}

/// Returns the tip for a command line, or `none`.
fn tip(line: &str) -> String {
    let (status, stdout, error) = run(&mut ringmark(line));
    assert_eq!(status, Some(2), "{line}: {stdout}{error}");
    error.lines().find_map(|line| line.strip_prefix("  tip: ")).unwrap_or("none").to_owned()
}

#[test]
fn options_of_other_programs_get_one_line() {
    let lines = [
        "bandwidth --op sum",
        "bandwidth -o all_reduce",
        "bandwidth --op all2all",
        "bandwidth -R 1",
        "bandwidth --iterations 10",
        "bandwidth --algo ring",
        "bandwidth --format csv",
        "bandwidth -g 1",
        "sweep --bind-to core",
        "sweep --npernode 4",
        "sweep --use-amp",
        "sweep --data_train a.rec",
        "sweep --gpu_num_per_node 8",
        "sweep --bucket_cap_mb 40",
        "sweep --model bert-base",
        "sweep --quick --profile dlperf",
        "sweep --rdzv-backend c10d",
        "sweep --rdzv-endpoint a:29500",
        "sweep --nproc-per-node 4",
        "sweep --nproc-per-node gpu",
        "sweep --nproc_per_node=8 --nnodes=2",
        "sweep --nnodes 4 --nproc-per-node 8",
        "sweep --nnodes 1 --nproc-per-node 8",
        "sweep -np 16 -H a:8,b:8",
        "sweep -n 16 -N 2",
        "sweep -np 3 -H a:8,b:8",
        "sweep --nproc 1",
        "bandwidth -np 16 -H a:8,b:8",
        "sweep --gpu 8",
        "sweep --iterations 10",
        "sweep --outdir x",
        "sweep --amp-level O1",
        "sweep --timeline t.json",
        "sweep -f hosts",
        "sweep --overwrite",
        "sweep first",
        "sweep --cases 1n1g\t1n2g",
        "bandwidth -C 1",
        "bandwidth -m 5",
        "bandwidth -N 3",
        "bandwidth -d int8",
        "watch --out x",
        "sweep --nnodes 1:4",
        "sweep --max-restarts 3",
        "sweep --min-np 2",
        "sweep --check-build",
        "sweep --nics eth0",
        "sweep --nodelist a,b",
        "sweep --time 10",
        "sweep --exclusive",
        "sweep --block_size 1024",
        "sweep --training.seq_len 2048",
        "sweep --device_train_microbatch_size 4",
        "sweep --recompute-granularity full",
        "sweep --gradient_checkpointing",
        "sweep --max_iters 100",
        "sweep --train-iters 100",
        "sweep --use-distributed-optimizer",
        "sweep --clip_grad_norm 1.0",
        "sweep --max_grad_norm 1",
        "sweep --tensor-parallel-size 2",
        "sweep --deepspeed ds_config.json",
        "sweep --zero-stage 3",
        "sweep --fsdp full_shard",
        "sweep --strategy ZeRO3",
        "sweep --strategy FULL_SHARD",
        "bandwidth --strategy deepspeed",
        "sweep --strategies all-reduce,ZeRO-2",
        "sweep --model meta-llama/Llama-2-7b-hf",
        "sweep --model gpt2-xl",
        "sweep --sequence-length 512,1024",
        "sweep --gradient-accumulation-steps 4",
        "sweep --synthetic",
        "sweep --precision bf16",
        "sweep --compile",
        "sweep --print-freq 10",
        "sweep --scenario Offline",
        "sweep --cases 8",
        "sweep --cases 2x8",
        "sweep --resume results/rack7",
        "sweep --hosts a:8 b:8",
        "sweep --models resnet50 resnet18",
        "sweep resnet50",
        "sweep --base-lr 0.1",
        "sweep --network vgg16",
        "sweep --network resnet50_v1",
        "sweep --network resnet --num-layers 50",
        "sweep --network resnet --num-layers 77",
        "sweep --network foo",
        "sweep -a resnet50",
        "score --arch resnet18",
        "sweep --model llama",
        "sweep --model llama-7b",
        "sweep --model resnet",
        "sweep --batch 8,16",
        "sweep --batch-size 8\t16",
        "sweep --env A=1",
        "sweep --rankfile f",
        "sweep --recompute full",
        "sweep help",
        "watch",
        "sweep --resume",
        "sweep --global-batch 64 --batch-size 8",
        "sweep --gpus all",
        "accept --gpus 0-7",
        "accept --resume",
        "sweep 128 fp16",
        "sweep quick",
        "sweep train.py",
        "sweep --price 2.49",
        "sweep --dtypes fp16 --price 2.49",
        "input imgs",
        "extract r1 r2",
        "extract --csv r",
        "report r --format pdf",
        "report r --output x.html",
        "diff a b --threshold 5",
        "diff a b --tolerance 5%",
        "diff a b --noise 5",
        "diff a b --format json",
        "predict r --nodes 8",
        "check r --strict",
        "watch -n 1 r",
        "doctor a:8",
        "doctor a b",
        "doctor --fix",
        "accept --nodes 64",
        "accept --cases 8n8g",
        "accept --duration 2h",
        "doctor --nodes 64",
        "sweep --num_processes 8",
        "sweep --num_machines 4 --num_processes 32",
        "sweep --machine_rank 0",
        "sweep --main_process_ip a",
        "sweep --main_process_port 29500",
        "sweep --multi_gpu",
        "goodput",
        "diff q1",
        "check",
        "report",
        "predict",
        "extract",
        "pack images",
        "sweep -N 64 --ntasks-per-node=8",
        "sweep -N 2 -n 16 -H a:8,b:8",
        "sweep --exclude node3",
        "sweep --gpu 1",
        "sweep --strategy zero4",
        "sweep --strategy zero0",
        "sweep --n_layer 12",
        "sweep --init_from scratch",
        "sweep --eval_interval 10",
        "sweep --offload",
        "sweep -np8",
        "sweep -N2",
        "sweep --report-bindings",
        "sweep --mpi=pmix",
        "sweep -mca btl tcp",
        "sweep -np 7 -H a:4,b:4",
        "sweep --gc-threshold 0.25",
        "sweep --fsdp shard_grad_op",
        "sweep --zero-stage 2",
        "sweep --devices 8",
        "sweep --include a:0,1",
        "sweep --wandb_log True",
        "sweep --launcher pdsh",
        "sweep --train_batch_size 256",
        "run torchrun --nproc_per_node 2 train.py",
        "-np 4",
        "torchrun --nproc-per-node 8 train.py",
        "mpirun -np 4 ringmark sweep",
        "nccl-tests",
        "trian",
        "status",
        "resnet18",
        "drain",
        "sweep --steps 5",
        "sweep --num-iters 100",
        "score --num-iters 5",
        "sweep --model resnet51",
        "sweep --model foo",
        "sweep --device cuda:0",
        "sweep --device rocm",
        "sweep --launcher torchrun",
        "sweep --repeat 5",
        "sweep --sync-bn",
        "sweep --csv",
        "sweep --export-json x.json",
        "bandwidth --export-json x.json",
        "diff a b --export-json x.json",
        "sweep --quiet",
        "score --benchmark 1",
        "score --data-dir imgs",
        "score --epochs 3",
        "checkpoint --dir /scratch",
        "bandwidth -o results/x",
        "diff a b --noise 0.02",
        "diff a b --noise 0.5",
        "alternate",
        "alternate --warmup-steps 3",
        "sweep --hosts node[01-64]\t8",
    ];
    let tips: String = lines.map(|line| format!("{line}\n    {}\n", tip(line))).concat();
    assert_golden("tips.txt", &tips);
}

/// Each wrong option is reported once, with its tip, up to a conflict or a missing argument.
#[test]
fn all_wrong_options_are_reported_together() {
    for (line, expected) in [
        // One tip for the options that select the case, below the last of them.
        (
            "sweep --nproc_per_node=8 --nnodes=2",
            expect![[r"
            error: unexpected argument '--nproc_per_node' found
            error: unexpected argument '--nnodes' found
              tip: --nproc_per_node --nnodes: `--hosts a:8,b:8 --cases 2n8g` is 2 nodes with 8 ranks each
        "]],
        ),
        (
            "sweep -np 16 -H a:8,b:8",
            expect![[r"
            error: unexpected argument '-np' found
              tip: -np: `--hosts a:8,b:8 --cases 2n8g` is 2 nodes with 8 ranks each
        "]],
        ),
        (
            "sweep --np 4 --dtype fp8 --bucket_mb=40 --batch_size 8 --quick --hosts a:8;b:8 --model resnet18",
            expect![[r#"
                error: unexpected argument '--np' found
                  tip: --np: use `--cases 1n4g` for 1 node with 4 ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each
                error: unexpected argument '--bucket_mb' found
                  tip: a similar argument exists: '--bucket-mb'
                error: unexpected argument '--batch_size' found
                  tip: --batch_size: `--batch-size 8` is the number of images or sequences per GPU and iteration
                error: invalid value 'fp8' for '--dtype <TYPE>'
                  tip: use fp32, tf32, fp16 or bf16
                error: invalid value 'a:8;b:8' for '--hosts <HOST:SLOTS,..>': separate hosts by commas: a:8,b:8
            "#]],
        ),
        // An alias of --strategy; a flag without a value; a word without an option.
        (
            "bandwidth --kvstore ps --foo -b 8 resnet18",
            expect![[r"
                error: unexpected argument '--foo' found
                error: invalid value 'ps' for '--strategy <NAME>'
                  tip: did you mean `--strategy dist_sync`?
                error: unexpected argument 'resnet18' found
                  tip: `--model resnet18`
            "]],
        ),
        // The folder may be the value of the option.
        (
            "extract --foo results/none",
            expect![[r"
                error: unexpected argument '--foo' found

                For more information, try '--help'.
            "]],
        ),
        (
            "sweep --foo --quick --profile cpu",
            expect![[r"
                error: unexpected argument '--foo' found

                For more information, try '--help'.
            "]],
        ),
    ] {
        let (status, stdout, stderr) = run(&mut ringmark(line));
        assert_eq!((status, stdout.as_str()), (Some(2), ""), "{line}: {stderr}");
        expected.assert_eq(&stderr);
    }
    let many = (0..20).map(|number| format!(" --foo{number}")).collect::<String>();
    let (_, _, stderr) = run(&mut ringmark(&format!("sweep{many}")));
    assert_eq!(stderr.lines().count(), 8, "{stderr}");
}

#[test]
fn foreign_options_are_accepted_or_answered() {
    for row in rows() {
        for word in options(code(&row.theirs)) {
            let is_known_or_answered = |command: &&str| {
                let error = run(&mut ringmark(&format!("{command} {word}"))).2;
                !error.contains("unexpected argument") || error.contains(&format!("tip: {word}: "))
            };
            let commands = ["sweep --dry-run", "bandwidth --dry-run", "pack"];
            assert!(commands.iter().any(is_known_or_answered), "{word} is answered by none of {commands:?}");
        }
    }
}

#[test]
fn hugging_face_names_are_accepted() {
    for (name, model) in [
        ("openai-community/gpt2", "gpt2-124m"),
        ("gpt2-medium", "gpt2-355m"),
        ("meta-llama/Llama-3.2-1B", "llama-1b"),
        ("Llama-3.1-8B", "llama-8b"),
    ] {
        let line = format!("sweep --dry-run --hosts a:1 --device cuda --cases 1n1g --runs 1 --model {name}");
        let commands = succeeds(&mut ringmark(&line));
        assert!(commands.contains(&format!(" --model {model} --batch-size 4 ")), "{name}: {commands}");
    }
}

#[test]
fn accepted_options_are_accepted() {
    let sandbox = Sandbox::new("exit 1");
    let mut accepted = 0;
    for row in rows().iter().filter(|row| row.remark.starts_with("accepted")) {
        let typed = code(&row.theirs)[0];
        let mut command = ringmark(&format!("sweep --dry-run --hosts a:1 --cases 1n1g --runs 1 {typed}"));
        succeeds(command.arg("--worker").arg(sandbox.worker()).arg("--out").arg(sandbox.path("out")));
        accepted += 1;
    }
    assert!(accepted > 4, "{accepted} rows");
}
