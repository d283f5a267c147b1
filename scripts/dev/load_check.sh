#!/usr/bin/env bash
# Checks the worker's use of CUDA without a GPU, with the complete CUDA 13.0 build of libtorch and a stub of the driver
# (tests/programs/stub_driver.c): the libraries load as the worker loads them, the worker reports an unusable driver, and
# its kernels compile for every GPU.
#
#   scripts/dev/load_check.sh [--worker FILE] [--if-installed]
#
#   --if-installed               prints a message and exits with 0 if the CUDA build of libtorch is not installed
#   RINGMARK_CUDA_TORCH=FOLDER   `torch` folder of that build. Default: .libtorch if it contains the CUDA build, otherwise
#                                .libtorch/cuda-check, where the script installs it (3 GB download, 5 GB on disk; remove it
#                                with rm -r)
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Expected result of the worker for each driver: name | variables of the stub | --device | exit status | message, an
# extended regular expression for one line of standard error.
readonly CASES='
eight GPUs that the runtime rejects|STUB_CAPABILITIES=90,90,90,90,90,90,90,90|auto|1|^error: .*8 GPUs .*libtorch finds 0
one GPU that the runtime rejects|STUB_CAPABILITIES=90|cuda|1|^error: .*1 GPU .*libtorch finds 0
old driver|STUB_VERSION=12040|auto|1|driver for CUDA 12\.4.*built for CUDA 13\.0.*580.*cu126
old driver, CUDA requested|STUB_VERSION=12040|cuda|1|driver for CUDA 12\.4.*built for CUDA 13\.0.*580.*cu126
failing driver|STUB_INIT=999|auto|1|cuInit failed with CUDA_ERROR_UNKNOWN \(999\)
failing driver, CUDA requested|STUB_INIT=999|cuda|1|999
V100|STUB_CAPABILITIES=70|auto|1|capability 7\.0.*no kernels.*cu126
H100 and V100|STUB_CAPABILITIES=90,70|auto|1|capability 7\.0.*no kernels.*cu126
no GPU|STUB_INIT=100|auto|0|^$
no GPU, CUDA requested|STUB_INIT=100|cuda|1|no GPU|100
'
# Expected lines of tests/programs/load_check.cpp.
readonly FOUND='
^libtorch_cuda: .*/libtorch_cuda\.so$
^libnccl\.so\.2: .*/nvidia/nccl/lib/libnccl\.so\.2$
^ncclGetVersion: result 0, version 2[0-9]+$
^device guard: CUDA error: named symbol not found$
^device allocator: Invalid device argument
^NVRTC alone: NVRTC_ERROR_BUILTIN_OPERATION_FAILURE$
^NVRTC after its built-in functions: NVRTC_SUCCESS$
'
# Files that the worker must open by absolute path.
readonly OPENED='/nvidia/cu13/lib/libnvrtc.so.13 /nvidia/cu13/lib/libnvrtc-builtins.so.13.0'

worker=${RINGMARK_WORKER:-} only_installed=no
while (($#)); do
    case $1 in
        --worker) worker=${2:?--worker needs a file}; shift 2 ;;
        --if-installed) only_installed=yes; shift ;;
        --help | -h) usage 0 ;;
        *) fail "unknown option $1. Options: --worker FILE, --if-installed" 2 ;;
    esac
done
# The newer of cargo's two builds is the default.
newest=
for built in "$root/target/release/ringmark-worker" "$root/target/debug/ringmark-worker"; do
    if [[ -x $built && (-z $newest || $built -nt $newest) ]]; then newest=$built; fi
done
worker=${worker:-$newest}

# --- CUDA build of libtorch ---

is_complete() {
    local nvidia=$1/../nvidia
    [[ -e $1/lib/libtorch_cuda.so && -e $nvidia/cu13/lib/libcudart.so.13 && -e $nvidia/cudnn/lib/libcudnn.so.9 ]]
}

readonly CHECK=$root/.libtorch/cuda-check
torch=
for folder in "${RINGMARK_CUDA_TORCH:-}" "$root/.libtorch/torch" "$CHECK/torch"; do
    if [[ -z $torch && -n $folder ]] && is_complete "$folder/."; then torch=$(realpath "$folder"); fi
done
if [[ -z $torch ]]; then
    [[ -z ${RINGMARK_CUDA_TORCH:-} ]] ||
        fail "RINGMARK_CUDA_TORCH=$RINGMARK_CUDA_TORCH is not a libtorch with all CUDA 13.0 libraries"
    if [[ $only_installed == yes ]]; then
        say "not run: the CUDA libraries are not installed; scripts/dev/load_check.sh downloads them (3 GB)"
        exit 0
    fi
    free=$(df --output=avail --block-size=1G "$root" | tail -n 1 | tr -d ' ')
    ((free >= 10)) || fail "$root has $free GB free, but installing the CUDA libraries needs 10 GB"
    mkdir -p "$CHECK"
    env -u LIBTORCH -u RINGMARK_TORCH_INDEX RINGMARK_TORCH=cu130 "$root/scripts/setup.sh" --libtorch "$CHECK"
    torch=$(realpath "$CHECK/torch")
    is_complete "$torch" || fail "$torch lacks CUDA libraries: remove $CHECK, or set RINGMARK_CUDA_TORCH"
fi
[[ -x $worker ]] || fail "ringmark-worker not found: run cargo build, or use --worker FILE"

# --- stub and probe ---

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$scratch/libcuda.so.1" "$root/tests/programs/stub_driver.c" -ldl
say "compiling the probe against $torch"
c++ -std=c++17 -O0 -w -I"$torch/include" -I"$torch/include/torch/csrc/api/include" -o "$scratch/probe" \
    "$root/tests/programs/load_check.cpp" -L"$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,-rpath-link,"$torch/../nvidia/cu13/lib" \
    -ltorch_cpu -lc10 -ldl

differing=0
ok() { echo "ok       $1"; }
differs() {
    differing=$((differing + 1))
    echo "DIFFERS  $1"
    sed 's/^/         | /' "$2" | cut -c -240 | tail -n 12
}

# --- libraries ---

mapfile -t functions < <(grep -oP 'c"\Knccl[A-Za-z]*(?=")' "$root/src/worker/ffi/nccl/communicator.rs" | sort -u)
LD_LIBRARY_PATH=$scratch "$scratch/probe" "$torch/lib" "${functions[@]}" >"$scratch/found" 2>&1 || true
while read -r pattern; do
    if line=$(grep -E -m 1 "$pattern" "$scratch/found"); then ok "$line"; else differs "no line matches $pattern" "$scratch/found"; fi
done < <(grep . <<<"$FOUND")
if grep -q '^NCCL lacks' "$scratch/found"; then differs "NCCL lacks functions" "$scratch/found"; else ok "NCCL has ${functions[*]}"; fi

# --- worker ---

# train STUB_VARIABLE DEVICE [VARIABLE...]: trains for one iteration with these environment variables.
train() {
    env LD_LIBRARY_PATH="$scratch:$torch/lib" "$1" "${@:3}" timeout 120 "$worker" train --device "$2" --batch-size 2 \
        --image-size 32 --iters 1 --warmup 0 --record "$scratch/record.jsonl" >"$scratch/output" 2>"$scratch/stderr"
}
while IFS='|' read -r name variable device expected pattern; do
    status=0
    train "$variable" "$device" || status=$?
    if [[ $status == "$expected" ]] && { [[ $pattern == '^$' && ! -s $scratch/stderr ]] || grep -qE "$pattern" "$scratch/stderr"; }; then
        ok "$name, --device $device: exit status $status, $(grep -E -m 1 "$pattern" "$scratch/stderr" || echo 'no message')"
    else
        differs "$name, --device $device: exit status $status, expected $expected and a message matching '$pattern'" "$scratch/stderr"
    fi
done < <(grep . <<<"$CASES")

train STUB_CAPABILITIES=90 auto LD_DEBUG=files LD_DEBUG_OUTPUT="$scratch/files" || true
cat "$scratch"/files.* >"$scratch/opened"
for library in $OPENED; do
    if grep -qE "calling init: /.*$library\$" "$scratch/opened"; then
        ok "the worker opens $library"
    else
        differs "the worker does not open $library" /dev/null
    fi
done

# --- kernels ---

if python3 "$root/scripts/dev/check_kernels.py" --libraries "$torch/../nvidia/cu13/lib" >"$scratch/kernels" 2>&1; then
    ok "kernels: $(head -n 1 "$scratch/kernels"): $(tail -n 1 "$scratch/kernels")"
else
    grep -v '^ok' "$scratch/kernels" >"$scratch/differing" || true
    differs "kernels" "$scratch/differing"
fi

say "$differing differ"
((differing == 0))
