#!/usr/bin/env bash
# Runs the most important measurements on a GPU machine that is available only for minutes.
#
#   scripts/dev/gpu_visit.sh 1|2 [--worker FILE] [--mpi FOLDER] [--out FOLDER] [--limit SECONDS] [--only NAME,NAME]
#
# Part 1 times kernels with PyTorch only (gpu_kernels.py). Part 2 measures the worker, most important first:
#   training      compared with PyTorch, eager and compiled: fp16 and bf16 at batch sizes 128 and 256, tf32 at 128
#   inference     compared with PyTorch, eager and compiled: fp16 at batch sizes 1, 32 and 128
#   layers        time per layer, fp16 and bf16 at batch size 128
#   language-models  GPT-2 124M with 1,024 tokens compared with PyTorch: bf16 at batch size 16, fp32 at 8
#   test_worker   scripts/dev/test_gpu.sh --quick, with two NCCL ranks on one GPU
#   max-autotune  training and inference compared with torch.compile(mode="max-autotune")
#
# Each result is one JSON line on standard output and in results.jsonl in --out, which receives at most eight files. Part 2
# then prints a table. The script ends after 9 minutes or --limit. Each measurement of part 2 has its own time limit; with
# --only, it is all the remaining time. In part 1, --only is passed to gpu_kernels.py as --parts. --worker, libtorch and
# --mpi are as in test_gpu.sh; python3 needs PyTorch and torchvision.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/dev/common.sh
source "$root/scripts/dev/common.sh"

visit=${1:-}
case $visit in
    1 | 2) shift ;;
    --help | -h) usage 0 ;;
    *) usage 2 ;;
esac
given='' mpi='' out=gpu_visit limit=540 only=
while (($#)); do
    case $1 in
        --worker) given=${2:?--worker needs a file}; shift 2 ;;
        --mpi) mpi=$(realpath "${2:?--mpi needs a folder}"); shift 2 ;;
        --out) out=${2:?--out needs a folder}; shift 2 ;;
        --limit) limit=${2:?--limit needs seconds}; shift 2 ;;
        --only) only=${2:?--only needs names}; shift 2 ;;
        --help | -h) usage 0 ;;
        *) usage 2 ;;
    esac
done
[[ -z $given || -x $given ]] || fail "--worker $given is not a program"
mkdir -p "$out"
out=$(realpath "$out")
# Contains the logs, which are archived at the end, and temporary files.
work=$(mktemp -d)
mkdir "$work/logs"
finish() {
    tar -czf "$out/logs.tar.gz" -C "$work" logs
    rm -rf "$work"
}
trap finish EXIT

# Prints the JSON lines on standard input and adds them to the results.
add() { tee -a "$out/results.jsonl"; }

# within SECONDS COMMAND...: runs COMMAND with $seconds set to its time limit: SECONDS or the remaining time, whichever is
# less; with --only the remaining time.
within() {
    local left=$((limit - SECONDS - 5))
    seconds=$(($1 < left ? $1 : left))
    [[ -z $only ]] || seconds=$left
    shift
    ((seconds > 20)) || { say "not enough time left for $*"; return 1; }
    "$@"
}

# measure NAME SECONDS: if NAME is selected, calls its function (with _ for -) and reports the time.
measure() {
    local name=$1 start=$SECONDS status=0
    [[ -z $only || ,$only, == *,"$name",* ]] || return 0
    within "$2" "${name//-/_}" || status=$?
    echo "{\"part\": \"$name\", \"seconds\": $((SECONDS - start)), \"exit_status\": $status}" | add
}

# Prints the results of part $1 from the comparison in file $2 as JSON lines.
comparison_lines() {
    python3 - "$@" <<'PYTHON'
import json, os, statistics, sys

if not os.path.exists(sys.argv[2]):
    sys.exit()
record = json.load(open(sys.argv[2]))
unit = "images_per_second" if "images_per_second" in record else "tokens_per_second"
for case, sides in record[unit].items():
    for side, speeds in sides.items():
        if speeds:
            line = {"part": sys.argv[1], "case": case, "side": side, unit: round(statistics.median(speeds), 1)}
            line |= {"lowest": round(min(speeds), 1), "highest": round(max(speeds), 1), "rounds": len(speeds)}
            if side != "ringmark":
                line["ringmark_over_it"] = round(statistics.median(a / b for a, b in zip(sides["ringmark"], speeds)), 3)
            print(json.dumps(line))
for name, reason in record.get("failures", {}).items():
    print(json.dumps({"part": sys.argv[1], "left_out": name, "reason": reason.strip().splitlines()[-1][-300:]}))
PYTHON
}

# compare NAME OPTIONS...: runs compare_pytorch.py; its figures are in NAME.json.
compare() {
    local name=$1 status=0
    shift
    timeout -k 5 "$seconds" python3 "$root/scripts/dev/compare_pytorch.py" --device cuda --layout nhwc --worker "$worker" \
        --limit $((seconds - 15)) --out "$out/$name.json" "$@" >"$work/logs/$name.log" 2>&1 || status=$?
    comparison_lines "$name" "$out/$name.json" | add
    return $status
}
training() { compare training --cases fp16:256,fp16:128,bf16:256,bf16:128,tf32:128 --rounds 2 --iters 60 --warmup 15 --parallel 6; }
inference() { compare inference --score --cases fp16:1,fp16:32,fp16:128 --rounds 2 --iters 100 --warmup 20 --parallel 6; }
language_models() {
    compare language-models --models gpt2-124m --sequence-length 1024 --cases bf16:16,fp32:8 --rounds 2 --iters 30 --warmup 10 \
        --parallel 4
}
max_autotune() {
    local status=0 compiled=(--no-eager --no-compile --max-autotune --rounds 2 --iters 60 --warmup 15)
    local end=$((SECONDS + seconds))
    seconds=$((seconds * 3 / 4))
    compare max-autotune "${compiled[@]}" --cases fp16:128,bf16:128,fp16:256,bf16:256,tf32:128 || status=$?
    seconds=$((end - SECONDS))
    if ((seconds > 40)); then compare max-autotune-inference "${compiled[@]}" --score --cases fp16:1,fp16:32,fp16:128 || status=$?; fi
    return $status
}

layers() {
    local dtype status=0
    for dtype in fp16 bf16; do
        timeout -k 5 $((seconds / 2)) "$worker" train --device cuda --dtype "$dtype" --batch-size 128 --iters 20 --warmup 10 \
            --profile-layers --record "$work/layers.jsonl" >"$work/logs/layers_$dtype.log" 2>&1 || { status=$?; continue; }
        # The complete table goes to a file, the times by kind of layer to one JSON line.
        { echo "# $dtype, batch size 128"; grep '^# ' "$work/logs/layers_$dtype.log"; } >>"$out/layers.txt"
        python3 - "$dtype" "$work/layers.jsonl" <<'PYTHON' | add
import json, sys

lines = [json.loads(line) for line in open(sys.argv[2])]
profile = next((line["layers"] for line in lines if line.get("layers")), None)
kinds = {}
for row in profile["layers"] if profile else []:
    sums = kinds.setdefault(row["kind"], [0.0, 0.0])
    for index, direction in enumerate(["forward", "backward"]):
        sums[index] += 1000 * (row.get(direction) or {"time": 0.0})["time"]
kinds = {kind: [round(ms, 3) for ms in times] for kind, times in kinds.items()}
config = lines[0]["config"]
print(json.dumps({"part": "layers", "dtype": sys.argv[1], "kernels": config.get("kernels"), "forward_backward_ms": kinds}))
PYTHON
    done
    return $status
}

test_worker() {
    local status=0
    timeout -k 10 "$seconds" "$root/scripts/dev/test_gpu.sh" --quick --worker "$worker" ${mpi:+--mpi "$mpi"} \
        --limit $((seconds - 15)) --keep "$work/test" >"$out/test_gpu.txt" 2>&1 || status=$?
    mkdir "$work/logs/test"
    cp "$work"/test/*.log "$work/logs/test" || true
    python3 - "$out/test_gpu.txt" <<'PYTHON' | add
import json, sys

for line in open(sys.argv[1]):
    result, _, text = line.rstrip().partition(" ")
    if result in ["ok", "FAILED", "skipped"]:
        print(json.dumps({"part": "test", "result": result, "text": text.strip()}))
PYTHON
    return $status
}

# Prints a summary of all results.
table() {
    python3 - "$out/results.jsonl" <<'PYTHON'
import json, sys

lines = [json.loads(line) for line in open(sys.argv[1])]
print(f"\n{'':24}{'case':26}{'side':20}{'images/s or tokens/s':>22}{'ringmark / side':>18}")
for line in lines:
    if speed := line.get("images_per_second", line.get("tokens_per_second")):
        ratio = line.get("ringmark_over_it", "")
        print(f"{line['part']:24}{line['case']:26}{line['side']:20}{speed:22.0f}{ratio:>18}")
    elif "left_out" in line:
        print(f"{line['part']:24}skipped: {line['left_out']}: {line['reason'][:100]}")
tests = [line for line in lines if line["part"] == "test" and "result" in line]
for result in ["ok", "FAILED", "skipped"]:
    texts = [line["text"] for line in tests if line["result"] == result]
    if texts:
        print(f"test_gpu.sh: {len(texts)} {result}" + ("" if result == "ok" else ": " + "; ".join(text[:200] for text in texts)))
for line in lines:
    if "exit_status" in line:
        print(f"{line['part']}: {line['seconds']} s, exit status {line['exit_status']}")
PYTHON
}

has_nvidia_driver || fail "this machine has no NVIDIA driver (neither /dev/nvidiactl nor nvidia-smi)"
# Without a home folder, every run would recompile the kernels.
[[ -n ${HOME:-} ]] || export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$work/cache}

if [[ $visit == 1 ]]; then
    kernels() {
        timeout -k 10 "$seconds" python3 "$root/scripts/dev/gpu_kernels.py" --limit $((seconds - 30)) ${only:+--parts "$only"} \
            --out "$out/results.jsonl" 2>"$work/logs/kernels.log"
    }
    status=0
    within "$limit" kernels || status=$?
    echo "{\"part\": \"kernels\", \"seconds\": $SECONDS, \"exit_status\": $status}" | add
    exit $status
fi

find_worker "$given" "$root"
[[ -n $worker ]] || fail "ringmark-worker not found: use --worker FILE, or run cargo build --release"
use_mpi "$mpi"
use_libtorch
! worker_lacks . || fail "the worker lacks libraries: $(ldd "$worker" 2>&1 | grep 'not found' | xargs)"
card=$(nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader 2>/dev/null | head -n 1 || true)
echo "{\"part\": \"machine\", \"card\": \"${card:-unknown}\", \"cores\": $(nproc)}" | add
measure training 280
measure inference 120
measure layers 30
measure language-models 120
measure test_worker 150
measure max-autotune 540
table
