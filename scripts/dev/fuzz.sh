#!/usr/bin/env bash
# Fuzzes every reader with libFuzzer (coverage-guided, on stable Rust). Seeds are the committed results and
# tests/fuzz/seeds.
#
#   scripts/dev/fuzz.sh [SECONDS_PER_TARGET [TARGET...]]     default: 120 seconds, all targets of tests/fuzz/targets.rs
#
# The fuzzer is a separate package in tests/fuzz. The corpus in target/fuzz/corpus is kept and extended by the next call.
# A target ends at the first input that panics, takes longer than 10 s or needs more than 2 GB; the input is saved in
# target/fuzz/found. After fixing the bug, move it to tests/fuzz/seeds/TARGET, which a regular test replays.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/dev/common.sh
source scripts/dev/common.sh

[[ ${1:-} != -* ]] || usage 0
seconds=${1:-120}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] || fail "SECONDS_PER_TARGET $seconds is not a number" 2
if (($#)); then targets=("$@"); else mapfile -t targets < <(sed -n 's/^    ("\([a-z_]*\)", [a-z_]*),$/\1/p' tests/fuzz/targets.rs); fi

compiler() { command -v c++ >/dev/null || echo g++; }
install_packages compiler

# The flags of `cargo fuzz run --sanitizer none`: edge counters and comparison operands.
flags=(--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1)
for option in level=4 inline-8bit-counters pc-table trace-compares; do
    flags+=("-Cllvm-args=-sanitizer-coverage-$option")
done
machine=$(rustc -vV | sed -n 's/^host: //p')
work=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/fuzz
# With an explicit target triple, build scripts and macros are not instrumented.
RUSTFLAGS="${flags[*]}" cargo build --release --manifest-path tests/fuzz/Cargo.toml --target "$machine" --target-dir "$work"
fuzzer=$work/$machine/release/fuzz

seeds() {
    case $1 in
        log) find results tests/golden -name '*.log' ;;
        record) find results tests/golden -name '*.jsonl' ;;
        result) find results tests/golden -name '*result.json' ;;
        manifest) find results tests/golden -name sweep.json ;;
        bandwidth) find results tests/golden -name bandwidth.json ;;
        input) find results tests/golden -name input.json ;;
        image) find tests/golden/pixels -name '*.jpg' -o -name 'png_*.png' ;;
    esac
    find "tests/fuzz/seeds/$1" -type f
}

# Keywords of the file formats, which byte mutations would not find.
dictionary=$work/dictionary
grep -rhoE '"[A-Za-z_]+"' src/core src/read tests/fuzz/seeds | sort -u >"$dictionary"

status=0
summary=()
for target in "${targets[@]}"; do
    corpus=$work/corpus/$target found=$work/found/$target log=$work/$target.log
    mkdir -p "$corpus" "$found"
    while read -r file; do cp "$file" "$corpus/seed-$(cksum <"$file" | tr ' ' -)"; done < <(seeds "$target")
    say "$target for $seconds s"
    verdict=passed
    RINGMARK_FUZZ_TARGET=$target "$fuzzer" "$corpus" -max_total_time="$seconds" -max_len=30000 -timeout=10 -rss_limit_mb=2048 \
        -dict="$dictionary" -artifact_prefix="$found/" -print_final_stats=1 -verbosity=1 >"$log" 2>&1 || {
        status=1
        verdict="FAILED, see $log and $found"
    }
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    memory=$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")
    coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    summary+=("$(printf '%-12s %10s inputs %6s edges %5s MB  %s' "$target" "${count:-?}" "${coverage:-?}" "${memory:-?}" "$verdict")")
done
printf '%s\n' "${summary[@]}"
exit "$status"
