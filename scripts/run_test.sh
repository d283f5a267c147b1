#!/usr/bin/env bash
# DLPerf's command line: sets up, builds, runs the sweep and extracts its result.
#
#   scripts/run_test.sh [BATCH=128] [fp32|tf32|fp16|bf16] [options of `ringmark sweep`]
#   scripts/run_test.sh --quick
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

words=()
if [[ ${1:---} != -* ]]; then words+=(--batch-size "$1"); shift; fi
if [[ ${1:---} != -* ]]; then words+=(--dtype "$1"); shift; fi
words+=("$@")

# The extract below must know the folder, so one is named here unless the options do.
out=
extract=yes
for index in "${!words[@]}"; do
    case ${words[index]} in
        --out) out=${words[index + 1]:-} ;;
        --out=*) out=${words[index]#--out=} ;;
        --dry-run | --help | -h) extract=no ;;
    esac
done
if [[ -z $out ]]; then
    out=results/$(date -u +%Y%m%dT%H%M%SZ)
    words+=(--out "$out")
fi

"$root/scripts/setup.sh"
# In the repository, where cargo finds libtorch by .cargo/config.toml.
(cd "$root" && cargo build --release)
"$root/target/release/ringmark" sweep "${words[@]}"
if [[ $extract == yes ]]; then
    "$root/target/release/ringmark" extract "$out"
fi
