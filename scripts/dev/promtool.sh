#!/usr/bin/env bash
# Installs promtool for the tests of the export to Prometheus (tests/read/export.rs): Debian's package prometheus, a 19 MB
# download. Needs root and starts no server. Does nothing if promtool is installed.
#
#   scripts/dev/promtool.sh
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

missing_packages() { command -v promtool >/dev/null || echo prometheus; }

case ${1:-} in
    -h | --help) usage 0 ;;
    '') ;;
    *) usage 2 >&2 ;;
esac
[[ -z $(missing_packages) ]] || ((EUID == 0)) ||
    fail "there is no promtool. As root: apt-get install --no-install-recommends prometheus"
install_packages missing_packages prometheus
