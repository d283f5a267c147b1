#!/usr/bin/env bash
# Installs promtool for the tests of the Prometheus export (tests/read/export.rs), from Debian's package prometheus (19 MB
# download). Does not start the server. Needs root. Does nothing if promtool is already installed.
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
    fail "promtool not found. Run as root: apt-get install --no-install-recommends prometheus"
install_packages missing_packages prometheus
