#!/usr/bin/env bash
# Sets up, builds, runs a sweep and extracts its result, with DLPerf's command line.
#
#   scripts/run_test.sh [BATCH=128] [fp32|tf32|fp16|bf16] [options of `ringmark sweep`]
#   scripts/run_test.sh --quick
#
# After the first run, target/release/ringmark sweep --help lists the options.
# Uses DLPerf's profile (5 runs of 120 iterations) on any device, unless an option selects another.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

arguments=()
if [[ ${1:---} != -* ]]; then arguments+=(--batch-size "$1"); shift; fi
if [[ ${1:---} != -* ]]; then arguments+=(--dtype "$1"); shift; fi
arguments+=("$@")

# `ringmark extract` below needs the result folder, so choose one unless the options contain it.
out=
extract=yes
profile=(--profile dlperf)
for index in "${!arguments[@]}"; do
    case ${arguments[index]} in
        --out) out=${arguments[index + 1]:-} ;;
        --out=*) out=${arguments[index]#--out=} ;;
        --dry-run) extract=no ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
        --quick | --profile | --profile=*) profile=() ;;
    esac
done
if [[ -z $out ]]; then
    out=results/$(date -u +%Y%m%dT%H%M%SZ)
    arguments+=(--out "$out")
fi
arguments+=(${profile[@]+"${profile[@]}"})

"$root/scripts/setup.sh" --packages
# cargo finds libtorch through .cargo/config.toml only if it runs in the repository.
build() {
    (cd "$root" && CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH=80 cargo build --release "$@")
}
# Shows cargo's progress in one line of a terminal, or otherwise as one line per 100 crates. Prints cargo's other output if
# $1 is 1.
progress() {
    local line hundreds=0
    # cargo ends the lines that it overwrites with a carriage return.
    stdbuf -oL tr '\r' '\n' | while IFS= read -r line; do
        if [[ $line =~ \]\ ([0-9]+)/([0-9]+) ]]; then
            line="building: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} crates"
            if [[ -t 1 ]]; then
                printf '\r\e[K%s' "$line"
            elif ((BASH_REMATCH[1] / 100 > hundreds)); then
                hundreds=$((BASH_REMATCH[1] / 100))
                echo "$line"
            fi
        elif [[ $1 == 1 && ! $line =~ ^\ +(Locking|Adding|Updating|Download|Compiling|Finished) ]]; then
            echo "$line"
        fi
    done
    if [[ -t 1 ]]; then printf '\r\e[K'; fi
}
echo "building ringmark and downloading libtorch: 5 to 10 minutes on 2 cores" >&2
"$root/scripts/setup.sh" & libtorch=$!
# Compiles the crates that do not need libtorch while it is downloaded. The second build reports any errors.
build --keep-going 2>&1 | progress 0 >&2 || true
wait "$libtorch"
build 2>&1 | progress 1 >&2
"$root/target/release/ringmark" sweep "${arguments[@]}"
# The sweep has already printed the table; extract only writes the files.
if [[ $extract == yes ]]; then
    "$root/target/release/ringmark" extract "$out" >/dev/null
fi
