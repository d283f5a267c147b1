#!/usr/bin/env bash
# Four simulated hosts on this machine (scripts/dev/cluster.sh): a sweep on them, then every known fault, each with the time until
# it is reported, and the message. A part of scripts/test.sh, which skips it for other users than root.
#
#   scripts/dev/test_cluster.sh [NAME...]     tests whose names contain one of these; default: cluster:: doctor::
#                                         virtual_cuda::hosts:: slurm:: gridengine::
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if ((EUID != 0)); then
    echo 'test_cluster: network namespaces need root. With cargo and a target folder apart from your own:
    sudo env "PATH=$PATH" "HOME=$HOME" CARGO_TARGET_DIR=/tmp/ringmark-root scripts/dev/test_cluster.sh' >&2
    exit 2
fi
"$root/scripts/setup.sh"
cd "$root"
if (($# == 0)); then set -- cluster:: doctor:: virtual_cuda::hosts:: slurm:: gridengine::; fi
cargo build --workspace --bins --tests
exec cargo test --workspace --test ringmark -- --nocapture --test-threads 1 "$@"
