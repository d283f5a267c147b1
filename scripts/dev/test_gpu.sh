#!/usr/bin/env bash
# Tests ringmark-worker on a machine with a GPU: CUDA vs. CPU, every precision, gradients vs. fp64, fused kernels vs.
# libtorch's, CUDA graphs vs. individual launches, images from files, speed, NCCL with one rank and with two, kv-stores,
# overlap measured by events, all-reduce alone, and the launcher's report of a killed or stopped rank.
#
#   scripts/dev/test_gpu.sh [--worker FILE] [--mpi FOLDER] [--limit SECONDS] [--keep FOLDER] [--quick]
#
#   --worker FILE    default: $RINGMARK_WORKER, or the worker that cargo built in this repository
#   --mpi FOLDER     Open MPI's unpacked packages (dpkg -x openmpi-bin, openmpi-common, libopenmpi3 and their dependencies)
#                    from a distribution that is not newer than this one; for machines without mpirun
#   --limit SECONDS  maximum duration; default: 40 minutes
#   --keep FOLDER    keeps records and logs in FOLDER
#   --quick          skips checks that depend neither on kernels nor on precision: overflow, images from files, out of
#                    memory, faults, NVRTC's libraries, all-reduce alone, kv-stores
#
# Needs bash and python3, but not Rust. A worker that was built elsewhere uses the libtorch of python3's torch package.
# Checks whose requirements are missing are skipped, with the reason; two ranks need mpirun. Without a GPU, nothing is
# tested and the exit status is 0.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly judge=$root/scripts/dev/test_gpu_judge.py

# shellcheck source=scripts/dev/common.sh
source "$root/scripts/dev/common.sh"

given='' mpi='' limit_seconds=2400
keep='' quick=no
while [[ $# -gt 0 ]]; do
    case $1 in
        --worker) given=${2:?--worker needs a file}; shift 2 ;;
        --mpi) mpi=$(realpath "${2:?--mpi needs a folder}"); shift 2 ;;
        --limit) limit_seconds=${2:?--limit needs seconds}; shift 2 ;;
        --keep) keep=${2:?--keep needs a folder}; shift 2 ;;
        --quick) quick=yes; shift ;;
        --help | -h) usage 0 ;;
        *) usage 2 ;;
    esac
done

skip_all() {
    echo "test_gpu.sh: SKIPPED, nothing was tested: $1"
    exit 0
}

if ! has_nvidia_driver; then skip_all "this machine has no NVIDIA driver (neither /dev/nvidiactl nor nvidia-smi)"; fi
find_worker "$given" "$root"
if [[ -z $worker ]]; then
    echo "error: ringmark-worker not found: run cargo build --release, or set RINGMARK_WORKER" >&2
    exit 1
fi
gpus=$(count_gpus)
if [[ $gpus == 0 ]]; then skip_all "the NVIDIA driver reports no GPU"; fi
use_mpi "$mpi"
use_libtorch
if worker_lacks libmpi.so.40; then skip_all "the worker needs Open MPI's libmpi.so.40, even for one rank: apt-get install openmpi-bin"; fi
if worker_lacks .; then
    echo "error: the worker lacks libraries:" >&2
    ldd "$worker" 2>&1 | grep 'not found' >&2
    exit 1
fi
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 || true)

folder=${keep:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(realpath "$folder")
training=
clean_up() {
    [[ -z $training ]] || stop_training
    [[ -n $keep ]] || rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"

passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "ok       $1"; }
miss() { failed=$((failed + 1)); echo "FAILED   $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped  $1"; }

# `run NAME [options]` trains and writes NAME.jsonl; `score` and `bandwidth` run inference and all-reduce and write
# NAME.json. All write NAME.log and prefix the worker's command with `launch`. NCCL_DEBUG must be unset for `bandwidth`, so
# that the worker can read NCCL's choices.
launch=()
unset -v "${!NCCL_DEBUG@}"
run() { NCCL_DEBUG=WARN start "$1" train --record "$1.jsonl" "${@:2}"; }
bandwidth() { start "$1" bandwidth --device cuda --json "$1.json" "${@:2}"; }
score() { start "$1" score --device cuda --record "$1.json" "${@:2}"; }
start() {
    local name=$1
    shift
    rm -f "$name.jsonl" "$name.json"
    local left=$((limit_seconds - SECONDS))
    ((left > 0)) || { echo "the script's time limit of $limit_seconds s has passed" >"$name.log"; return 124; }
    timeout -k 10 $((left < 150 ? left : 150)) ${launch[@]+"${launch[@]}"} "$worker" "$@" >"$name.log" 2>&1
}

# judge NAME ARGUMENTS...: runs test_gpu_judge.py with ARGUMENTS; test NAME passes if its exit status is 0. Its output is
# the reason.
judge() {
    local name=$1 verdict
    shift
    if verdict=$(python3 "$judge" "$@" 2>&1); then pass "$name: $verdict"; else miss "$name: $verdict"; fi
}

# check NAME STATUS CHECK RECORD ...: fails with the end of RECORD's log if STATUS is not 0; otherwise runs `judge`.
check() {
    local name=$1 status=$2
    shift 2
    if [[ $status != 0 ]]; then miss "$name: exit status $status, see below"; tail_of "$2"; else judge "$name" "$@"; fi
}
tail_of() { sed 's/^/         | /' "$1.log" | tail -n 15; }

# Checks that no log so far contains a warning of libtorch.
expect_no_warnings() {
    local logs
    logs=$(grep -l 'Warning:' ./*.log | xargs || true)
    if [[ -z $logs ]]; then
        pass "no libtorch warnings in $(find . -maxdepth 1 -name '*.log' | wc -l) logs"
    else
        miss "libtorch warnings in $logs: $(grep -hm 1 'Warning:' ./*.log | head -n 1)"
    fi
}

echo "worker $worker, $gpus GPU(s) of compute capability ${capability:-unknown}, files in $folder"
chosen=$("$root/scripts/setup.sh" --which 2>&1) || true
if [[ $chosen =~ ^(cu1|given) ]]; then pass "setup.sh selects $chosen"; else miss "setup.sh selects $chosen"; fi

# --- one rank: CUDA vs. CPU, precisions, NCCL alone ---
status=0
run fresh --device cpu --batch-size 2 --image-size 32 --iters 1 --warmup 0 --lr 0 --seed 1 --save init.safetensors || status=$?
if [[ $status != 0 ]]; then
    miss "initial weights: exit status $status"
    tail_of fresh
    exit 1
fi
python3 "$judge" prepare init.safetensors batch.safetensors

five=(--batch-size 4 --image-size 64 --iters 5 --warmup 0 --lr 0.00002 --lr-warmup-iters 0
    --init init.safetensors --data batch.safetensors)
run cpu --device cpu "${five[@]}" || miss "fp32 on the CPU, the reference for other checks: $(tail -n 1 cpu.log)"

status=0
run cuda --device cuda "${five[@]}" || status=$?
if [[ $status != 0 ]]; then
    # A GPU that the worker cannot use is a failure, not a reason to skip.
    miss "fp32 on CUDA: exit status $status, see below"
    tail_of cuda
    expect_no_warnings
    echo "test_gpu.sh: $passed passed, $failed failed; the other checks need CUDA and were not run"
    exit 1
fi
judge "CUDA is used" device cuda cuda
judge "fp32: CUDA vs. CPU" losses cuda cpu 1e-3
judge "event times" times cuda

status=0
run cuda_nchw --device cuda --layout nchw "${five[@]}" || status=$?
check "fp32: contiguous vs. channels_last on the CPU" $status losses cuda_nchw cpu 1e-3

for pair in tf32:0.01 fp16:0.02 bf16:0.1; do
    dtype=${pair%:*}
    if [[ $dtype == tf32 ]]; then
        if [[ ${capability%%.*} =~ ^[0-9]+$ && ${capability%%.*} -lt 8 ]]; then
            skip "tf32: needs compute capability 8.0, this GPU has $capability"
            continue
        fi
    fi
    status=0
    run "$dtype" --device cuda --dtype "$dtype" --loss-scale 128 "${five[@]}" || status=$?
    check "$dtype vs. fp32" $status losses "$dtype" cuda "${pair#*:}"
    if [[ $status == 0 ]]; then judge "$dtype is used" differ "$dtype" cuda; fi
    # Fused kernels are the default.
    status=0
    run "${dtype}_libtorch" --device cuda --dtype "$dtype" --kernels libtorch --loss-scale 128 "${five[@]}" || status=$?
    check "fused vs. libtorch's kernels in $dtype" $status kernels "$dtype" "${dtype}_libtorch" "${pair#*:}"
done

# The first start compiles kernels; the second must use the cache and not change its files.
cached() { find first_start -name '*.cubin' -printf '%f %i %T@\n' 2>/dev/null | sort || true; }
status=0
XDG_CACHE_HOME=$folder/first_start run first_start --device cuda --dtype fp16 --loss-scale 128 "${five[@]}" || status=$?
compiled=$(cached)
XDG_CACHE_HOME=$folder/first_start run second_start --device cuda --dtype fp16 --loss-scale 128 "${five[@]}" || status=$?
check "cached kernels" $status losses second_start first_start 1e-3
if [[ -n $compiled && $compiled == "$(cached)" ]]; then
    pass "the second start compiles nothing: $(wc -l <<<"$compiled") file(s) in the cache"
else
    miss "kernel cache after the first start: ${compiled:-empty}; after the second: $(cached)"
fi
# Language models: the tokens are the same on every device.
tokens=(--batch-size 4 --sequence-length 64 --iters 9 --warmup 5 --lr 0.02 --lr-warmup-iters 0)
for model in gpt2-tiny llama-tiny; do
    status=0
    run "${model}_cpu" --model $model --device cpu "${tokens[@]}" || status=$?
    run "${model}_cuda" --model $model --device cuda "${tokens[@]}" || status=$?
    check "$model: CUDA vs. CPU" $status losses "${model}_cuda" "${model}_cpu" 1e-3
    for options in "--dtype bf16" "--recompute block" "--graphs on" "--accumulate 2"; do
        name=${model}_${options##* } status=0
        # shellcheck disable=SC2086
        run "$name" --model $model --device cuda "${tokens[@]}" $options || status=$?
        check "$model with $options" $status losses "$name" "${model}_cuda" 0.01
    done
done

# Training and inference, replayed from CUDA graphs and launched kernel by kernel.
longer=(--batch-size 4 --image-size 64 --iters 9 --warmup 5 --lr 0.00002 --lr-warmup-iters 0
    --init init.safetensors --data batch.safetensors)
for pair in fp32:1e-3 fp16:0.02; do
    dtype=${pair%:*} status=0
    for graphs in on off; do
        run "train_${dtype}_$graphs" --device cuda --dtype "$dtype" --graphs $graphs --loss-scale 128 "${longer[@]}" || status=$?
    done
    check "training with CUDA graphs in $dtype" $status losses "train_${dtype}_on" "train_${dtype}_off" "${pair#*:}"
done
for dtype in fp32 fp16; do
    status=0
    for graphs in on off; do
        score "score_${dtype}_$graphs" --dtype "$dtype" --graphs $graphs --batch-size 8 --seed 1 || status=$?
    done
    check "inference with a CUDA graph in $dtype" $status graphs "score_${dtype}_on" "score_${dtype}_off"
done

if [[ $quick == no ]]; then
    status=0
    run overflow --device cuda --dtype fp16 --loss-scale 128 --inject overflow:2 "${five[@]}" || status=$?
    check "an fp16 overflow skips one step" $status skips overflow 2 128

    # Images from files: pixels are copied in a separate stream during the steps.
    mkdir -p digits
    python3 "$judge" digits digits
    reading=(--model mxnet-lenet --image-size 28 --batch-size 32 --iters 6 --warmup 0 --lr 0.02 --lr-warmup-iters 0 --seed 1
        --data digits/train-images-idx3-ubyte --decode-threads 2)
    status=0
    run read_cpu --device cpu "${reading[@]}" || status=$?
    run read_cuda --device cuda "${reading[@]}" || status=$?
    check "images from files: CUDA vs. CPU" $status losses read_cuda read_cpu 1e-3
    if [[ $status == 0 ]]; then judge "images are read from files" read read_cuda 2; fi
fi

# One step of plain SGD: its update is the gradient times the learning rate.
one=(--batch-size 4 --image-size 64 --iters 1 --warmup 0 --lr 1000 --momentum 0 --weight-decay 0 --lr-warmup-iters 0
    --init init.safetensors --data batch.safetensors)
status=0
run cpu_step --device cpu --layout nchw "${one[@]}" --save cpu_step.safetensors || status=$?
run fp32_step --device cuda "${one[@]}" --save fp32_step.safetensors || status=$?
steps=()
for dtype in tf32 fp16 bf16; do
    [[ -s $dtype.jsonl ]] || continue
    steps+=("${dtype}_step")
    for kernels in auto libtorch; do
        name=${dtype}_step
        [[ $kernels == auto ]] || name+=_libtorch
        run "$name" --device cuda --dtype $dtype --kernels $kernels --loss-scale 128 "${one[@]}" --save "$name.safetensors" ||
            status=$?
    done
done
check "gradients" $status gradients cpu_step fp32_step "${steps[@]}"

status=0
run speed --device cuda --dtype fp16 --batch-size 128 --image-size 224 --iters 120 --warmup 20 || status=$?
check "speed in fp16, batch size 128" $status speed speed "$capability"
run speed_libtorch --device cuda --dtype fp16 --kernels libtorch --batch-size 128 --image-size 224 --iters 60 --warmup 20 || status=$?
check "speed of fused kernels" $status not_slower speed speed_libtorch

if [[ $quick == no ]]; then
    # 65,536 images take 39 GB, and the output of the first convolution takes another 210 GB.
    status=0
    run too_large --device cuda --batch-size 65536 --image-size 224 --iters 2 --warmup 0 || status=$?
    if [[ $status == 1 ]] && message=$(grep -m 1 'out of memory: .* GB in use' too_large.log); then
        pass "a batch that does not fit in memory: $message"
    else
        miss "a batch that does not fit in memory: exit status $status, see below"
        tail_of too_large
    fi
fi

# Starts an endless training run named $1 and waits for its fourth iteration; sets $training to its process ID.
train_on() {
    local name=$1 second
    shift
    NCCL_DEBUG=WARN ${launch[@]+"${launch[@]}"} "$worker" train --device cuda --batch-size 8 --image-size 64 --iters 100000 \
        --warmup 1 --record "$name.jsonl" "$@" >"$name.log" 2>&1 &
    training=$!
    for ((second = 0; second < 120; second++)); do
        if grep -qs 'Batch\[3\]' "$name.log"; then return; fi
        kill -0 $training 2>/dev/null || return 1
        sleep 1
    done
    return 1
}
stop_training() {
    kill "$training" 2>/dev/null || true
    wait "$training" 2>/dev/null || true
    training=
}

if [[ $quick == no ]]; then
    # cuDNN compiles some kernels at run time with NVRTC, which opens its library of built-in functions by file name only.
    if train_on mapped; then
        found=$(grep -oE '/[^ ]*libnvrtc(-builtins)?\.so[^ ]*' "/proc/$training/maps" | sort -u | xargs || true)
        if [[ $found == *libnvrtc-builtins.so* ]]; then
            pass "NVRTC can compile: $found"
        else
            miss "NVRTC cannot compile; loaded libraries: ${found:-none}"
        fi
    else
        miss "NVRTC: training did not reach its fourth iteration, see below"
        tail_of mapped
    fi
    stop_training

    status=0
    run nccl_1 --device cuda --backend nccl "${five[@]}" || status=$?
    check "NCCL with one rank" $status losses nccl_1 cuda 1e-3 nccl
fi

# check_sums NAME RANKS BACKEND REPORT [options]: checks all-reduce of message sizes and of gradients with every wire type.
# REPORT is the beginning of a line in NCCL's report. Prints one line if all pass.
check_sums() {
    local name=$1 ranks=$2 backend_name=$3 report=$4 wire kind status verdict='' wrong=0
    local backend=${backend_name/solo/auto}
    shift 4
    for wire in fp32 fp16 bf16; do
        for kind in sizes model; do
            status=0
            if [[ $kind == sizes ]]; then
                bandwidth "sizes_$name$wire" --backend "$backend" --wire "$wire" -b 8 -f 8 "$@" || status=$?
            else
                bandwidth "model_$name$wire" --backend "$backend" --wire "$wire" --model resnet50_v1b --optimizer sgd \
                    -n 5 -w 1 || status=$?
            fi
            if [[ $status == 0 ]] &&
                verdict=$(python3 "$judge" exact "${kind}_$name$wire" "$ranks" "$backend_name" "$wire" "$report" 2>&1); then
                continue
            fi
            wrong=1
            miss "all-reduce of $kind with $backend_name, $ranks rank(s), $wire: exit status $status, $verdict"
            if [[ $status != 0 ]]; then tail_of "${kind}_$name$wire"; fi
        done
    done
    if [[ $wrong == 0 ]]; then pass "all-reduce of sizes and gradients with $backend_name, $ranks rank(s), every wire type: $verdict"; fi
}
if [[ $quick == no ]]; then
    check_sums nccl_1_ 1 nccl "" -e 256M
    check_sums solo_ 1 solo "" -e 1M
fi

# Checks that each of two ranks uses only its own GPU.
list_processes() { nvidia-smi --query-compute-apps=gpu_bus_id --format=csv,noheader 2>/dev/null | sort || true; }
check_own_gpu() {
    local before after
    if [[ $gpus -lt 2 ]]; then
        skip "one GPU per rank: this machine has only one GPU"
        return
    fi
    before=$(list_processes)
    train_on own_gpu --backend nccl || true
    after=$(comm -13 <(echo "$before") <(list_processes) | grep . || true)
    stop_training
    if [[ -z $after ]]; then
        skip "one GPU per rank: nvidia-smi lists no processes, as in some containers"
    elif [[ $(wc -l <<<"$after") == 2 && $(sort -u <<<"$after" | wc -l) == 2 ]]; then
        pass "one GPU per rank: $(xargs <<<"$after")"
    else
        miss "one GPU per rank: processes of two ranks are on $(xargs <<<"$after")"
    fi
}

# --- two ranks: on two GPUs, or both on the first with different NCCL_HOSTIDs, because NCCL rejects two ranks on one GPU ---
two_ranks() {
    if ! command -v mpirun >/dev/null; then
        skip "two ranks: mpirun is not on PATH"
        return
    fi
    launch=(mpirun -np 2 --allow-run-as-root --oversubscribe --bind-to none)
    local where="two GPUs" transport=
    if [[ $gpus -lt 2 ]]; then
        where="one GPU" transport=NET/Socket
        # NCCL sees two hosts, connected only by sockets on interface lo.
        cat >as_two_hosts.sh <<'WRAPPER'
#!/usr/bin/env bash
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}" NCCL_HOSTID="host$OMPI_COMM_WORLD_RANK"
export NCCL_SOCKET_IFNAME==lo NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0
exec "$@"
WRAPPER
        chmod +x as_two_hosts.sh
        launch+=("$folder/as_two_hosts.sh")
    fi
    local small=(-e 16M -n 5 -w 1)

    # The reference is MPI's sum in host memory: an independent library with the same arithmetic.
    local status=0
    run mpi_2 --device cuda --backend mpi "${five[@]}" || status=$?
    check "two ranks on $where with MPI" $status equal_ranks mpi_2 2 mpi
    if [[ $status != 0 ]]; then return; fi
    if [[ $quick == no ]]; then check_sums mpi_2_ 2 mpi "" "${small[@]}"; fi

    run nccl_2 --device cuda --backend nccl "${five[@]}" || status=$?
    if [[ $status != 0 ]]; then
        if [[ $gpus -lt 2 ]]; then
            skip "two ranks on one GPU with NCCL: not possible here (exit status $status); NCCL's output:"
            grep -iE 'nccl' nccl_2.log | tail -n 8 | sed 's/^/         | /' || true
        else
            miss "two ranks on $where with NCCL: exit status $status, see below"
            tail_of nccl_2
        fi
        return
    fi
    judge "two ranks on $where with NCCL" equal_ranks nccl_2 2 nccl
    judge "NCCL vs. MPI" losses nccl_2 mpi_2 1e-3
    if [[ $quick == yes ]]; then return; fi
    check_own_gpu

    run fp16_wire --device cuda --backend nccl --wire fp16 "${five[@]}" || status=$?
    check "gradients sent as fp16" $status losses fp16_wire nccl_2 0.02
    check_sums nccl_2_ 2 nccl "transport: $transport" "${small[@]}"

    local store
    for store in device nccl local; do
        status=0
        run "store_$store" --device cuda --strategy "$store" "${five[@]}" || status=$?
        check "--strategy $store" $status losses "store_$store" nccl_2 1e-3
    done
    # The third process is the server.
    launch[2]=3
    status=0
    run store_server --device cuda --strategy dist_sync --servers 1 "${five[@]}" || status=$?
    check "--strategy dist_sync" $status losses store_server nccl_2 1e-3
    status=0
    run store_2bit --device cuda --strategy dist_sync --servers 1 --gradient-compression 2bit:1 "${five[@]}" || status=$?
    check "two ranks with 2-bit compression" $status equal_ranks store_2bit 2 tcp
    # One rank and one server: on a CPU, two ranks of one host would be summed before encoding.
    launch[2]=2
    local kind
    status=0
    for kind in cpu cuda; do
        run "codes_$kind" --device $kind --strategy dist_sync --servers 1 --gradient-compression 2bit:1 "${five[@]}" || status=$?
    done
    check "2-bit compression: CUDA vs. CPU" $status losses codes_cuda codes_cpu 0.02

    status=0
    run nccl_again --device cuda --backend nccl "${five[@]}" || status=$?
    run autotune --device cuda --backend nccl --autotune "${five[@]}" || status=$?
    check "autotuning" $status autotuned autotune nccl_2 nccl_again

    status=0
    local long=(--device cuda --backend nccl --batch-size 32 --image-size 224 --iters 12 --warmup 2)
    run overlap_on "${long[@]}" --overlap on || status=$?
    run overlap_off "${long[@]}" --overlap off || status=$?
    if [[ $status != 0 ]]; then
        miss "overlap: exit status $status, see below"
        tail_of overlap_on
    elif [[ $gpus -ge 2 ]]; then
        judge "overlap, measured by events" exposed overlap_on overlap_off
    elif verdict=$(python3 "$judge" exposed overlap_on overlap_off 2>&1); then
        pass "overlap, measured by events: $verdict"
    else
        skip "overlap, measured by events: two ranks that share one GPU cannot show it: $verdict"
    fi
}
two_ranks

# --- one of two ranks is killed or stopped during NCCL's all-reduce: the launcher must report it ---
check_fault() {
    local signal=$1 expected=$2 program=$worker ringmark launcher rank second message
    ringmark=$(dirname "$worker")/ringmark
    if [[ ! -x $ringmark ]]; then
        skip "rank that receives SIG$signal: no ringmark in the worker's folder"
        return
    fi
    if [[ $gpus -lt 2 ]]; then
        program=$folder/worker_on_one_gpu.sh
        printf '#!/usr/bin/env bash\nexec %q %q "$@"\n' "$folder/as_two_hosts.sh" "$worker" >"$program"
        chmod +x "$program"
    fi
    timeout -k 10 300 "$ringmark" sweep --no-doctor --cases 1n2g --hosts localhost:2 --runs 1 --stall-timeout 20 \
        --worker "$program" --out "$folder/fault_$signal" --device cuda --batch-size 8 --image-size 64 \
        --iters 100000 --warmup 1 >"fault_$signal.log" 2>&1 &
    launcher=$!
    for ((second = 0; second < 90; second++)); do
        if grep -qs 'Batch\[3\]' "fault_$signal"/1n2g/*.log.part || ! kill -0 "$launcher" 2>/dev/null; then break; fi
        sleep 1
    done
    for rank in $(pgrep -f "^$worker train"); do
        if grep -zqx OMPI_COMM_WORLD_RANK=1 "/proc/$rank/environ"; then kill "-$signal" "$rank"; fi
    done
    wait "$launcher" || true
    message=$(grep '^error: 1n2g run 1 of 1 failed: ' "fault_$signal.log" || true)
    if [[ $message == *"$expected"* && -z $(pgrep -f "^$worker train") ]]; then
        pass "rank that receives SIG$signal: $message"
    else
        miss "rank that receives SIG$signal: ${message:-no message}, see below"
        tail_of "fault_$signal"
    fi
}
if [[ $quick == yes ]]; then
    :
elif ! command -v mpirun >/dev/null || [[ ! -s nccl_2.jsonl ]]; then
    skip "killed or stopped rank: two NCCL ranks do not run on this machine"
elif ! command -v pgrep >/dev/null; then
    skip "killed or stopped rank: pgrep not found (package procps)"
else
    check_fault KILL "rank 1 of 2 on host $(hostname) was killed by signal 9 (SIGKILL) in iteration "
    check_fault STOP "no progress for 20 s: rank 1 of 2 on host $(hostname) (process "
fi

expect_no_warnings
echo "test_gpu.sh: $passed passed, $failed failed, $skipped skipped$([[ $quick == no ]] || echo ", others omitted by --quick")"
[[ $failed == 0 ]]
