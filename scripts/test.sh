#!/usr/bin/env bash
# Sets up, then runs every test; arguments go to `cargo test`:
#
#   scripts/test.sh [options of `cargo test`]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
"$root/scripts/setup.sh"
if ((EUID == 0)); then
    "$root/scripts/dev/browser.sh"
    "$root/scripts/dev/promtool.sh"
fi
cd "$root"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Many tests wait, for cores to run the real worker or for a timeout, and need no core meanwhile.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 6))}
# Their ranks share the cores with those of other tests: they sleep while MPI waits.
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}

# The worker is not part of the integration tests' package: they refuse one that is older than its sources.
profile=()
for option; do
    if [[ $option == -- ]]; then break; fi
    if [[ $option == --release || $option == -r ]]; then profile=(--release); fi
done
cargo build --workspace --bins --tests "${profile[@]}"

# A failing test program must not hide the results of the next one.
status=0
cargo test --workspace --no-fail-fast "$@" | tee "$log" || status=$?

# It uses the worker that the tests built.
"$root/scripts/dev/load_check.sh" --if-installed || status=1

# cargo ends with one line per test program, the last often empty: adds them up.
awk '/^test result: / { programs++; passed += $4; failed += $6; skipped += $8 }
     END { if (programs) printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
# Only load_check.sh may be left out in continuous integration: it needs 3 GB of CUDA libraries. tests/support/prerequisite.rs
# decides the same inside of a test.
not_run() {
    echo "counted as passed, but not run: $1" >&2
    [[ -z ${CI:-} ]] || status=1
}
((EUID == 0)) || not_run 'several hosts, Slurm and Grid Engine, which root alone may make (scripts/dev/test_cluster.sh)'
"$root/scripts/dev/browser.sh" 2>/dev/null || not_run 'the report in a browser (scripts/dev/browser.sh)'
"$root/scripts/dev/promtool.sh" 2>/dev/null || not_run 'exports by promtool (scripts/dev/promtool.sh)'
exit "$status"
