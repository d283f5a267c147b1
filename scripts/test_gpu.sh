#!/usr/bin/env bash
# GPU tests of ringmark-worker: CUDA against CPU, every precision, NCCL with one rank and with two, overlap by events,
# all-reduce alone, and what the launcher reports about a rank that is killed or stopped.
#
#   scripts/test_gpu.sh [--worker FILE] [--keep FOLDER]
#
# The worker is --worker, $RINGMARK_WORKER, or what cargo built here. Needs bash and python3 (nothing beside its standard
# library), and mpirun for two ranks. Ends with exit status 0 where there is no GPU, and says that nothing was tested.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

worker=${RINGMARK_WORKER:-}
keep=
while [[ $# -gt 0 ]]; do
    case $1 in
        --worker) worker=${2:?--worker needs a file}; shift 2 ;;
        --keep) keep=${2:?--keep needs a folder}; shift 2 ;;
        *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
    esac
done
for built in "$root/target/release/ringmark-worker" "$root/target/debug/ringmark-worker"; do
    if [[ -z $worker && -x $built ]]; then worker=$built; fi
done

skip_all() {
    echo "test_gpu.sh: SKIPPED, nothing was tested: $1"
    exit 0
}
has_driver() { [[ -e /dev/nvidiactl || -e /dev/dxg ]] || command -v nvidia-smi >/dev/null; }

if ! has_driver; then skip_all "this machine has no NVIDIA driver (neither /dev/nvidiactl nor nvidia-smi)"; fi
if [[ ! -x $worker ]]; then
    echo "test_gpu.sh: there is a GPU, but no ringmark-worker: cargo build --release, or set RINGMARK_WORKER" >&2
    exit 1
fi
worker=$(realpath "$worker")
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
# A container may lack nvidia-smi; and a variable may show fewer than there are.
if [[ $gpus == 0 ]]; then gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l); fi
if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .); fi
if [[ $gpus == 0 ]]; then skip_all "the NVIDIA driver shows no GPU"; fi

folder=${keep:-$(mktemp -d)}
mkdir -p "$folder"
folder=$(realpath "$folder")
if [[ -z $keep ]]; then trap 'rm -rf "$folder"' EXIT; fi
cd "$folder"

passed=0 failed=0 skipped=0
pass() { passed=$((passed + 1)); echo "ok       $1"; }
fail() { failed=$((failed + 1)); echo "FAILED   $1"; }
skip() { skipped=$((skipped + 1)); echo "skipped  $1"; }

# run NAME [options] trains, record in NAME.jsonl; bandwidth NAME [options] sums alone, record in NAME.json, and NCCL must
# be free to tell the worker what it uses. Both: log in NAME.log, `launch` before the worker.
launch=()
unset -v "${!NCCL_DEBUG@}"
run() { NCCL_DEBUG=WARN start "$1" train --record "$1.jsonl" "${@:2}"; }
bandwidth() { start "$1" bandwidth --device cuda --json "$1.json" "${@:2}"; }
start() {
    local name=$1
    shift
    rm -f "$name.jsonl" "$name.json"
    timeout -k 10 150 ${launch[@]+"${launch[@]}"} "$worker" "$@" >"$name.log" 2>&1
}

# judge NAME of test, then arguments for the Python below: its exit status decides, its line says why.
judge() {
    local name=$1 verdict
    shift
    if verdict=$(python3 "$folder/judge.py" "$@" 2>&1); then pass "$name: $verdict"; else fail "$name: $verdict"; fi
}

# check NAME RECORD ARGUMENTS...: fails with the end of the log where RECORD's run failed, otherwise judges.
check() {
    local name=$1 status=$2
    shift 2
    if [[ $status != 0 ]]; then fail "$name: exit status $status, see below"; tail_of "$2"; else judge "$name" "$@"; fi
}
tail_of() { sed 's/^/         | /' "$1.log" | tail -n 15; }

cat >judge.py <<'PYTHON'
"""What the records of two runs say about each other. A failed expectation is exit status 1; the last line says which."""
import array, json, statistics, sys


def load(name):
    lines = [json.loads(line) for line in open(f"{name}.jsonl")]
    run, end = lines[0], lines[-1]
    if end["kind"] != "end" or end["failure"]:
        sys.exit(f"{name} failed: {end.get('failure', 'the record has no end')}")
    return run, [line for line in lines if line["kind"] == "iteration"], end


def expect(condition, message):
    if not condition:
        sys.exit(message)


def losses(other, reference, tolerance, *backend):
    (_, ours, _), (_, theirs, _) = load(other), load(reference)
    expect(not backend or load(other)[0]["backend"] == backend[0], f"backend is {load(other)[0]['backend']}")
    pairs = [(a["loss"][0], b["loss"][0]) for a, b in zip(ours, theirs)]
    expect(len(ours) == len(theirs) > 0, f"{len(ours)} and {len(theirs)} iterations")
    expect(pairs[-1][1] < 0.9 * pairs[0][1], f"the losses of {reference} do not fall: the comparison would show nothing")
    worst = max(abs(a - b) / abs(b) for a, b in pairs)
    text = f"largest relative difference of {len(pairs)} losses {worst:.1e}, allowed {tolerance}"
    expect(worst <= float(tolerance), f"{text}: {pairs}")
    print(text)


def differ(one, other):
    """A precision that changes nothing was not used."""
    pairs = [(a["loss"][0], b["loss"][0]) for a, b in zip(load(one)[1], load(other)[1])]
    expect(any(a != b for a, b in pairs), f"{one} and {other} have the same losses to the last bit")
    print("the rounding shows")


def device(name, kind):
    run, _, end = load(name)
    expect(all(rank["device"] == kind for rank in run["ranks"]), f"ranks trained on {[rank['device'] for rank in run['ranks']]}")
    expect(end["peak_memory"][0] > 300e6, f"peak memory {end['peak_memory']}: weights, gradients, momenta are 307 MB")
    print(f"{run['ranks'][0]['device_name']}, NCCL {run['environment']['nccl_version']}, driver {run['environment']['driver_version']}")


def times(name):
    """Events give phases that are positive and add up to the step."""
    _, iterations, _ = load(name)
    shares = []
    for iteration in iterations:
        parts = [iteration[part][0] for part in ["forward", "backward", "exposed_allreduce", "optimizer"]]
        step = iteration["step"][0]
        expect(all(part >= 0 for part in parts) and parts[0] > 0 and parts[1] > 0, f"phases {parts}")
        expect(sum(parts) <= step * 1.001, f"phases {parts} are more than the step {step}")
        shares.append(sum(parts) / step)
    expect(statistics.median(shares) > 0.5, f"phases are only {statistics.median(shares):.0%} of the step")
    print(f"phases are {statistics.median(shares):.0%} of the step")


def skips(name, iteration, scale):
    _, iterations, end = load(name)
    found = [line["iteration"] for line in iterations if line["skipped"]]
    expect(found == [int(iteration)] and end["skipped_steps"] == 1, f"skipped {found}, {end['skipped_steps']} in the end line")
    after = [line["loss_scale"] for line in iterations]
    expected = [float(scale)] * int(iteration) + [float(scale) / 2] * (len(after) - int(iteration))
    expect(after == expected, f"loss scales {after}")
    print(f"iteration {iteration} alone was skipped, loss scales {after}")


def equal_ranks(name, count, backend):
    run, _, end = load(name)
    sums = end["parameter_checksums"]
    expect(run["backend"] == backend, f"backend is {run['backend']}")
    expect(len(sums) == int(count) and len(set(sums)) == 1, f"checksums {sums}")
    print(f"{count} ranks end with weights {sums[0]}")


def autotuned(tuned, plain, again):
    """The search changes no weight. cuDNN may round two equal runs differently: then losses must agree."""
    sums = [load(name)[2]["parameter_checksums"] for name in [tuned, plain, again]]
    trials = load(tuned)[0].get("tuning", {}).get("trials", [])
    expect(len(trials) == 6 and all(trial["step"] > 0 for trial in trials), f"trials {trials}")
    expect(len(set(sums[0])) == 1, f"checksums {sums[0]}")
    if sums[0] != sums[1] != sums[2]:
        print(f"{plain} and {again} are not the same to the last bit, so by losses alone:", end=" ")
        return losses(tuned, plain, "1e-3")
    expect(sums[0] == sums[1], f"checksums {sums[0]}, without the search {sums[1]}")
    print(f"{len(trials)} trials, weights {sums[0][0]} as without them")


def exact(name, ranks, backend, wire, named=""):
    """Bandwidth: every sample is there and every sum is right; of gradients, as far as the worker allows rounding."""
    record = json.load(open(f"{name}.json"))
    config, results, devices = record["config"], record["results"], [rank["device"] for rank in record["ranks"]]
    expect(record["kind"] == "ringmark-bandwidth" and record["failure"] is None, f"failure {record['failure']}")
    expect(record["backend"] == backend and devices == ["cuda"] * int(ranks), f"{record['backend']} on {devices}")
    is_exact = "sizes" in config["messages"]
    element = {"fp32": "float", "fp16": "half", "bf16": "bfloat16"}[wire]
    for result in results:
        sides = [result[side] for side in ["out_of_place", "in_place"] if result[side]]
        expect(result["element"] == element and len(sides) == 1 + is_exact, f"{result['element']}, {len(sides)} sides")
        for side in sides:
            # One rank in place has nothing to do.
            counts = [sum(time > 0 or ranks == "1" for time in times) for times in side["seconds"]]
            expect(counts == [config["iterations"]] * int(ranks), f"{counts} times of {result['bytes']} bytes")
            wrong, error = side["wrong"], side["error"]
            expect(wrong == (0 if is_exact else None), f"{wrong} wrong elements in {result['bytes']} bytes")
            expect(len(error) == config["iterations"] and None not in error, f"errors {error}")
            expect(not is_exact or max(error) == 0, f"errors {error}")
    is_named = any(line.startswith(named) for line in record["nccl"])
    expect(results and is_named == (backend == "nccl"), f"{len(results)} results, NCCL says {record['nccl']}")
    print(", ".join([f"{len(results)} result(s), the largest of {results[-1]['bytes']} bytes", *record["nccl"][-2:]]))


def exposed(on, off):
    """Median over iterations after the first two, slowest rank."""
    time = lambda name: statistics.median(max(line["exposed_allreduce"]) for line in load(name)[1][2:])
    text = f"exposed all-reduce {time(on) * 1e3:.3f} ms with overlap, {time(off) * 1e3:.3f} ms without"
    expect(time(on) < time(off), text)
    print(text)


def prepare(init, data):
    """Makes fresh weights fit for a comparison of five steps, and a batch of 8 images of 64 pixels.

    With fresh weights and small batches, batch normalization and ReLU turn the last bit of rounding into percents of the
    gradient. With small residual branches (bn3.weight) and ReLUs shifted off 0 (biases) fp32 agrees to 1e-6.
    """
    raw = bytearray(open(init, "rb").read())
    length = int.from_bytes(raw[:8], "little")
    for name, tensor in json.loads(raw[8 : 8 + length]).items():
        is_bias = name.endswith(".bias") and name != "fc.bias"
        if is_bias or name.endswith("bn3.weight"):
            start, end = (8 + length + place for place in tensor["data_offsets"])
            raw[start:end] = array.array("f", [2.0 if is_bias else 0.25] * ((end - start) // 4)).tobytes()
    open(init, "wb").write(raw)

    state, numbers = 1, array.array("f")
    for _ in range(8 * 3 * 64 * 64):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers.append((state >> 40) / 2**23 * 1.7 - 1.7)
    images, labels = numbers.tobytes(), array.array("q", [(7 + 251 * image) % 1000 for image in range(8)]).tobytes()
    header = {
        "images": {"dtype": "F32", "shape": [8, 3, 64, 64], "data_offsets": [0, len(images)]},
        "labels": {"dtype": "I64", "shape": [8], "data_offsets": [len(images), len(images) + len(labels)]},
    }
    header = json.dumps(header).encode()
    header += b" " * (-len(header) % 8)
    open(data, "wb").write(len(header).to_bytes(8, "little") + header + images + labels)


checks = [losses, differ, device, times, skips, equal_ranks, autotuned, exact, exposed, prepare]
by_name = {function.__name__: function for function in checks}
by_name[sys.argv[1]](*sys.argv[2:])
PYTHON

echo "worker $worker, $gpus GPU(s), files in $folder"

# --- one rank: CUDA against CPU, precisions, NCCL alone ---
status=0
run fresh --device cpu --batch-size 2 --image-size 32 --iters 1 --warmup 0 --lr 0 --seed 1 --save init.safetensors || status=$?
if [[ $status != 0 ]]; then
    fail "weights to start from: exit status $status"
    tail_of fresh
    exit 1
fi
python3 judge.py prepare init.safetensors batch.safetensors

five=(--batch-size 4 --image-size 64 --iters 5 --warmup 0 --lr 0.00002 --lr-warmup-iters 0
    --init init.safetensors --data batch.safetensors)
run cpu --device cpu "${five[@]}" || fail "fp32 on the CPU, which the rest is compared with: $(tail -n 1 cpu.log)"

status=0
run cuda --device cuda "${five[@]}" || status=$?
if [[ $status != 0 ]]; then
    # Here the machine has a GPU that the worker cannot use: that is no reason to skip.
    fail "fp32 on CUDA: exit status $status, see below"
    tail_of cuda
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
        capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1)
        if [[ ${capability%%.*} =~ ^[0-9]+$ && ${capability%%.*} -lt 8 ]]; then
            skip "tf32: compute capability $capability, it needs 8.0"
            continue
        fi
    fi
    status=0
    run "$dtype" --device cuda --dtype "$dtype" --loss-scale 128 "${five[@]}" || status=$?
    check "$dtype against fp32" $status losses "$dtype" cuda "${pair#*:}"
    if [[ $status == 0 ]]; then judge "$dtype is used" differ "$dtype" cuda; fi
done

status=0
run overflow --device cuda --dtype fp16 --loss-scale 128 --inject overflow:2 "${five[@]}" || status=$?
check "an overflow of fp16 skips one step" $status skips overflow 2 128

status=0
run nccl_1 --device cuda --backend nccl "${five[@]}" || status=$?
check "NCCL with one rank" $status losses nccl_1 cuda 1e-3 nccl

# sums NAME RANKS ENGINE TOLD [options]: sizes and gradients on every wire; TOLD begins a line of what NCCL says.
sums() {
    local name=$1 ranks=$2 backend_name=$3 named=$4 wire status
    local asked=${backend_name/solo/auto}
    shift 4
    for wire in fp32 fp16 bf16; do
        status=0
        bandwidth "sizes_$name$wire" --backend "$asked" --wire "$wire" -b 8 -f 8 "$@" || status=$?
        check "sizes by $backend_name, $ranks rank(s), $wire" $status exact "sizes_$name$wire" "$ranks" "$backend_name" "$wire" "$named"
        status=0
        bandwidth "model_$name$wire" --backend "$asked" --wire "$wire" --model resnet50_v1b --optimizer sgd \
            -n 5 -w 1 || status=$?
        check "gradients and sgd by $backend_name, $ranks rank(s), $wire" $status \
            exact "model_$name$wire" "$ranks" "$backend_name" "$wire" "$named"
    done
}
sums nccl_1_ 1 nccl "" -e 256M
sums solo_ 1 solo "" -e 1M

# --- two ranks: on two GPUs, or both on the first with host numbers that differ, or NCCL would refuse ---
two_ranks() {
    if ! command -v mpirun >/dev/null; then
        skip "two ranks: mpirun is not on PATH"
        return
    fi
    launch=(mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2)
    local where="two GPUs" transport=
    if [[ $gpus -lt 2 ]]; then
        where="one GPU" transport=NET/Socket
        # Two hosts, as far as NCCL can tell: they talk by sockets, and by no interface but lo.
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

    # The reference is MPI's sum through host memory: another library, the same arithmetic.
    local status=0
    run mpi_2 --device cuda --backend mpi "${five[@]}" || status=$?
    check "two ranks on $where by MPI" $status equal_ranks mpi_2 2 mpi
    if [[ $status != 0 ]]; then return; fi
    sums mpi_2_ 2 mpi "" "${small[@]}"

    run nccl_2 --device cuda --backend nccl "${five[@]}" || status=$?
    if [[ $status != 0 ]]; then
        if [[ $gpus -lt 2 ]]; then
            skip "two ranks on one GPU by NCCL: not possible here (exit status $status); what NCCL says:"
            grep -iE 'nccl' nccl_2.log | tail -n 8 | sed 's/^/         | /' || true
        else
            fail "two ranks on $where by NCCL: exit status $status, see below"
            tail_of nccl_2
        fi
        return
    fi
    judge "two ranks on $where by NCCL" equal_ranks nccl_2 2 nccl
    judge "NCCL against MPI" losses nccl_2 mpi_2 1e-3

    run fp16_wire --device cuda --backend nccl --wire fp16 "${five[@]}" || status=$?
    check "gradients as fp16" $status losses fp16_wire nccl_2 0.02
    sums nccl_2_ 2 nccl "transport: $transport" "${small[@]}"

    status=0
    run nccl_again --device cuda --backend nccl "${five[@]}" || status=$?
    run autotune --device cuda --backend nccl --autotune "${five[@]}" || status=$?
    check "the search for sizes" $status autotuned autotune nccl_2 nccl_again

    status=0
    local long=(--device cuda --backend nccl --batch-size 32 --image-size 224 --iters 12 --warmup 2)
    run overlap_on "${long[@]}" --overlap on || status=$?
    run overlap_off "${long[@]}" --overlap off || status=$?
    if [[ $status != 0 ]]; then
        fail "overlap: exit status $status, see below"
        tail_of overlap_on
    elif [[ $gpus -ge 2 ]]; then
        judge "overlap, by events" exposed overlap_on overlap_off
    elif verdict=$(python3 judge.py exposed overlap_on overlap_off 2>&1); then
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
        if tr '\0' '\n' <"/proc/$rank/environ" | grep -qx OMPI_COMM_WORLD_RANK=1; then kill "-$signal" "$rank"; fi
    done
    wait "$launcher" || true
    said=$(grep '^ringmark: 1n2g run 1 of 1 failed: ' "fault_$signal.log" || true)
    if [[ $said == *"$expected"* && -z $(pgrep -f "^$worker train") ]]; then
        pass "a rank that gets SIG$signal: $said"
    else
        fail "a rank that gets SIG$signal: ${said:-no word of it}, see below"
        tail_of "fault_$signal"
    fi
}
if ! command -v mpirun >/dev/null || [[ ! -s nccl_2.jsonl ]]; then
    skip "ranks that are killed or stopped: two ranks do not run by NCCL here"
else
    fault KILL "rank 1 of 2 on host $(hostname) was killed by signal 9 (SIGKILL) in iteration "
    fault STOP "no progress for 20 s: rank 1 of 2 on host $(hostname) (process "
fi

echo "test_gpu.sh: $passed passed, $failed failed, $skipped skipped"
[[ $failed == 0 ]]
