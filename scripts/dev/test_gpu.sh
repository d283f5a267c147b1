#!/usr/bin/env bash
# GPU tests of ringmark-worker: CUDA against CPU, every precision, gradients against fp64, fused kernels against libtorch's, CUDA
# graphs against single launches, images from files, speed, NCCL with one rank and with two, kv-stores, overlap by events,
# all-reduce alone, and the launcher's report about a rank that is killed or stopped.
#
#   scripts/dev/test_gpu.sh [--worker FILE] [--mpi FOLDER] [--limit SECONDS] [--keep FOLDER] [--quick]
#
# The worker is --worker, $RINGMARK_WORKER, or what cargo built here. Needs bash and python3, no Rust; a worker that was
# built elsewhere uses libtorch from the torch that python3 imports. mpirun is for two ranks; --mpi is a folder with Open MPI's
# unpacked packages from another machine (dpkg -x openmpi-bin, openmpi-common, libopenmpi3 and their requirements; of a
# distribution that is not newer than this one). Checks whose requirements are missing are skipped with the reason; without a
# GPU nothing is tested, with exit status 0. Ends after 40 minutes, or --limit, at the latest. --quick skips what depends neither on kernels
# nor on precision: overflows, images from files, lack of memory, faults, NVRTC's libraries, sums alone, kv-stores.
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
    echo "error: there is a GPU, but no ringmark-worker: cargo build --release, or set RINGMARK_WORKER" >&2
    exit 1
fi
gpus=$(count_gpus)
if [[ $gpus == 0 ]]; then skip_all "the NVIDIA driver shows no GPU"; fi
use_mpi "$mpi"
use_libtorch
if worker_lacks libmpi.so.40; then skip_all "the worker needs Open MPI's libmpi.so.40, with one rank too: apt-get install openmpi-bin"; fi
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
    [[ -z $training ]] || end
    [[ -n $keep ]] || rm -rf "$folder"
}
trap clean_up EXIT
cd "$folder"

passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "ok       $1"; }
miss() { failed=$((failed + 1)); echo "FAILED   $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped  $1"; }

# run NAME [options] trains, record in NAME.jsonl. score and bandwidth NAME [options] run inference and all-reduce, record in
# NAME.json; NCCL_DEBUG must be unset, so that the worker can read NCCL's choices. All: log in NAME.log, `launch` before the worker.
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
    ((left > 0)) || { echo "the $limit_seconds s of this script are over" >"$name.log"; return 124; }
    timeout -k 10 $((left < 150 ? left : 150)) ${launch[@]+"${launch[@]}"} "$worker" "$@" >"$name.log" 2>&1
}

# judge NAME of test, then arguments for test_gpu_judge.py: its exit status decides, its line is the reason.
judge() {
    local name=$1 verdict
    shift
    if verdict=$(python3 "$judge" "$@" 2>&1); then pass "$name: $verdict"; else miss "$name: $verdict"; fi
}

# check NAME RECORD ARGUMENTS...: fails with the end of the log if RECORD's run failed, otherwise judges.
check() {
    local name=$1 status=$2
    shift 2
    if [[ $status != 0 ]]; then miss "$name: exit status $status, see below"; tail_of "$2"; else judge "$name" "$@"; fi
}
tail_of() { sed 's/^/         | /' "$1.log" | tail -n 15; }

# Messages that no run so far may contain.
expect_no_warnings() {
    local said
    said=$(grep -l 'Warning:' ./*.log | xargs || true)
    if [[ -z $said ]]; then
        pass "no warning of libtorch in $(find . -maxdepth 1 -name '*.log' | wc -l) logs"
    else
        miss "libtorch warns in $said: $(grep -hm 1 'Warning:' ./*.log | head -n 1)"
    fi
}

echo "worker $worker, $gpus GPU(s) of compute capability ${capability:-unknown}, files in $folder"
chosen=$("$root/scripts/setup.sh" --which 2>&1) || true
if [[ $chosen =~ ^(cu1|given) ]]; then pass "set-up chooses $chosen"; else miss "set-up chooses $chosen"; fi

# --- one rank: CUDA against CPU, precisions, NCCL alone ---
status=0
run fresh --device cpu --batch-size 2 --image-size 32 --iters 1 --warmup 0 --lr 0 --seed 1 --save init.safetensors || status=$?
if [[ $status != 0 ]]; then
    miss "weights to start from: exit status $status"
    tail_of fresh
    exit 1
fi
python3 "$judge" prepare init.safetensors batch.safetensors

five=(--batch-size 4 --image-size 64 --iters 5 --warmup 0 --lr 0.00002 --lr-warmup-iters 0
    --init init.safetensors --data batch.safetensors)
run cpu --device cpu "${five[@]}" || miss "fp32 on the CPU, which the rest is compared with: $(tail -n 1 cpu.log)"

status=0
run cuda --device cuda "${five[@]}" || status=$?
if [[ $status != 0 ]]; then
    # The machine has a GPU that the worker cannot use: no reason to skip.
    miss "fp32 on CUDA: exit status $status, see below"
    tail_of cuda
    expect_no_warnings
    echo "test_gpu.sh: $passed passed, $failed failed; the rest needs CUDA and was not run"
    exit 1
fi
judge "CUDA is used" device cuda cuda
judge "fp32, CUDA against CPU" losses cuda cpu 1e-3
judge "events" times cuda

status=0
run cuda_nchw --device cuda --layout nchw "${five[@]}" || status=$?
check "fp32, contiguous against the CPU's channels_last" $status losses cuda_nchw cpu 1e-3

for pair in tf32:0.01 fp16:0.02 bf16:0.1; do
    dtype=${pair%:*}
    if [[ $dtype == tf32 ]]; then
        if [[ ${capability%%.*} =~ ^[0-9]+$ && ${capability%%.*} -lt 8 ]]; then
            skip "tf32: compute capability $capability, it needs 8.0"
            continue
        fi
    fi
    status=0
    run "$dtype" --device cuda --dtype "$dtype" --loss-scale 128 "${five[@]}" || status=$?
    check "$dtype against fp32" $status losses "$dtype" cuda "${pair#*:}"
    if [[ $status == 0 ]]; then judge "$dtype is used" differ "$dtype" cuda; fi
    # The default is fused.
    status=0
    run "${dtype}_libtorch" --device cuda --dtype "$dtype" --kernels libtorch --loss-scale 128 "${five[@]}" || status=$?
    check "fused kernels in $dtype against libtorch's" $status kernels "$dtype" "${dtype}_libtorch" "${pair#*:}"
done

# The first start compiles kernels; the second uses the cache, whose files stay the same.
cached() { find first_start -name '*.cubin' -printf '%f %i %T@\n' 2>/dev/null | sort || true; }
status=0
XDG_CACHE_HOME=$folder/first_start run first_start --device cuda --dtype fp16 --loss-scale 128 "${five[@]}" || status=$?
compiled=$(cached)
XDG_CACHE_HOME=$folder/first_start run second_start --device cuda --dtype fp16 --loss-scale 128 "${five[@]}" || status=$?
check "kernels that were compiled before" $status losses second_start first_start 1e-3
if [[ -n $compiled && $compiled == "$(cached)" ]]; then
    pass "the second start compiles nothing: $(wc -l <<<"$compiled") file(s) in the cache"
else
    miss "the cache has after the first start: ${compiled:-nothing}; after the second: $(cached)"
fi
# Replayed from CUDA graphs, and kernel by kernel: training and inference.
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
    check "a CUDA graph in $dtype" $status graphs "score_${dtype}_on" "score_${dtype}_off"
done

if [[ $quick == no ]]; then
    status=0
    run overflow --device cuda --dtype fp16 --loss-scale 128 --inject overflow:2 "${five[@]}" || status=$?
    check "an overflow of fp16 skips one step" $status skips overflow 2 128

    # Images from files: pixels are copied during the steps, in a separate stream.
    mkdir -p digits
    python3 "$judge" digits digits
    reading=(--model mxnet-lenet --image-size 28 --batch-size 32 --iters 6 --warmup 0 --lr 0.02 --lr-warmup-iters 0 --seed 1
        --data digits/train-images-idx3-ubyte --decode-threads 2)
    status=0
    run read_cpu --device cpu "${reading[@]}" || status=$?
    run read_cuda --device cuda "${reading[@]}" || status=$?
    check "images that are read, CUDA against CPU" $status losses read_cuda read_cpu 1e-3
    if [[ $status == 0 ]]; then judge "images are read" read read_cuda 2; fi
fi

# One step of plain SGD, whose update is the gradient.
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
    # 65,536 images take 39 GB, and the output of the first convolution another 210 GB.
    status=0
    run too_large --device cuda --batch-size 65536 --image-size 224 --iters 2 --warmup 0 || status=$?
    if [[ $status == 1 ]] && said=$(grep -m 1 'out of memory: .* GB in use' too_large.log); then
        pass "a batch without memory: $said"
    else
        miss "a batch without memory: exit status $status, see below"
        tail_of too_large
    fi
fi

# Starts an endless training as $1 and waits for its fourth iteration; $training is its process.
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
end() {
    kill "$training" 2>/dev/null || true
    wait "$training" 2>/dev/null || true
    training=
}

if [[ $quick == no ]]; then
    # cuDNN compiles some kernels at run time with NVRTC, which opens its built-in functions by file name only.
    if train_on mapped; then
        found=$(grep -oE '/[^ ]*libnvrtc(-builtins)?\.so[^ ]*' "/proc/$training/maps" | sort -u | xargs || true)
        if [[ $found == *libnvrtc-builtins.so* ]]; then
            pass "NVRTC can compile: $found"
        else
            miss "NVRTC cannot compile, loaded is only: ${found:-neither}"
        fi
    else
        miss "NVRTC: training did not reach its fourth iteration, see below"
        tail_of mapped
    fi
    end

    status=0
    run nccl_1 --device cuda --backend nccl "${five[@]}" || status=$?
    check "NCCL with one rank" $status losses nccl_1 cuda 1e-3 nccl
fi

# sums NAME RANKS ENGINE REPORT [options]: sizes and gradients on every wire; REPORT is the start of a line of NCCL's report. One line
# if all are right.
sums() {
    local name=$1 ranks=$2 backend_name=$3 named=$4 wire kind status said='' wrong=0
    local asked=${backend_name/solo/auto}
    shift 4
    for wire in fp32 fp16 bf16; do
        for kind in sizes model; do
            status=0
            if [[ $kind == sizes ]]; then
                bandwidth "sizes_$name$wire" --backend "$asked" --wire "$wire" -b 8 -f 8 "$@" || status=$?
            else
                bandwidth "model_$name$wire" --backend "$asked" --wire "$wire" --model resnet50_v1b --optimizer sgd \
                    -n 5 -w 1 || status=$?
            fi
            if [[ $status == 0 ]] &&
                said=$(python3 "$judge" exact "${kind}_$name$wire" "$ranks" "$backend_name" "$wire" "$named" 2>&1); then
                continue
            fi
            wrong=1
            miss "all-reduce of $kind by $backend_name, $ranks rank(s), $wire: exit status $status, $said"
            if [[ $status != 0 ]]; then tail_of "${kind}_$name$wire"; fi
        done
    done
    if [[ $wrong == 0 ]]; then pass "all-reduce of sizes and gradients by $backend_name, $ranks rank(s), every wire: $said"; fi
}
if [[ $quick == no ]]; then
    sums nccl_1_ 1 nccl "" -e 256M
    sums solo_ 1 solo "" -e 1M
fi

# Each of two ranks uses its own GPU and nothing on the other's.
programs_by_gpu() { nvidia-smi --query-compute-apps=gpu_bus_id --format=csv,noheader 2>/dev/null | sort || true; }
own_gpu() {
    local before after
    if [[ $gpus -lt 2 ]]; then
        skip "a GPU of its own for local rank 1: there is one GPU"
        return
    fi
    before=$(programs_by_gpu)
    train_on own_gpu --backend nccl || true
    after=$(comm -13 <(echo "$before") <(programs_by_gpu) | grep . || true)
    end
    if [[ -z $after ]]; then
        skip "a GPU of its own for local rank 1: nvidia-smi shows no programs here, as in some containers"
    elif [[ $(wc -l <<<"$after") == 2 && $(sort -u <<<"$after" | wc -l) == 2 ]]; then
        pass "two ranks have a GPU each: $(xargs <<<"$after")"
    else
        miss "two ranks have programs on GPUs: $(xargs <<<"$after")"
    fi
}

# --- two ranks: on two GPUs, or both on the first with different host numbers, without which NCCL would refuse ---
two_ranks() {
    if ! command -v mpirun >/dev/null; then
        skip "two ranks: mpirun is not on PATH"
        return
    fi
    launch=(mpirun -np 2 --allow-run-as-root --oversubscribe --bind-to none)
    local where="two GPUs" transport=
    if [[ $gpus -lt 2 ]]; then
        where="one GPU" transport=NET/Socket
        # Two hosts for NCCL: they use sockets on the interface lo only.
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

    # The reference is MPI's sum in host memory: another library with the same arithmetic.
    local status=0
    run mpi_2 --device cuda --backend mpi "${five[@]}" || status=$?
    check "two ranks on $where by MPI" $status equal_ranks mpi_2 2 mpi
    if [[ $status != 0 ]]; then return; fi
    if [[ $quick == no ]]; then sums mpi_2_ 2 mpi "" "${small[@]}"; fi

    run nccl_2 --device cuda --backend nccl "${five[@]}" || status=$?
    if [[ $status != 0 ]]; then
        if [[ $gpus -lt 2 ]]; then
            skip "two ranks on one GPU by NCCL: not possible here (exit status $status); what NCCL says:"
            grep -iE 'nccl' nccl_2.log | tail -n 8 | sed 's/^/         | /' || true
        else
            miss "two ranks on $where by NCCL: exit status $status, see below"
            tail_of nccl_2
        fi
        return
    fi
    judge "two ranks on $where by NCCL" equal_ranks nccl_2 2 nccl
    judge "NCCL against MPI" losses nccl_2 mpi_2 1e-3
    if [[ $quick == yes ]]; then return; fi
    own_gpu

    run fp16_wire --device cuda --backend nccl --wire fp16 "${five[@]}" || status=$?
    check "gradients as fp16" $status losses fp16_wire nccl_2 0.02
    sums nccl_2_ 2 nccl "transport: $transport" "${small[@]}"

    local store
    for store in device nccl local; do
        status=0
        run "store_$store" --device cuda --kv-store "$store" "${five[@]}" || status=$?
        check "--kv-store $store" $status losses "store_$store" nccl_2 1e-3
    done
    # One additional process, the server.
    launch[2]=3
    status=0
    run store_server --device cuda --kv-store dist_sync --servers 1 "${five[@]}" || status=$?
    check "--kv-store dist_sync" $status losses store_server nccl_2 1e-3
    status=0
    run store_2bit --device cuda --kv-store dist_sync --servers 1 --gradient-compression 2bit:1 "${five[@]}" || status=$?
    check "two ranks push codes of two bits" $status equal_ranks store_2bit 2 tcp
    # One rank and a server: ranks of a CPU host would add up before encoding.
    launch[2]=2
    local kind
    status=0
    for kind in cpu cuda; do
        run "codes_$kind" --device $kind --kv-store dist_sync --servers 1 --gradient-compression 2bit:1 "${five[@]}" || status=$?
    done
    check "codes of two bits, CUDA against CPU" $status losses codes_cuda codes_cpu 0.02

    status=0
    run nccl_again --device cuda --backend nccl "${five[@]}" || status=$?
    run autotune --device cuda --backend nccl --autotune "${five[@]}" || status=$?
    check "the search for sizes" $status autotuned autotune nccl_2 nccl_again

    status=0
    local long=(--device cuda --backend nccl --batch-size 32 --image-size 224 --iters 12 --warmup 2)
    run overlap_on "${long[@]}" --overlap on || status=$?
    run overlap_off "${long[@]}" --overlap off || status=$?
    if [[ $status != 0 ]]; then
        miss "overlap: exit status $status, see below"
        tail_of overlap_on
    elif [[ $gpus -ge 2 ]]; then
        judge "overlap, by events" exposed overlap_on overlap_off
    elif verdict=$(python3 "$judge" exposed overlap_on overlap_off 2>&1); then
        pass "overlap, by events: $verdict"
    else
        skip "overlap, by events: not to be shown by two ranks that take turns on one GPU: $verdict"
    fi
}
two_ranks

# --- a rank of two that is killed or stopped while NCCL sums: the launcher names it ---
fault() {
    local signal=$1 expected=$2 program=$worker ringmark launcher rank second said
    ringmark=$(dirname "$worker")/ringmark
    if [[ ! -x $ringmark ]]; then
        skip "a rank that gets SIG$signal: there is no ringmark beside the worker"
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
    said=$(grep '^error: 1n2g run 1 of 1 failed: ' "fault_$signal.log" || true)
    if [[ $said == *"$expected"* && -z $(pgrep -f "^$worker train") ]]; then
        pass "a rank that gets SIG$signal: $said"
    else
        miss "a rank that gets SIG$signal: ${said:-no message}, see below"
        tail_of "fault_$signal"
    fi
}
if [[ $quick == yes ]]; then
    :
elif ! command -v mpirun >/dev/null || [[ ! -s nccl_2.jsonl ]]; then
    skip "ranks that are killed or stopped: two ranks do not run by NCCL here"
elif ! command -v pgrep >/dev/null; then
    skip "ranks that are killed or stopped: there is no pgrep (package procps)"
else
    fault KILL "rank 1 of 2 on host $(hostname) was killed by signal 9 (SIGKILL) in iteration "
    fault STOP "no progress for 20 s: rank 1 of 2 on host $(hostname) (process "
fi

expect_no_warnings
echo "test_gpu.sh: $passed passed, $failed failed, $skipped skipped$([[ $quick == no ]] || echo ", the rest left out by --quick")"
[[ $failed == 0 ]]
