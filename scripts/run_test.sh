#!/usr/bin/env bash
# DLPerf's command line: sets up, builds, runs the sweep and extracts its result.
#
#   scripts/run_test.sh [BATCH=128] [fp32|tf32|fp16|bf16] [options of `ringmark sweep`]
#   scripts/run_test.sh --quick
#
# DLPerf's profile on any device, 5 runs of 120 iterations, unless an option chooses another.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

arguments=()
if [[ ${1:---} != -* ]]; then arguments+=(--batch-size "$1"); shift; fi
if [[ ${1:---} != -* ]]; then arguments+=(--dtype "$1"); shift; fi
arguments+=("$@")

# The extract below must know the folder, so one is named here unless the options do.
out=
extract=yes
profile=(--profile dlperf)
for index in "${!arguments[@]}"; do
    case ${arguments[index]} in
        --out) out=${arguments[index + 1]:-} ;;
        --out=*) out=${arguments[index]#--out=} ;;
        --dry-run | --help | -h) extract=no ;;
        --quick | --profile | --profile=*) profile=() ;;
    esac
done
if [[ -z $out ]]; then
    out=results/$(date -u +%Y%m%dT%H%M%SZ)
    arguments+=(--out "$out")
fi
arguments+=(${profile[@]+"${profile[@]}"})

"$root/scripts/setup.sh" --packages
# In the repository, where cargo finds libtorch by .cargo/config.toml. While libtorch is loaded, cargo compiles what does
# without; of that build only the progress is shown, for what it could not compile the next one does.
build() { (cd "$root" && cargo build --release "$@"); }
"$root/scripts/setup.sh" & libtorch=$!
build --keep-going 2> >(grep --line-buffered -E '^ +(Updating|Downloading|Downloaded|Compiling) ' >&2) || true
wait "$libtorch"
build
"$root/target/release/ringmark" sweep "${arguments[@]}"
if [[ $extract == yes ]]; then
    "$root/target/release/ringmark" extract "$out"
fi
