#!/usr/bin/env bash
# Tests on simulated hosts of this machine (scripts/dev/cluster.sh): a sweep on four hosts, and every known fault, with the
# message and the time until it is reported. scripts/test.sh includes these tests if it runs as root.
#
#   scripts/dev/test_cluster.sh [NAME...]   runs tests whose names contain one of these strings; default: cluster::
#                                           doctor:: virtual_cuda::hosts:: slurm:: gridengine::
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ((EUID != 0)); then
    echo 'test_cluster: network namespaces need root. Keep your cargo and use a separate target folder:
    sudo env "PATH=$PATH" "HOME=$HOME" CARGO_TARGET_DIR=/tmp/ringmark-root scripts/dev/test_cluster.sh' >&2
    exit 2
fi
"$root/scripts/setup.sh"
cd "$root"
if (($# == 0)); then set -- cluster:: doctor:: virtual_cuda::hosts:: slurm:: gridengine::; fi
cargo build --workspace --bins --tests
exec cargo test --workspace --test ringmark -- --nocapture --test-threads 1 "$@"
