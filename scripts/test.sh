#!/usr/bin/env bash
# Runs set-up and then all tests. Arguments are passed to `cargo test`.
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
# More threads than cores, because many tests wait without using a core: for free cores to run the real worker, or for a
# timeout.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 6))}
# Ranks of several tests share the cores, so a rank that waits in MPI must yield.
export OMPI_MCA_mpi_yield_when_idle=${OMPI_MCA_mpi_yield_when_idle:-1}

# `cargo test` does not build the worker for the integration tests, which reject a worker older than its sources.
profile=()
for option; do
    if [[ $option == -- ]]; then break; fi
    if [[ $option == --release || $option == -r ]]; then profile=(--release); fi
done
cargo build --workspace --bins --tests "${profile[@]}"

# --no-fail-fast: a failing test program must not prevent the next ones from running.
status=0
cargo test --workspace --no-fail-fast "$@" | tee "$log" || status=$?

# Uses the worker that was built for the tests.
"$root/scripts/dev/load_check.sh" --if-installed || status=1

# cargo prints one summary per test program, and the last is often empty; print their sum.
awk '/^test result: / { programs++; passed += $4; failed += $6; skipped += $8 }
     END { if (programs) printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped }' "$log"
# With RINGMARK_TEST_ALL, only load_check.sh may be omitted here: it needs 3 GB of CUDA libraries.
# tests/support/prerequisite.rs lists what tests may omit.
not_run() {
    echo "counted as passed but not run: $1" >&2
    [[ -z ${RINGMARK_TEST_ALL:-} ]] || status=1
}
((EUID == 0)) || not_run 'tests of several hosts, Slurm and Grid Engine, which need root (scripts/dev/test_cluster.sh)'
"$root/scripts/dev/browser.sh" 2>/dev/null || not_run 'browser tests of the report (scripts/dev/browser.sh)'
"$root/scripts/dev/promtool.sh" 2>/dev/null || not_run 'promtool checks of exports (scripts/dev/promtool.sh)'
exit "$status"
