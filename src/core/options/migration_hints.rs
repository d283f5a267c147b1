//! Hints for options of other programs that ringmark does not have: an error caused by one of them gets a line with
//! ringmark's equivalent. An option with the same meaning is an alias in the option table instead.

use std::ffi::OsString;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::options::keyword_enum::KeywordEnum;
use crate::shell::{self, CommandWords};

/// Options or commands of other programs with one meaning, and ringmark's equivalent.
#[derive(Debug)]
pub struct MigrationHint {
    /// Words as typed.
    pub words: &'static [&'static str],
    /// Replacement to type; `{}` stands for the number or size that was typed, `{FILES}` and others for the typed value,
    /// or for the word in the braces without one.
    pub ours: &'static str,
}

/// Hint for a number of ranks without a number of nodes.
const RANKS: &str = "use `--cases 1n{}g` for 1 node with {} ranks, one per GPU; `2n8g` is 2 nodes with 8 ranks each";

/// Creates a table of hints.
macro_rules! hints {
    ($($($word:literal)|+ => $ours:expr),+ $(,)?) => {
        &[$(MigrationHint { words: &[$($word),+], ours: $ours }),+]
    };
}

/// Hints for `ringmark`.
pub const LAUNCHER_HINTS: &[MigrationHint] = hints![
    "-np" | "--np" | "-n" | "--num-proc" | "--ntasks" | "--world-size" | "--num-processes" => RANKS,
    "--nproc-per-node" | "--nproc" | "--nprocs" | "-g" | "--ngpus" | "--num-gpus" | "--gpus-per-node"
        | "--ntasks-per-node" | "--npernode" | "-npernode" | "--ppr" | "--gpu-num-per-node" | "--devices"
        => RANKS,
    "-N" | "--nnodes" | "--nodes" | "--num-nodes" | "--num-machines"
        => "`--hosts a:8,b:8` lists the nodes, and `--cases {}n8g` uses {} of them",
    "--num-gpus-per-node" | "--slots" | "--slots-per-host" => "`--hosts a:{},b:{}` gives every host {} ranks",
    "--exclude" => "omit these hosts from --hosts, or pass --exclude to salloc; `--gpus 0,1` selects GPUs of every host",
    "--include" => "`--hosts a:8,b:8` lists the hosts, and `--gpus 0,1` the GPUs of each host",
    "--master-addr" | "--master-port" | "--rdzv-endpoint" | "--dist-url" | "--local-addr"
        | "--main-process-ip" | "--main-process-port"
        => "not needed: `--hosts a:8,b:8` is enough; mpirun starts and connects the ranks",
    "--rdzv-backend" | "--rdzv-id" | "--rdzv-conf" | "--multiprocessing-distributed"
        => "not needed: there is no rendezvous; mpirun starts and connects the ranks",
    "--min-np" | "--max-np" | "--num-min-nodes" | "--host-discovery-script" | "--reset-limit" | "--elastic-timeout"
        | "--blacklist-cooldown-range"
        => "not supported: the number of ranks is fixed during a run; `--cases 1n8g,2n8g` measures several numbers",
    "--max-restarts" | "--monitor-interval"
        => "not needed: a failed run ends the sweep, and `--out FOLDER --resume` continues it",
    "--start-method" | "--role" | "--redirects" | "-r" | "--tee" | "--no-python" | "--module" | "--run-path"
        | "--gloo-timeout-seconds" | "--disable-cache" | "--log-level"
        => "not needed: ringmark starts its own worker, and every run has a log in `--out FOLDER`",
    "--nics" => "`--interface NAME` selects the network of all hosts",
    "--ssh-identity-file" => "write the key into ~/.ssh/config: `Host a b`, `IdentityFile FILE`",
    "--mpi-args" => "`--launcher-args \"..\"` passes arguments to mpirun",
    "--check-build" => "`ringmark doctor` prints what works on each host",
    "--nodelist" | "--node-ips" | "-w"
        => "`--hosts a:8,b:8` lists the hosts; with `--launcher slurm` the allocation has them",
    "-bind-to" | "--bind-to" | "--cpu-bind" => "`--bind core`, `numa` or `none` binds ranks to processors",
    "-oversubscribe" | "--oversubscribe" => "not needed: ringmark passes it to mpirun",
    "-mca" | "--mca" | "-map-by" | "--map-by" | "--rankfile" | "-rankfile" | "-rf" | "--report-bindings"
        | "-report-bindings" | "--tag-output" | "-tag-output" | "--display-map" | "-display-map" | "--display-allocation"
        | "--prefix" | "-prefix"
        => "`--launcher-args \"..\"` passes arguments to mpirun",
    "-allow-run-as-root" | "--allow-run-as-root" => "not needed: ringmark passes it to mpirun",
    "-x" | "--export" | "--env" | "-genv" | "--environment"
        => "NCCL_*, PATH and LD_LIBRARY_PATH reach every rank; for other variables use `--launcher-args \"-x NAME\"`",
    "--network-interface" | "--network-interfaces" => "`--interface NAME` selects the network of all hosts",
    "-v" | "--verbose" | "-vv" | "--debug"
        => "not needed: the logs in `--out FOLDER` contain every iteration, and `--dry-run` prints every command",
    "-f" => "`--hostfile FILE` lists the hosts",
    "--overwrite" | "--force"
        => "not supported: choose another `--out FOLDER`; `--resume` continues the sweep in a folder",
    "--json" | "--export-json"
        => "`ringmark extract FOLDER --json` prints the figures of a sweep, and `--format pytorch-ddp` those for \
            PyTorch's diff.py",
    "--csv" | "--export-csv" => "`ringmark extract FOLDER --format csv` exports the figures",
    "--markdown" | "--export-markdown" => "`ringmark report FOLDER --format markdown` prints the tables",
    "-q" | "--quiet" | "--silent" => "redirect it: `> /dev/null`; the logs in `--out FOLDER` and the exit status remain",
    "-p" => "`--ssh-port PORT` is sshd's port on the hosts",
    "-s" => "`--servers {}` is the number of server processes of a kv-store",
    "--partition" | "--account" | "-A" | "--qos" | "--gres" | "--exclusive" | "--time" | "--job-name" | "-J" | "-t"
        | "--mem" | "--constraint" | "--reservation" | "--gpus-per-task" | "-c" | "--cpus-per-task" | "-G"
        | "--dependency"
        => "pass it to sbatch or salloc: scripts/slurm.sbatch is a template",
    "--gpu-bind" => "`--launcher-args \"..\"` passes arguments to srun",
    "--start-timeout" | "--stall-check-warning-time-seconds" | "--stall-check-shutdown-time-seconds"
        => "`--stall-timeout SECONDS` ends a run without progress and names the rank that hangs",
    "--multi-gpu" => "not needed: the default cases end with all GPUs of all hosts",
    "--no-stall-check" => "`--stall-timeout 0` waits indefinitely",
    "--timeline-filename" | "--timeline"
        => "`--trace-runs 1 --trace-format horovod` of `ringmark sweep` writes Horovod's timeline next to the record",
    "--block_size" | "--block-size" | "--training.seq_len" | "--max_seq_len"
        => "`--sequence-length {}` is the number of tokens of a sequence",
    "--grad_clip" | "--training.max_norm" | "--max-norm" | "--clip-grad-norm" | "--max-grad-norm" | "--gradient-clip-val"
        | "--gradient-clipping"
        => "`--clip-norm {}` limits the norm of the gradients of all parameters",
    "--training.local_batch_size" => "`--batch-size {}` is the number of sequences of each rank",
    "--training.global_batch_size" | "--global_train_batch_size"
        => "`--global-batch {}` is the number of sequences of all ranks",
    "--device_train_microbatch_size" | "--train-micro-batch-size-per-gpu"
        => "`--micro-batch {}` is the number of sequences that a rank computes at once",
    "--recompute-granularity" | "--recompute-activations" | "--activation_checkpoint.mode" | "--activation-checkpointing"
        | "--activation-checkpoint.mode" | "--gradient_checkpointing" | "--gradient-checkpointing"
        => "`--recompute block` computes the activations of each block again in backward",
    "--output" | "--output-dir" | "--outdir" | "--out-dir" | "--output-filename" | "--log-dir" | "--save-dir"
        | "--work-dir"
        => "`--out {FOLDER}` is for logs and records",
    "--kvstore"
        => "`--strategy NAME` of `ringmark sweep` and `ringmark bandwidth --model` selects where gradients are \
            summed and weights updated",
];

/// Hints for `ringmark-worker`.
pub const WORKER_HINTS: &[MigrationHint] = hints![
    "-np" | "--np" | "-n" | "--num-proc" | "--nproc-per-node" | "-g" | "--ngpus" | "-t" | "--nthreads" | "-H"
        | "--hosts"
        => "mpirun starts the ranks: `mpirun -np {} ringmark-worker ..`; `ringmark` does both",
    "--cases" | "--runs" | "--hostfile" | "--resume" | "--dry-run" | "--sync" | "--interface" | "--profile"
        => "it belongs to `ringmark sweep`, which starts the ranks",
    "--out" => "`ringmark sweep --out FOLDER` keeps log and record of every run",
    "--gpus" => "set CUDA_VISIBLE_DEVICES, or use `ringmark sweep --gpus {}`",
];

/// Hints for users of nccl-tests, for `bandwidth` only: its short options mean something else in other programs.
pub const BANDWIDTH_HINTS: &[MigrationHint] = hints![
    "-R" | "--local_register" | "-S" | "--report_timestamps" | "-T" | "-p" | "-y"
        => "not supported; `ringmark bandwidth -h` lists the common options",
    "--iterations" => "`-n {}` is the number of iterations per size",
    "--min-bytes" => "`-b {}` is the smallest message",
    "--max-bytes" => "`-e {}` is the largest message",
    "--algo" | "--proto" => "`--nccl-algo NAME` selects the algorithm; NCCL_PROTO reaches every rank",
    "--csv" | "--export-json" => "`--json {FILE}`",
    "--operation" | "--operations" | "--ops" => "`--op all_reduce`, or several as `--op all_gather,reduce_scatter`",
    "-g" | "--ngpus" => "there is one rank per GPU; `--cases 1n{}g` selects {} ranks",
    "-t" | "--nthreads"
        => "not supported: each rank drives one GPU with one thread, and `--cases 1n8g` sets the number of ranks",
    "-N" | "--run_cycles" => "not supported: `-n N` is the number of iterations per size; repeat the whole command",
    "-m" | "--agg_iters" => "not supported: each operation is timed separately; `-n N` is their number per size",
    "-C" | "--report_cputime" => "not supported: the time ends with the operation, not with its launch on the CPU",
    "-z" | "--blocking" | "-G" | "--cudagraph" | "-a" | "--average" | "--parallel_init"
        => "not needed: every rank times every all-reduce, and the record contains all times",
    "-J" | "--output_file" => "`--json FILE`",
    "--quick" => "not needed: `-e 1M -n 5` is a short run",
    "--image-shape" | "--image-size"
        => "not supported: the network determines the size: 299 for inception-v3, otherwise 224",
    "--size" | "--sizes" => "`-b 8 -e 128M` are the smallest and the largest message",
];

/// Hints for `ringmark checkpoint`.
pub const CHECKPOINT_HINTS: &[MigrationHint] = hints![
    "--dir" | "--directory" | "--path" | "--target" | "--checkpoint-dir"
        => "`--folder {FOLDER}` is for the checkpoints, `--out` for logs and records",
    "--strategy" | "--strategies" => "`--writers shards` lets every rank write its part, as with fsdp; `rank-0` writes one file",
];

/// Hints for `ringmark pack`, for users of MXNet's im2rec.py.
pub const PACK_HINTS: &[MigrationHint] = hints![
    "--recursive" => "not needed: every folder in FOLDER is a class, with all files below it",
    "--pack-label" => "not needed: all labels of a line are packed",
    "--root" => "not needed: the paths of a list are relative to FOLDER",
    "--exts" | "--chunks" | "--train-ratio" | "--test-ratio"
        => "`--list FILE.lst` packs the images of your own list, in its order",
];

/// Hint for the number of iterations that are not measured.
const WARMUP: &str = "`--warmup {N}`";

/// Hints for both programs.
pub const COMMON_HINTS: &[MigrationHint] = hints![
    "--price" => "`ringmark extract` and `ringmark report` have --price: it applies to a result",
    "--test-io" => "`ringmark input --data FILES` reads and decodes alone",
    "--use-adasum" => "not supported: the all-reduce always sums",
    "--quick" => "not needed: `ringmark sweep` and `ringmark score` have a quick profile",
    "--bf16" | "--use-bf16" => "`--dtype bf16`",
    "--amp" | "--use-amp" | "--native-amp" | "--amp-level" | "--opt-level" | "--fp16" | "--use-fp16"
        => "`--dtype fp16` is mixed precision with a dynamic loss scale",
    "--cycle-time-ms" => "not needed: there is no cycle; a bucket is exchanged as soon as its last gradient is ready",
    "--cache-capacity" => "not needed: ranks do not negotiate, so there is no cache",
    "--no-hierarchical-allreduce"
        => "`--hierarchical off` is one all-reduce over all ranks, on CPUs; NCCL's ring is one anyway",
    "--hierarchical-allgather" | "--no-hierarchical-allgather"
        => "`--hierarchical on|off` also applies to the all-gather of codes; gradients are not gathered",
    "--autotune-warmup-samples" | "--autotune-steps-per-sample" | "--autotune-bayes-opt-max-samples"
        | "--autotune-gaussian-process-noise"
        => "not needed: `--autotune` tries a fixed list of settings, each for a fixed number of steps",
    "--num-warmup-batches" | "--warmup-iters" | "--warmup-steps" => WARMUP,
    "--num-iters" | "--num-batches" | "--num-batches-per-iter" | "--benchmark-iters" | "--steps" | "--num-steps"
        | "--max-steps" | "--max_iters" | "--max-iters" | "--train-iters" | "--training.steps"
        | "--iter-num" | "--num-iterations" | "--iterations"
        => "`--iters N`, of which `ringmark sweep` does not measure the first `--warmup N`",
    "--trials" | "--repeats" | "--repetitions" => "`--runs {N}`",
    "--learning-rate" => "`--lr {RATE}`",
    "--optimizer" => "`--optimizer NAME` of `ringmark sweep` and `bandwidth`; inference does not update weights",
    "--compression" => "`--gradient-compression fp16`, or another keyword",
    "--threads" | "--num-workers" | "--workers" | "-j"
        => "`--decode-threads N` is the number of decoder threads per rank",
    "--wandb" | "--wandb-log" | "--wandb-project" | "--wandb-run-name" | "--tensorboard" | "--tensorboard-dir"
        => "not needed: every iteration is in the record of the run; `ringmark extract FOLDER --format csv` exports figures",
    "--disp-batches" | "--log-interval" | "--print-freq" | "--log-freq" | "--loss-print-every-n-iter"
        => "not needed: every iteration is printed",
    "--network" | "--num-layers" | "--arch" | "-a" | "--model-name" | "--backbone"
        => "`--model NAME`; `ringmark sweep --help` lists the networks",
    "--gc-threshold" => "`--gradient-compression 2bit:{}` is kind and threshold in one",
    "--image-shape" => "`--image-size {}`",
    "--bs" | "--batch" | "-b" | "--batch_size" | "--per-device-train-batch-size"
        | "--per-gpu-batch-size" | "--local-batch-size" | "--batch-size-per-device"
        | "--batch-size-per-gpu"
        => "`--batch-size {}` is the number of images or sequences per GPU and iteration",
    "--train-batch-size"
        => "`--global-batch {}` is the number of images or sequences of all ranks (DeepSpeed), `--batch-size` that of one",
    "--clip-gradient" => "not supported: `--clip-norm` limits the norm of all gradients, not each value",
    "--use-distributed-optimizer" => "`--strategy zero1` divides the states of the optimizer among the ranks",
    "--zero" | "--zero-stage" | "--deepspeed" | "--deepspeed-config" | "--ds-config"
        | "--use-deepspeed"
        => "`--strategy zero1`, `zero2` or `zero3` is that stage of ZeRO; batch size, optimizer and precision are options",
    "--fsdp" | "--sharding-strategy" | "--use-fsdp" | "--fsdp-sharding-strategy" | "--fsdp-config"
        => "`--strategy fsdp` divides weights, gradients and optimizer states among the ranks",
    "--tensor-model-parallel-size" | "--pipeline-model-parallel-size" | "--context-parallel-size"
        | "--tensor-parallel-size" | "--pipeline-parallel-size" | "--expert-model-parallel-size" | "--sequence-parallel"
        | "--tp" | "--pp" | "--tp-size" | "--pp-size" | "--tensor-parallel" | "--pipeline-parallel" | "--model-parallel"
        | "--parallelism.tensor_parallel_degree" | "--parallelism.pipeline_parallel_degree"
        => "not supported: every rank computes the whole network; `--strategy fsdp` divides its memory",
    "--total-batch-size" => "`--global-batch {}` is the number of images or sequences of all ranks",
    "--gradient-accumulation-steps" | "--accumulation-steps" | "--accumulate-grad-batches" | "--batches-per-allreduce"
        | "--backward-passes-per-step"
        => "`--accumulate N`, with N times the `--batch-size`: it counts all N parts",
    "--gradient-predivide-factor" => "not supported: the sum is divided by the number of ranks",
    "--val-batch-size" | "--test-batch-size" | "--val-batch-size-per-device"
        => "not supported: validation uses the batch size of training",
    "--synthetic" | "--use-synthetic-data" | "--synthetic-data" | "--dummy" | "--fake-data" | "--benchmark"
        => "not needed: data are synthetic unless `--data FILES` is given",
    "--mixed-precision" | "--precision" | "--data-type" => "`--dtype bf16`, or `fp16`, `tf32`, `fp32`",
    "--channels-last" | "--channel-last" | "--data-format" | "--memory-format" => "`--layout nhwc`, or `nchw`",
    "--compile" | "--xla" | "--use-xla" | "--torch-compile"
        => "not supported: layers run as kernels of libtorch and ringmark; see `--kernels` and `--graphs`",
    "--n-layer" | "--n-head" | "--n-embd" | "--num-attention-heads" | "--hidden-size" | "--ffn-hidden-size"
        => "not supported: each network has fixed sizes: `--model gpt2-124m`, or another one of `ringmark sweep --help`",
    "--eval-interval" | "--eval-iters" | "--eval-only"
        => "`--validate FILES` measures loss and accuracy after every epoch of `--data`",
    "--offload" | "--cpu-offload" | "--offload-optimizer" | "--optimizer-cpu-offload" | "--offload-param"
        => "not supported: weights and optimizer states stay on the device; `--strategy fsdp` divides them among the ranks",
    "--init-from" | "--pretrained" | "--model-load-dir" => "`--init FILE.safetensors` loads weights",
    "--train-data-part-num" | "--val-data-part-num" | "--num-examples"
        => "not needed: `--data FILES` and `--validate FILES` read all images of these files",
    "--model-save-dir" | "--model-save-every-n-epoch"
        => "`--checkpoint-every N` keeps checkpoints next to the records",
    "--fuse-bn-relu" | "--fuse-bn-add-relu" => "not needed: `--kernels auto` fuses these layers on GPUs",
    "--bucket-cap-mb" | "--nccl-fusion-threshold-mb" => "`--bucket-mb {}`: 1 MB is 1e6 bytes (DDP and OneFlow: 2^20)",
    "--warmup-epochs" => "`--lr-warmup-iters N`",
    "--base-lr" => "`--lr RATE`, multiplied by the number of ranks",
    "--evaluate" | "--do-eval" => "`ringmark score` measures inference, and `--validate FILES` the accuracy",
    "--scenario" | "--target-qps" | "--max-duration" | "--mlperf_conf" | "--user_conf"
        => "not supported: `ringmark score` measures fixed batch sizes, such as `--batch-sizes 1,32`",
    "--count" => "`--runs N`",
    "--variable-update" => "`--strategy NAME` selects how gradients are summed and weights updated",
    "--all-reduce-spec" => "`--backend nccl|shared-memory|mpi|none` sums the gradients",
    "--sync-bn" | "--sync-batchnorm" | "--sync-batch-norm" | "--syncbn" | "--use-sync-bn"
        => "not supported: batch normalization uses the samples of its rank",
    "--num-classes" => "not supported: every network has 1000 classes",
    "--launcher" | "--standalone" | "--local-rank" | "--node-rank" | "--rank" | "--machine-rank"
        => "not needed: mpirun, srun or Grid Engine starts the ranks and assigns their numbers",
    "--no-cuda" | "--cpu" => "`--device cpu`",
    "--gpu" | "--cuda" => "`--device cuda`",
    "--gloo" | "--mpi" | "--nccl" => "`--backend nccl`, `mpi` or `shared-memory` chooses how gradients are summed",
    "--test-results" => "`ringmark bandwidth --check 0|1`",
    "--data-dir" | "--dataset" | "--data-path" | "--train-dir" | "--rec-train" | "--data-train" | "--train-data-dir"
        => "`--data {FILES}` of `ringmark sweep`: .rec files, a folder of classes, or token files (.bin)",
    "--use-rec" | "--rec-train-idx"
        => "`--data FILES` of `ringmark sweep`: .rec files, a folder of classes, or token files (.bin)",
    "--use-dali" | "--dali" | "--dali-cpu" | "--data-backend"
        => "not needed: `--data FILES` reads and decodes images in threads of its own; `ringmark input` measures them",
    "--rec-val" | "--data-val" | "--val-data-dir" => "`--validate {FILES}` of `ringmark sweep`",
    "--rec-val-idx" => "`--validate FILES` of `ringmark sweep`",
    "--num-epochs" | "--num-epoch" | "--epochs" => "`--epochs {N}` of `ringmark sweep`, with `--data`",
    "--distributed-backend" | "--dist-backend" => "`--backend nccl|shared-memory|mpi|none` sums the gradients",
];

/// Commands of other programs, and ringmark's equivalents.
pub const COMMANDS: &[MigrationHint] = hints![
    "train" | "run" | "bench" | "benchmark" | "launch" | "start"
        => "`ringmark sweep` trains every case; `ringmark-worker train` is one rank, for a manual run",
    "all_reduce_perf" | "all_gather_perf" | "reduce_scatter_perf" | "reduce_perf" | "broadcast_perf"
        | "alltoall_perf" | "sendrecv_perf" | "allreduce" | "nccl" | "nccl-tests" | "nccl_tests" | "osu_allreduce"
        => "`ringmark bandwidth` measures an all-reduce, and other operations by `--op`",
    "torchrun" | "horovodrun" | "mpirun" | "mpiexec" | "srun" | "deepspeed" | "accelerate" | "python" | "python3"
        => "`ringmark sweep --hosts a:8,b:8` trains ringmark's networks and starts the ranks; \
            `ringmark run -- PROGRAM ..` measures your own program",
    "inference" | "eval" => "`ringmark score` measures inference",
    "compare" => "`ringmark diff BASE TEST`",
    "plot" | "show" | "table" | "results" | "summary" => "`ringmark report FOLDER`, or `ringmark extract FOLDER`",
    "status" | "progress" => "`ringmark watch FOLDER` follows a sweep",
    "models" | "networks" | "list" => "`ringmark sweep --help` lists networks and options",
    "init" | "config" => "`ringmark sweep --dry-run --save-config sweep.toml` writes a file of options",
    "resume" => "`ringmark sweep --out FOLDER --resume`",
    "info" | "env" | "devices" | "collect-env" | "diagnose" => "`ringmark doctor` prints what works on each host",
    "drain" | "undrain" => "`ringmark accept --drain-list` lists the hosts to drain",
    "export" => "`ringmark extract FOLDER --format NAME`",
    "validate" | "verify" => "`ringmark check FOLDER`",
    "version" => "`ringmark --version`",
];

/// Commands of `ringmark`, typed behind `ringmark-worker`.
pub const LAUNCHER_COMMANDS: [&str; 6] = ["sweep", "doctor", "extract", "report", "diff", "watch"];

/// Hints for commands that read results, or that show hosts and running sweeps.
pub const READER_HINTS: &[MigrationHint] = hints![
    "--out" | "--folder" | "--dir" => "pass the folder without an option, as in `ringmark watch FOLDER`",
    "--output" | "--output-dir" | "--output-file" => "`--out {PATH}`",
    "--export-json" => "`--json {FILE}`",
    "--csv" => "`--format csv` of `ringmark extract`; `--json` everywhere",
    "--markdown" | "--md" => "`--format markdown`",
    "--html" | "--svg" => "`-o report.html` or `-o scaling.svg` of `ringmark report`",
    "-v" | "--verbose" | "--details" => "`--explain`, if the command has it; `--json` prints everything",
    "-q" | "--quiet" => "redirect it: `> /dev/null`; the exit status remains",
    "--threshold" | "--tolerance" | "--min-change" => "`--noise {}%`: largest difference that counts as noise",
    "--alpha" | "--confidence" | "--confidence-level" => "`--significance 5%` is an interval of 95 %",
    "--fail" => "`--fail-on slower,missing` of `ringmark diff`",
    "--strict" => "not needed: the exit status is 1 if anything fails or is unknown",
    "--nodes" | "--gpus" | "--hosts" | "-np" | "--np" | "--ranks" | "--scale" => "`--cases 8n8g` is 8 nodes with 8 GPUs each",
    "--interval" | "-n" | "--follow" | "-f" => "not needed: the display follows the sweep until it ends",
    "--once" => "`--json` prints the progress once",
    "--open" => "`-o report.html` writes the page: open it in a browser",
    "--fix" => "not supported: every problem is printed with the commands that fix it",
    "--all" => "not needed: everything is checked and printed",
    "--timeout" => "not needed: each check has its own limit",
    "--check-build" => "`ringmark doctor` prints what works on each host",
];

/// Hints for `ringmark accept` and `ringmark doctor`, which check hosts and have no cases.
pub const HOST_HINTS: &[MigrationHint] = hints![
    "-N" | "--nodes" | "--nnodes" | "--num-nodes" | "--cases" | "-np" | "--np" | "--ranks"
        => "`--hosts node[1-64]:8` lists the hosts; with `--launcher slurm` the allocation has them",
    "--duration" | "--minutes" | "--hours" => "`--soak 2h` of `ringmark accept` repeats its jobs for this time",
];

/// Tips for commands without a required argument.
const MISSING_ARGUMENTS: &[(&str, &str)] = &[
    ("watch", "pass the folder that the sweep prints at its start, its --out: `ringmark watch FOLDER`"),
    (
        "goodput",
        "`--mtbf 10m` injects a failure about every 10 minutes; `--host-mtbf 200d` is for predictions and injects none",
    ),
    ("extract", "pass the --out of a sweep: `ringmark extract results/first`"),
    ("check", "pass the --out of a sweep: `ringmark check results/first`"),
    ("report", "pass the --out of a sweep: `ringmark report results/first -o report.html`"),
    ("predict", "pass the --out of a sweep of several cases: `ringmark predict results/rack7 --cases 16n8g`"),
    ("diff", "pass two results: `ringmark diff results/before results/after`"),
    (
        "alternate",
        "give two commands or more, each in quotes: `ringmark alternate 'sweep --layout nchw' 'sweep --layout nhwc'`",
    ),
    ("pack", "`ringmark pack FOLDER train.rec` packs the images in FOLDER"),
];

/// Values of other programs: option, [`letters`] or text of a value there, and ringmark's equivalent.
const VALUES: &[(&str, &[&str], &str)] = &[
    (
        "--op",
        &["sum", "min", "max", "avg", "prod"],
        "choose a collective operation, for example `--op all_reduce`, which sums by default",
    ),
    ("--op", &["all2all", "alltoallv"], "`--op alltoall`"),
    ("--op", &["p2p", "send", "recv", "sendrecv_perf"], "`--op sendrecv`"),
    ("--op", &["gather", "scatter", "hypercube"], "not measured; all_gather and reduce_scatter are"),
    ("--redop", &["all_reduce", "all-reduce", "allreduce"], "`--op all_reduce`"),
    ("--backend", &["all_reduce", "all-reduce", "allreduce"], "`--op all_reduce`"),
    ("--format", &["csv", "json"], "`--json FILE`"),
    ("--format", &["pdf"], "write `--format html`, and print the page to PDF in a browser"),
    ("--recompute", &["full", "selective", "all", "on", "true"], "`--recompute block`"),
    ("--gpus", &["all"], "not needed: all GPUs are used"),
    ("--profile", &["gpu", "full"], "`--profile dlperf`"),
    (
        "--profile",
        &["mlperf"],
        "not supported: MLPerf measures the time to an accuracy; `--profile dlperf` measures speed",
    ),
    ("--loss-scale", &["dynamic", "auto"], "not needed: the scale is dynamic, and `--loss-scale` is its first value"),
    ("--model", &["llama38b", "llama318b", "llama3", "llama31"], "`--model llama-8b`"),
    ("--model", &["llama31b", "llama321b", "llama32"], "`--model llama-1b`"),
    ("--strategy", &["ps", "server"], "`--strategy dist_sync`"),
    ("--strategy", &["zero1", "zerostage1", "distributedoptimizer"], "`--strategy zero1`"),
    ("--strategy", &["zero2", "zerostage2", "shardgradop"], "`--strategy zero2`"),
    ("--strategy", &["zero3", "zerostage3", "fullshard", "fullyshard", "fsdp"], "`--strategy fsdp`"),
    ("--strategy", &["zero", "zero4", "zero5", "deepspeed"], "use zero1, zero2 or zero3, the stages of ZeRO"),
    ("--strategy", &["zero0", "zerostage0", "noshard"], "`--strategy ddp`"),
    ("--strategy", &["hybridshard", "hsdp"], "`--strategy hsdp`"),
    ("--strategy", &["tp", "pp", "tensorparallel", "pipeline"], "not supported: every rank computes the whole network"),
    (
        "--launcher",
        &[
            "pdsh",
            "openmpi",
            "mpich",
            "mvapich",
            "impi",
            "torchrun",
            "horovod",
            "horovodrun",
            "deepspeed",
            "accelerate",
        ],
        "`--launcher mpirun`, the default",
    ),
    ("--device", &["gpu", "nvidia", "0"], "`--device cuda`"),
    ("--device", &["rocm", "hip", "amd", "mps", "metal", "xpu"], "not supported: use cuda (NVIDIA GPUs) or cpu"),
    ("--backend", &["gloo", "ucc"], "on CPUs use shared-memory or mpi"),
    ("--dtype", &["fp8", "int8", "fp64", "float64"], "use fp32, tf32, fp16 or bf16"),
    (
        "--wire",
        &[
            "int8", "uint8", "int32", "uint32", "int64", "uint64", "double", "fp64", "float64", "fp8e4m3", "fp8e5m2",
            "all",
        ],
        "not supported: use fp32, fp16 or bf16, the types of gradients",
    ),
];

/// Beginnings of names of networks that ringmark lacks, or has in other sizes.
const OTHER_MODELS: [&str; 12] =
    ["bert", "roberta", "gpt", "llama", "t5", "transformer", "opt", "mistral", "qwen", "gnmt", "lstm", "dlrm"];

const NO_OTHER_MODELS: &str = "not supported: ringmark trains image networks, GPT-2 and Llama (`--help` lists them); \
     `ringmark run` measures any other program";

/// Options that take a list.
const LISTS: [&str; 12] = [
    "-H",
    "--hosts",
    "--cases",
    "--models",
    "--dtypes",
    "--batch-sizes",
    "--sequence-lengths",
    "--strategies",
    "--op",
    "--data",
    "--server-hosts",
    "--decode-threads",
];

/// Options whose value is a percentage, with its sign.
const PERCENTAGES: [&str; 2] = ["--noise", "--significance"];

/// Options that take one value, each with the option that takes several.
const PLURALS: [(&str, &str); 5] = [
    ("--batch-size", "--batch-sizes"),
    ("--sequence-length", "--sequence-lengths"),
    ("--dtype", "--dtypes"),
    ("--model", "--models"),
    ("--strategy", "--strategies"),
];

/// Start of a line with a hint.
const TIP: &str = "tip:";

/// Adds a hint to an error that one of `typed` caused, if that is a word of another program, and drops clap's
/// suggestions that are similar only by chance. `M` contains the networks.
pub fn with_hint<M: KeywordEnum>(mut error: clap::Error, hints: &[&[MigrationHint]], typed: &[String]) -> clap::Error {
    let typed = &typed.iter().map(|word| split_number(word)).collect::<Vec<String>>();
    // An option in conflict with another is ringmark's own.
    let is_own = error.kind() == ErrorKind::ArgumentConflict;
    let foreign = find_hint::<M>(&error, hints, typed).filter(|_| !is_own);
    if let (Some((word, _)), ErrorKind::UnknownArgument) = (&foreign, error.kind()) {
        // clap names only the first letter of `-np`.
        error.insert(ContextKind::InvalidArg, ContextValue::String(word.clone()));
    }
    let own = foreign.map(|(_, hint)| hint).or_else(|| hint_for_word::<M>(&error, typed).filter(|_| !is_own));
    let own = own.or_else(|| hint_for_combination(&error, typed).map(str::to_owned));
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
    if error.kind() != ErrorKind::MissingRequiredArgument || own.is_some() {
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

/// Replaces mpirun's options with one dash that would be read as `-h`, a request for help, and joins those with two values.
pub fn with_two_dashes(typed: CommandWords) -> CommandWords {
    let mut replaced: Vec<OsString> = Vec::new();
    let mut words = typed.own().iter().cloned();
    while let Some(word) = words.next() {
        let number = word.to_str().and_then(|word| word.strip_prefix("-np")).filter(|rest| is_number(rest));
        replaced.push(match (word.to_str(), number) {
            (_, Some(number)) => format!("--np={number}").into(),
            (Some("-hostfile" | "-machinefile"), _) => "--hostfile".into(),
            (Some("-host"), _) => "--hosts".into(),
            // With an option -n, the rest would be its value.
            (Some("-np"), _) => "--np".into(),
            (Some("-mca" | "--mca"), _) => {
                let values: Vec<OsString> = words.by_ref().take(2).collect();
                let mut joined = OsString::from("--mca=");
                joined.push(values.join(" ".as_ref()));
                joined
            }
            _ => word,
        });
    }
    typed.with_own(replaced)
}

/// Separates the number from a short option: `-N2` is `-N=2`.
fn split_number(word: &str) -> String {
    let option = word.trim_end_matches(|last: char| last.is_ascii_digit());
    let is_short = option.starts_with('-') && !option.starts_with("--") && option.len() > 1 && !option.contains('=');
    if is_short && option.len() < word.len() { format!("{option}={}", &word[option.len()..]) } else { word.to_owned() }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

/// Prints the errors and exits. After a tip, and after several errors, the reference to the help is omitted. A tip for
/// several errors follows the last of them.
pub fn exit(errors: &[clap::Error]) -> ! {
    if let [request] = errors
        && !request.use_stderr()
    {
        request.exit();
    }
    let text = |error: &clap::Error| {
        let styled = error.render();
        let text = if stderr().is_terminal() { styled.ansi().to_string() } else { styled.to_string() };
        let mut paragraphs: Vec<&str> = text.trim_end().split("\n\n").collect();
        let has_tip = paragraphs.iter().any(|paragraph| paragraph.contains(TIP));
        let is_short = has_tip || errors.len() > 1;
        paragraphs.retain(|paragraph| !is_short || !paragraph.starts_with("For more information"));
        paragraphs.join(if is_short { "\n" } else { "\n\n" })
    };
    // A closed pipe must not change the exit status.
    let texts: Vec<String> = errors.iter().map(text).collect();
    let lines: Vec<&str> = texts.iter().flat_map(|text| text.lines()).collect();
    let is_last = |(number, line): &(usize, &&str)| !line.contains(TIP) || !lines[number + 1..].contains(*line);
    let lines: Vec<&str> = lines.iter().enumerate().filter(is_last).map(|(_, line)| *line).collect();
    let _ = writeln!(stderr(), "{}", lines.join("\n"));
    std::process::exit(errors.first().map_or(2, clap::Error::exit_code));
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

/// Returns the hint for options in conflict, or for an option that lacks another.
fn hint_for_combination(error: &clap::Error, typed: &[String]) -> Option<&'static str> {
    let names = |kind| match error.get(kind) {
        Some(ContextValue::String(name)) => vec![name.as_str()],
        Some(ContextValue::Strings(names)) => names.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let has = |kind, option: &str| names(kind).iter().any(|name| name.split(' ').next() == Some(option));
    let of_conflict = |option| has(ContextKind::InvalidArg, option) || has(ContextKind::PriorArg, option);
    let is_typed = |option: &str| typed.iter().any(|word| word == option);
    match error.kind() {
        ErrorKind::ArgumentConflict if of_conflict("--global-batch") && of_conflict("--batch-size") => {
            Some("`--global-batch` is divided among all ranks, `--batch-size` applies to each rank: use one of them")
        }
        ErrorKind::MissingRequiredArgument if has(ContextKind::InvalidArg, "--out") && is_typed("--resume") => {
            Some("`--out FOLDER --resume` continues in FOLDER, which the interrupted command printed")
        }
        ErrorKind::MissingRequiredArgument if has(ContextKind::InvalidArg, "--resume") && is_typed("--repeat") => {
            Some("`--out FOLDER --resume --repeat CASE` repeats the runs of a case of the sweep in FOLDER")
        }
        ErrorKind::MissingRequiredArgument | ErrorKind::TooFewValues => {
            let command = typed.get(1)?;
            MISSING_ARGUMENTS.iter().find(|(name, _)| name == command).map(|(_, tip)| *tip)
        }
        _ => None,
    }
}

/// Returns the hint for a command, a value or a word without an option.
fn hint_for_word<M: KeywordEnum>(error: &clap::Error, typed: &[String]) -> Option<String> {
    if let Some(command) = context(error, ContextKind::InvalidSubcommand) {
        let suggested = context(error, ContextKind::SuggestedSubcommand);
        return hint_for_command(command, suggested);
    }
    let argument = context(error, ContextKind::InvalidArg)?;
    match context(error, ContextKind::InvalidValue) {
        None if argument.starts_with('-') => None,
        None => hint_for_argument(argument, typed),
        Some(value) => {
            let valid = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) => values.as_slice(),
                _ => &[],
            };
            hint_for_value::<M>(argument.split(' ').next()?, value, valid)
        }
    }
}

/// Returns the hint for a command that does not exist, unless clap's suggestion is close to it.
fn hint_for_command(command: &str, suggested: Option<&str>) -> Option<String> {
    if LAUNCHER_COMMANDS.contains(&command) {
        return Some(format!("did you mean `ringmark {command}`?"));
    }
    if suggested.is_some_and(|suggested| is_close(command, suggested)) {
        return None;
    }
    let command = if command.ends_with(".py") { "python" } else { command };
    let is_same = |word: &&str| *word == command;
    let is_similar = |word: &&str| command.len() > 4 && is_close(command, word);
    let find = |is_selected: &dyn Fn(&&str) -> bool| COMMANDS.iter().find(|it| it.words.iter().any(is_selected));
    find(&is_same).or_else(|| find(&is_similar)).map(|hint| hint.ours.to_owned())
}

/// Returns the hint for a word without an option.
fn hint_for_argument(argument: &str, typed: &[String]) -> Option<String> {
    let is_host = |word: &str| word.split_once(':').is_some_and(|(_, slots)| is_number(slots));
    let is_case = |word: &str| {
        let parts = word.strip_suffix('g').and_then(|word| word.split_once('n'));
        parts.is_some_and(|(nodes, gpus)| is_number(nodes) && is_number(gpus))
    };
    if typed.get(1).is_some_and(|command| command == "run") && !is_case(argument) && !is_host(argument) {
        return Some(format!(
            "the program and its arguments follow `--`, after all options of ringmark: `-- {argument} ..`"
        ));
    }
    let listed = typed.windows(3).find(|words| words[2] == argument && LISTS.contains(&words[0].as_str()));
    if let Some([option, first, _]) = listed {
        let first = first.trim_end_matches(',');
        if let Some(hosts) = hosts_with_slots(&format!("{first} {argument}")).filter(|_| takes_hosts(option)) {
            return Some(format!("did you mean `{option} {hosts}`?"));
        }
        return Some(format!("separate the values by commas: `{option} {first},{argument}`"));
    }
    let second_value = typed.windows(3).filter(|words| words[2] == argument);
    let plural = second_value.into_iter().find_map(|words| {
        let (_, plural) = PLURALS.iter().find(|(single, _)| words[0] == *single)?;
        Some(format!("`{plural} {},{argument}` accepts several values", words[1]))
    });
    if plural.is_some() {
        return plural;
    }
    let before = typed.windows(2).find(|pair| pair[1] == argument).map(|pair| pair[0].as_str());
    match (typed.get(1).map(String::as_str), argument) {
        (Some(command), "help") => Some(format!("`ringmark {command} -h` lists common options, `--help` all of them")),
        (_, folder) if before == Some("--resume") => Some(format!("did you mean `--out {folder} --resume`?")),
        (Some("doctor"), _) => {
            let words = typed[2..].iter().filter(|word| !word.starts_with('-')).map(String::as_str);
            Some(format!("did you mean `--hosts {}`?", words.collect::<Vec<_>>().join(",")))
        }
        (Some("extract" | "check" | "watch"), _) => {
            Some("pass one folder; `ringmark report` shows several, `ringmark diff BASE TEST` compares two".to_owned())
        }
        // The words of DLPerf's run_test.sh: batch size and precision.
        (Some("sweep"), number) if is_number(number) => {
            let dtype = typed.windows(2).find(|pair| pair[0] == number).map(|pair| &pair[1]);
            let dtype = dtype
                .filter(|word| ["fp32", "tf32", "fp16", "bf16"].contains(&word.as_str()))
                .map(|dtype| format!(" --dtype {dtype}"));
            Some(format!("did you mean `--batch-size {number}{}`?", dtype.unwrap_or_default()))
        }
        (Some("sweep"), "quick") => Some("did you mean `--quick`?".to_owned()),
        (Some("sweep"), script) if script.ends_with(".py") || script == "python" => {
            Some("ringmark trains its own networks, without a script: `--model NAME`".to_owned())
        }
        (Some("input"), files) => Some(format!("did you mean `--data {files}`?")),
        (_, case) if is_case(case) => Some(format!("did you mean `--cases {case}`?")),
        (_, host) if is_host(host) => Some(format!("did you mean `--hosts {host}`?")),
        _ => None,
    }
}

/// Returns the hint for an invalid `value` of `option`, which has the `valid` values.
fn hint_for_value<M: KeywordEnum>(option: &str, value: &str, valid: &[String]) -> Option<String> {
    if let Some(gpu) = value.strip_prefix("cuda:").filter(|gpu| option == "--device" && is_number(gpu)) {
        return Some(format!("did you mean `--device cuda --gpus {gpu}`?"));
    }
    if option == "--repeat" && is_number(value) {
        return Some(format!("did you mean `--runs {value}`? --repeat takes cases, whose finished runs it repeats"));
    }
    if option == "--redop" && value.contains('/') {
        return Some(format!("did you mean `--out {value}`? Here -o is the reduction, as in nccl-tests"));
    }
    let plain = letters(value);
    let is_value = |(known, values, _): &&(&str, &[&str], &str)| {
        (*known == option || option.strip_suffix('s') == Some(*known))
            && (values.contains(&value) || values.contains(&plain.as_str()))
    };
    if let Some((.., ours)) = VALUES.iter().find(is_value) {
        return Some(if ours.starts_with('`') { format!("did you mean {ours}?") } else { (*ours).to_owned() });
    }
    if let Some(hosts) = hosts_with_slots(value).filter(|_| takes_hosts(option)) {
        return Some(format!("did you mean `{option} {hosts}`?"));
    }
    if LISTS.contains(&option) && value.contains(char::is_whitespace) {
        let values = value.split_whitespace().map(|word| word.trim_matches(',')).collect::<Vec<_>>().join(",");
        return Some(format!("separate the values by commas: `{option} {values}`"));
    }
    if let Some(case) = guess_case(value).filter(|_| option == "--cases") {
        return Some(format!("did you mean `--cases {case}`?"));
    }
    if let Some(gpus) = gpu_range(value).filter(|_| option == "--gpus") {
        return Some(format!("`--gpus {gpus}` lists the same GPUs; without --gpus, all GPUs are used"));
    }
    if let Some(number) = value.parse().ok().filter(|_| PERCENTAGES.contains(&option)) {
        return Some(hint_for_percentage(option, value, number));
    }
    // Hugging Face's names begin with an owner.
    let name = value.rsplit('/').next().unwrap_or(value);
    match &beginning_with(valid, name)[..] {
        [] => {}
        [only] => return Some(format!("did you mean `{option} {only}`?")),
        several => return Some(format!("use {}", alternatives(several))),
    }
    let other = OTHER_MODELS.iter().find(|family| name.to_lowercase().starts_with(**family));
    if let (Some(family), "--model" | "--models") = (other, option) {
        return Some(match &beginning_with(valid, family)[..] {
            [] => NO_OTHER_MODELS.to_owned(),
            ours => format!("not supported: use {}", alternatives(ours)),
        });
    }
    if let Some(model) = nearest::<M>(name).filter(|_| ["--model", "--models"].contains(&option)) {
        return Some(format!("did you mean `{option} {model}`?"));
    }
    let (_, last) = value.rsplit_once(',')?;
    if option == "--image-size" {
        return Some(format!("did you mean `--image-size {last}`?"));
    }
    let (_, plural) = PLURALS.iter().find(|(single, _)| *single == option)?;
    Some(format!("`{plural} {value}` accepts several values"))
}

fn takes_hosts(option: &str) -> bool {
    ["-H", "--hosts"].contains(&option)
}

/// Returns the list of hosts for `node[01-64] 8`, where each number belongs to the host before it.
fn hosts_with_slots(value: &str) -> Option<String> {
    let words: Vec<&str> =
        value.split(|next: char| next.is_whitespace() || next == ',').filter(|word| !word.is_empty()).collect();
    let hosts = words.chunks(2).map(|pair| match pair {
        [host, slots] if !is_number(host) && is_number(slots) => Some(format!("{host}:{slots}")),
        _ => None,
    });
    hosts.collect::<Option<Vec<_>>>().map(|hosts| hosts.join(","))
}

/// Fraction below which a number without a unit is hardly meant as a percentage: 0.02 is 2 %.
const UNLIKELY_PERCENTAGE: f64 = 0.1;

/// Returns the percentage that a number without its sign stands for. Other programs take fractions.
fn hint_for_percentage(option: &str, typed: &str, number: f64) -> String {
    let as_typed = format!("`{option} {typed}%`");
    if !(number > 0.0 && number < 1.0) {
        return format!("did you mean {as_typed}?");
    }
    // Without digits of the binary fraction.
    let percent = (number * 100.0 * 1e6).round() / 1e6;
    let of_fraction = format!("`{option} {percent}%`");
    match number < UNLIKELY_PERCENTAGE {
        true => format!("did you mean {of_fraction}?"),
        false => format!("did you mean {of_fraction}, for the fraction {typed}, or {as_typed}?"),
    }
}

/// Returns the keyword of `M` whose keyword or alias differs least from `name`, if it is similar.
fn nearest<M: KeywordEnum>(name: &str) -> Option<&'static str> {
    let keywords = M::KEYWORDS.iter().map(|keyword| (*keyword, *keyword));
    let known = keywords.chain(M::ALIASES.iter().copied()).filter(|(known, _)| is_close(name, known));
    known.min_by_key(|(known, _)| strsim::damerau_levenshtein(name, known)).map(|(_, keyword)| keyword)
}

/// Returns the numbers of a range of GPUs: `0,1,2,3` for `0-3`.
fn gpu_range(value: &str) -> Option<String> {
    const MOST_GPUS: usize = 64;
    let (first, last) = value.split_once('-')?;
    let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
    let gpus = (first..=last.min(first + MOST_GPUS)).map(|gpu| gpu.to_string()).collect::<Vec<_>>().join(",");
    (!gpus.is_empty()).then_some(gpus)
}

/// Smallest number of letters by which a value is recognized.
const ENOUGH_LETTERS: usize = 3;

/// Returns the letters and digits of a name: names of other programs differ in dashes and case.
pub fn letters(name: &str) -> String {
    name.to_lowercase().replace(|letter: char| !letter.is_alphanumeric(), "")
}

/// Returns the `names` that begin with `typed`.
fn beginning_with<'a, S: AsRef<str>>(names: &'a [S], typed: &str) -> Vec<&'a str> {
    let typed = letters(typed);
    let begins = |name: &&str| letters(name).starts_with(&typed);
    let names = names.iter().map(AsRef::as_ref).filter(|_| typed.len() >= ENOUGH_LETTERS);
    names.filter(begins).collect()
}

/// Joins names: `a`, `a or b`, `a, b or c`.
fn alternatives(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}

/// Returns the network of `M` for MXNet's `--network resnet --num-layers 50`, or for `--arch resnet50` of another
/// program: one with this name, or all of its family. `None` if there is none.
fn hint_for_network<M: KeywordEnum>(word: &str, typed: &[String]) -> Option<String> {
    let is_mxnet = matches!(word, "--network" | "--num-layers" | "--num_layers");
    let option = if is_mxnet { "--network" } else { word };
    let name = value_of(typed, &[option])?;
    let family = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let digits = Some(name[family.len()..].to_owned()).filter(|digits| !digits.is_empty());
    let (layers, family) = (value_of(typed, &["--num-layers"]).or(digits), family.trim_end_matches(['-', '_']));
    let numbered = layers.map(|layers| format!("{family}-{layers}"));
    let names = [numbered.as_deref(), Some(&name)].into_iter().flatten();
    let of_mxnet = names.clone().map(|name| format!("mxnet-{name}")).filter(|_| is_mxnet);
    let candidates: Vec<String> = of_mxnet.chain(names.map(str::to_owned)).collect();
    let known = || M::KEYWORDS.iter().map(|keyword| (*keyword, *keyword)).chain(M::ALIASES.iter().copied());
    let named = |candidate: &String| known().find(|(known, _)| letters(known) == letters(candidate));
    if let Some((_, keyword)) = candidates.iter().find_map(named) {
        return Some(format!("`--model {keyword}`"));
    }
    let begun = candidates.iter().map(|candidate| beginning_with(M::KEYWORDS, candidate));
    let of_family = [format!("mxnet-{family}"), family.to_owned()].map(|family| beginning_with(M::KEYWORDS, &family));
    let found = begun.chain(of_family.into_iter().skip(usize::from(!is_mxnet))).find(|names| !names.is_empty())?;
    Some(match &found[..] {
        [only] => format!("`--model {only}`"),
        several => format!("`--model NAME`: {}", alternatives(several)),
    })
}

/// Returns the case that a word such as `8`, `8g`, `2x8` or `2N8G` stands for.
fn guess_case(word: &str) -> Option<String> {
    let numbers: Vec<&str> =
        word.split(|letter: char| !letter.is_ascii_digit()).filter(|part| !part.is_empty()).collect();
    let letters: String = word.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    let (nodes, gpus) = match (letters.to_lowercase().as_str(), &numbers[..]) {
        ("" | "g" | "gpu" | "gpus", [gpus]) => ("1", *gpus),
        ("x" | ":" | "ng", [nodes, gpus]) | ("gn", [gpus, nodes]) => (*nodes, *gpus),
        _ => return None,
    };
    [nodes, gpus].iter().all(|number| number.parse::<u32>().is_ok_and(|it| it > 0)).then(|| format!("{nodes}n{gpus}g"))
}

/// Returns the option of another program that caused the error, and its hint.
fn find_hint<M: KeywordEnum>(
    error: &clap::Error,
    hints: &[&[MigrationHint]],
    typed: &[String],
) -> Option<(String, String)> {
    let (refused, value) = (context(error, ContextKind::InvalidArg)?, context(error, ContextKind::InvalidValue));
    // For `-mca`, clap refuses `-m`; if there is an option -m, it refuses the value `ca`.
    let is_refused = |word: &str| match value {
        None if refused.starts_with("--") => word.trim_start_matches('-') == refused.trim_start_matches('-'),
        None => word.starts_with(refused),
        Some(value) => !value.is_empty() && !word.starts_with("--") && word.get(2..) == Some(value),
    };
    typed.iter().find_map(|argument| {
        let word = argument.split_once('=').map_or(argument.as_str(), |(word, _)| word);
        let is_selected = |hint: &&MigrationHint| hint.words.iter().any(|known| is_spelling(word, known));
        let hint = hints.iter().copied().flatten().find(is_selected).filter(|_| is_refused(word))?;
        let answer = |ours: String| Some((word.to_owned(), format!("{word}: {ours}")));
        if hint.words.contains(&"--network")
            && let Some(network) = hint_for_network::<M>(word, typed)
        {
            return answer(network);
        }
        if let Some(iterations) = hint_for_iterations(hint, typed) {
            return answer(iterations);
        }
        if let Some(hint) = hint_for_layout(hint, typed) {
            return Some((word.to_owned(), hint));
        }
        let value = value_of(typed, &[word]);
        if let ("--mpi", Some("pmix" | "pmi2" | "pmi1" | "none" | "list")) = (word, value.as_deref()) {
            return answer("`--launcher slurm` starts the ranks with srun".to_owned());
        }
        if let ("-mca" | "--mca", Some(rest)) = (word, rest_of(typed, word, 2)) {
            return answer(format!("`--launcher-args \"{word} {rest}\"` passes it to mpirun"));
        }
        if let Some(strategy) = value.as_deref().and_then(|value| sharding(hint, value)) {
            return answer(strategy.to_owned());
        }
        if let Some(sizes) = value.as_ref().filter(|value| hint.words.contains(&"--bs") && value.contains(',')) {
            return answer(format!("`--batch-sizes {sizes}`: each size runs in every case"));
        }
        if hint.words.contains(&"--nproc-per-node") && ["gpu", "auto", "cpu"].map(Some).contains(&value.as_deref()) {
            return answer("not needed: the default cases end with all GPUs of all hosts".to_owned());
        }
        let number = value.as_deref().and_then(last_number);
        if let ("--amp" | "--amp-level" | "--native-amp" | "--use-amp", Some("bf16" | "bfloat16")) =
            (word, value.as_deref())
        {
            return answer("`--dtype bf16`".to_owned());
        }
        if let ("--gpu", Some(gpus)) = (word, number) {
            let ours = format!("`--cases 1n{gpus}g` for {gpus} GPUs; `--gpus {gpus}` is the GPU with this number");
            return answer(singular(&ours));
        }
        let hosts =
            number.filter(|ranks| hint.words[0] == "-np" && *ranks > 8 && ranks % 8 == 0).map(|ranks| ranks / 8);
        if let (Some(ranks), Some(hosts)) = (number, hosts) {
            return answer(format!("`--cases {hosts}n8g` for {ranks} ranks on {hosts} nodes of 8 GPUs"));
        }
        let usual = match hint.words[0] {
            "--image-shape" => "224",
            "--bucket-cap-mb" => "25",
            "--gc-threshold" => "0.5",
            _ => "8",
        };
        // Also 1.0 and 128M.
        let is_number = |value: &String| {
            value.starts_with(|first: char| first.is_ascii_digit())
                && value.chars().all(|next| next.is_ascii_alphanumeric() || next == '.')
        };
        let typed_value = number.map(|number| number.to_string()).or(value.clone().filter(is_number));
        let number = typed_value.unwrap_or_else(|| usual.to_owned());
        answer(singular(&with_value(&hint.ours.replace("{}", &number), value.as_deref())))
    })
}

/// Replaces a word in braces by the typed value; removes the braces without one.
fn with_value(ours: &str, value: Option<&str>) -> String {
    let value = value.filter(|value| !value.starts_with('-')).map(shell::quote);
    match ours.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (word, after))) => format!("{before}{}{after}", value.as_deref().unwrap_or(word)),
        None => ours.to_owned(),
    }
}

/// Option of Horovod's benchmarks that multiplies the number of iterations.
const PER_ITERATION: &str = "--num-batches-per-iter";

/// Numbers of iterations from which on the usual warm-up is that of DLPerf, and the usual warm-ups.
const LONG_RUN: (u32, [u32; 2]) = (100, [5, 20]);

/// Returns options that measure the typed number of iterations: `--iters` of some commands includes the warm-up.
fn hint_for_iterations(hint: &MigrationHint, typed: &[String]) -> Option<String> {
    if !hint.words.contains(&PER_ITERATION) {
        return None;
    }
    let number = |names: &[&str]| value_of(typed, names)?.parse::<u32>().ok().filter(|number| *number > 0);
    let others: Vec<&str> = hint.words.iter().copied().filter(|word| *word != PER_ITERATION).collect();
    let measured = match (number(&others), number(&[PER_ITERATION])) {
        (Some(number), factor) => number.checked_mul(factor.unwrap_or(1))?,
        (None, factor) => factor?,
    };
    let of_warmup = COMMON_HINTS.iter().find(|hint| hint.ours == WARMUP).map_or(&[][..], |hint| hint.words);
    let warmup = number(&[&["--warmup"], of_warmup].concat());
    if matches!(typed.get(1).map(String::as_str), Some("score" | "bandwidth" | "checkpoint" | "run")) {
        let warmup = warmup.map(|warmup| format!(" --warmup {warmup}")).unwrap_or_default();
        return Some(format!("`--iters {measured}{warmup}`"));
    }
    let (long, usual) = LONG_RUN;
    let warmup = warmup.unwrap_or(usual[usize::from(measured >= long)]);
    let all = measured.checked_add(warmup)?;
    let hint = format!("`--iters {all} --warmup {warmup}` measures {measured} iterations: `--iters` includes warm-up");
    Some(singular(&hint))
}

/// Replaces ` 1 ranks`, and other nouns after 1, by the singular.
fn singular(hint: &str) -> String {
    let replaced = |text: String, noun: &str| text.replace(&format!(" 1 {noun}s"), &format!(" 1 {noun}"));
    ["rank", "node", "GPU", "iteration"].into_iter().fold(hint.to_owned(), replaced)
}

/// Returns the `number` words after `word`.
fn rest_of(typed: &[String], word: &str, number: usize) -> Option<String> {
    let place = typed.iter().position(|one| one == word)?;
    Some(typed.get(place + 1..=place + number)?.join(" "))
}

/// Returns the strategy for a value of `--fsdp` or `--zero`, options of programs that shard the training state.
fn sharding(hint: &MigrationHint, value: &str) -> Option<&'static str> {
    let name = match hint.words[0] {
        "--fsdp" => letters(value),
        "--zero" => format!("zero{value}"),
        _ => return None,
    };
    let is_strategy =
        |(option, values, _): &&(&str, &[&str], &str)| *option == "--strategy" && values.contains(&name.as_str());
    VALUES.iter().find(is_strategy).map(|(.., ours)| *ours)
}

/// Returns true if `word` is `known`, also with `_` for `-`: torchrun and others accept both.
fn is_spelling(word: &str, known: &str) -> bool {
    word == known || word.replace('_', "-") == known
}

/// Returns the value of one of the options `names`.
fn value_of(typed: &[String], names: &[&str]) -> Option<String> {
    let is_named = |word: &str| names.iter().any(|name| is_spelling(word, name));
    let mut words = typed.iter().zip(typed.iter().skip(1).map(Some).chain([None]));
    words.find_map(|(word, next)| match word.split_once('=') {
        Some((name, value)) => is_named(name).then(|| value.to_owned()),
        None => next.filter(|_| is_named(word)).cloned(),
    })
}

/// Returns the last number of a value: a range of torchrun's, `1:4`, ends with the largest.
fn last_number(value: &str) -> Option<u32> {
    value.rsplit([',', ':']).next()?.trim_end_matches('%').parse().ok()
}

/// Returns one hint for all options that together select the nodes and the ranks of each: `-np 16 -H a:8,b:8`.
fn hint_for_layout(hint: &MigrationHint, typed: &[String]) -> Option<String> {
    let words_of = |first| LAUNCHER_HINTS.iter().find(|hint| hint.words[0] == first).map_or(&[][..], |hint| hint.words);
    let layouts = ["-np", "--nproc-per-node", "-N"].map(words_of);
    if !layouts.contains(&hint.words) {
        return None;
    }
    let number = |names: &[&str]| value_of(typed, names).as_deref().and_then(last_number).filter(|number| *number > 0);
    let [all_ranks, ranks_per_node, nodes] = layouts.map(number);
    let hosts = value_of(typed, &["-H", "--hosts", "-host", "--host"]).filter(|hosts| !Path::new(hosts).is_file());
    // Brackets stand for an unknown number of hosts; other separators are an error.
    let listed = hosts.as_deref().filter(|hosts| !hosts.contains(['[', ';', ' ']));
    let nodes = nodes.or_else(|| u32::try_from(listed?.split(',').count()).ok())?;
    if let Some(ranks) = all_ranks.filter(|ranks| ranks % nodes != 0) {
        return Some(format!(
            "-np: {ranks} ranks cannot be divided equally among {nodes} hosts: every host of a case has the same number"
        ));
    }
    let of_all = || all_ranks.map(|ranks| ranks / nodes);
    let ranks = of_all().or(ranks_per_node)?;
    let are_hosts_missing = hosts.is_none() && nodes > 1;
    let hosts = match (hosts, nodes) {
        (Some(hosts), _) => format!("--hosts {hosts} "),
        (None, 1) => String::new(),
        (None, 2) => format!("--hosts a:{ranks},b:{ranks} "),
        (None, _) => format!("--hosts a:{ranks},b:{ranks},.. "),
    };
    let is_foreign = |word: &&str| layouts.iter().any(|words| words.iter().any(|known| is_spelling(word, known)));
    let names = typed.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(name, _)| name));
    let foreign = names.filter(is_foreign).collect::<Vec<_>>().join(" ");
    let each = if nodes == 1 { "" } else { " each" };
    let is_srun = foreign.split(' ').any(|word| ["-N", "--ntasks-per-node", "--ntasks"].contains(&word));
    let slurm = match are_hosts_missing && is_srun {
        true => format!("; in an allocation of Slurm, `--launcher slurm --cases {nodes}n{ranks}g`"),
        false => String::new(),
    };
    let ours = format!("`{hosts}--cases {nodes}n{ranks}g` is {nodes} nodes with {ranks} ranks{each}");
    Some(format!("{foreign}: {}{slurm}", singular(&ours)))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};
    use expect_test::expect;

    use super::*;
    use crate::keyword_enum;

    keyword_enum!(
        /// Families of networks with similar names.
        Network {
            /// torchvision's.
            Resnet50 = "resnet50_v1b" | "resnet50",
            /// MXNet's.
            Mxnet50 = "mxnet-resnet-50",
            /// MXNet's.
            Mxnet200 = "mxnet-resnet-200",
            /// torchvision's and MXNet's.
            Vgg16 = "vgg16" | "mxnet-vgg-16",
            /// A language model.
            Llama1b = "llama-1b",
            /// A language model.
            Llama8b = "llama-8b",
        }
    );

    fn refused(line: &str) -> String {
        let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let iterations = Arg::new("iters").long("iters").short('n').value_parser(clap::value_parser!(u32));
        let command = Command::new("ringmark").arg(iterations).arg(Arg::new("cases").long("cases"));
        let error = command.try_get_matches_from(&typed).expect_err(line);
        with_hint::<Network>(error, &[LAUNCHER_HINTS, COMMON_HINTS], &typed).to_string()
    }

    #[test]
    fn foreign_option_gets_a_tip_with_its_number() {
        for line in ["ringmark -g 2", "ringmark --np 2", "ringmark --iters 3 --nproc-per-node=2"] {
            let error = refused(line);
            assert!(error.contains(": use `--cases 1n2g` for 1 node with 2 ranks"), "{error}");
        }
        let error = refused("ringmark --nproc-per-node gpu");
        assert!(error.contains("tip: --nproc-per-node: not needed: the default cases end with all GPUs"), "{error}");
        let error = refused("ringmark --nnodes 1:4");
        assert!(error.contains("`--cases 4n8g` uses 4 of them"), "{error}");
        let error = refused("ringmark --nnodes --cases 1");
        assert!(error.contains("tip: --nnodes: `--hosts a:8,b:8` lists the nodes, and `--cases 8n8g`"), "{error}");
    }

    #[test]
    fn tips_cover_foreign_and_misspelled_words() {
        let models = Arg::new("model").long("model").value_parser(["large", "small", "llama-1b", "llama-8b"]);
        let device = Arg::new("device").long("device").value_parser(["cpu", "cuda"]);
        let batch = Arg::new("batch-size").long("batch-size").value_parser(clap::value_parser!(u32));
        let sweep = Command::new("sweep").arg(models).arg(device).arg(batch);
        let command = Command::new("ringmark").subcommand(sweep).subcommand(Command::new("schema"));
        let refused = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let error = command.clone().try_get_matches_from(&typed).expect_err(line);
            with_hint::<Network>(error, &[LAUNCHER_HINTS, COMMON_HINTS], &typed).to_string()
        };
        for (line, tip) in [
            ("ringmark train", "tip: `ringmark sweep` trains every case"),
            ("ringmark train.py", "`ringmark run -- PROGRAM ..` measures your own program"),
            ("ringmark accelerate", "`ringmark run -- PROGRAM ..` measures your own program"),
            ("ringmark sweep --model llama-3.1-8B", "tip: did you mean `--model llama-8b`?"),
            ("ringmark sweap", "'sweep'"),
            ("ringmark sweep --device gpu", "tip: did you mean `--device cuda`?"),
            ("ringmark sweep --device cuda:1", "tip: did you mean `--device cuda --gpus 1`?"),
            ("ringmark sweep --model resnet51", "tip: did you mean `--model resnet50_v1b`?"),
            ("ringmark drain", "tip: `ringmark accept --drain-list`"),
            ("ringmark sweep --model La-rge", "tip: did you mean `--model large`?"),
            ("ringmark sweep --batch-size 8,16", "tip: `--batch-sizes 8,16` accepts several values"),
            ("ringmark sweep --batch-sise 8", "'--batch-size'"),
            ("ringmark sweep b:8", "tip: did you mean `--hosts b:8`?"),
            ("ringmark trian", "tip: `ringmark sweep` trains every case"),
            ("ringmark status", "tip: `ringmark watch FOLDER`"),
            ("ringmark sweep 1n2g", "tip: did you mean `--cases 1n2g`?"),
            ("ringmark sweep --image-shape 3,299,299", "tip: --image-shape: `--image-size 299`"),
            ("ringmark sweep --network resnet --num-layers 200", "tip: --network: `--model mxnet-resnet-200`"),
            ("ringmark sweep --network resnet50", "tip: --network: `--model mxnet-resnet-50`"),
            ("ringmark sweep --network resnet --num-layers 77", "`--model NAME`: mxnet-resnet-50 or mxnet-resnet-200"),
            ("ringmark sweep --network vgg16", "tip: --network: `--model vgg16`"),
            ("ringmark sweep --network vgg --num-layers 16", "tip: --network: `--model vgg16`"),
            ("ringmark sweep --network resnet50_v1", "tip: --network: `--model resnet50_v1b`"),
            ("ringmark sweep --network llama", "tip: --network: `--model NAME`: llama-1b or llama-8b"),
            ("ringmark sweep --network foo", "tip: --network: `--model NAME`; `ringmark sweep --help` lists"),
            ("ringmark sweep --network", "tip: --network: `--model NAME`; `ringmark sweep --help` lists"),
            ("ringmark sweep -a resnet50", "tip: -a: `--model resnet50_v1b`"),
            ("ringmark sweep --model llama", "tip: use llama-1b or llama-8b"),
            ("ringmark sweep --model llama-7b", "tip: not supported: use llama-1b or llama-8b"),
            ("ringmark sweep --batch 8,16", "tip: --batch: `--batch-sizes 8,16`"),
            ("ringmark sweep --batch-size 8 16", "tip: `--batch-sizes 8,16` accepts several values"),
            ("ringmark sweep --env A=1", "tip: --env: NCCL_*"),
            ("ringmark sweep --rankfile f", "tip: --rankfile: `--launcher-args"),
        ] {
            let error = refused(line);
            assert!(error.contains(tip) && !error.contains("Usage:"), "{line}: {error}");
        }
        for line in
            ["ringmark frobnicate", "ringmark sweep --bsd 8", "ringmark sweep --device tpu", "ringmark schema --bsd"]
        {
            assert!(!refused(line).contains("tip:"), "{line}: {}", refused(line));
        }
    }

    #[test]
    fn iterations_include_warm_up_as_the_command_counts_them() {
        let hint = COMMON_HINTS.iter().find(|hint| hint.words.contains(&PER_ITERATION)).expect("a hint");
        let of = |line: &str| {
            let typed: Vec<String> = line.split(' ').map(str::to_owned).collect();
            line.to_owned() + "\n    " + &hint_for_iterations(hint, &typed).unwrap_or_default() + "\n"
        };
        let tips = [
            "ringmark sweep --steps 1",
            "ringmark sweep --num-iters 100",
            "ringmark sweep --num-warmup-batches 10 --num-batches-per-iter 10 --num-iters 10",
            "ringmark sweep --steps 5 --warmup=2",
            "ringmark score --steps 5 --warmup-steps 2",
            "ringmark bandwidth --steps 5",
        ];
        expect![[r"
            ringmark sweep --steps 1
                `--iters 6 --warmup 5` measures 1 iteration: `--iters` includes warm-up
            ringmark sweep --num-iters 100
                `--iters 120 --warmup 20` measures 100 iterations: `--iters` includes warm-up
            ringmark sweep --num-warmup-batches 10 --num-batches-per-iter 10 --num-iters 10
                `--iters 110 --warmup 10` measures 100 iterations: `--iters` includes warm-up
            ringmark sweep --steps 5 --warmup=2
                `--iters 7 --warmup 2` measures 5 iterations: `--iters` includes warm-up
            ringmark score --steps 5 --warmup-steps 2
                `--iters 5 --warmup 2`
            ringmark bandwidth --steps 5
                `--iters 5`
        "]]
        .assert_eq(&tips.map(of).concat());
    }

    #[test]
    fn percentage_is_guessed_from_a_fraction() {
        let of = |number: &str| hint_for_percentage("--noise", number, number.parse().expect("a number")) + "\n";
        expect![[r"
            did you mean `--noise 2%`?
            did you mean `--noise 7%`?
            did you mean `--noise 50%`, for the fraction 0.5, or `--noise 0.5%`?
            did you mean `--noise 5%`?
        "]]
        .assert_eq(&["0.02", "0.07", "0.5", "5"].map(of).concat());
    }

    #[test]
    fn case_is_guessed_from_its_numbers() {
        for (word, case) in [
            ("8", Some("1n8g")),
            ("8g", Some("1n8g")),
            ("2x8", Some("2n8g")),
            ("2N8G", Some("2n8g")),
            ("n2g8", Some("2n8g")),
            ("8g2n", Some("2n8g")),
            ("0", None),
            ("all", None),
            ("2n", None),
        ] {
            assert_eq!(guess_case(word).as_deref(), case, "{word}");
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
