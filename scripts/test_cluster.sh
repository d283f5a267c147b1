#!/usr/bin/env bash
# Four hosts on this machine (scripts/cluster.sh): the main job on them, then every fault we know of, each with the time
# until somebody says so and the words. A part of scripts/test.sh, which leaves it out where it is not run by root.
#
#   scripts/test_cluster.sh [NAME]     tests whose name holds NAME, all of them by default
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if ((EUID != 0)); then
    echo "test_cluster: network namespaces need root: sudo scripts/test_cluster.sh" >&2
    exit 2
fi
"$root/scripts/setup.sh"
cd "$root"
exec cargo test --workspace --test ringmark "cluster::${1:-}" -- --nocapture --test-threads 1
