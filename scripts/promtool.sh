#!/usr/bin/env bash
# promtool for the tests of the export to Prometheus (tests/read/export.rs): of Debian's package prometheus, 19 MB to load. Installs it
# where none is there, as root alone, and starts no server; says nothing where one is.
#
#   scripts/promtool.sh
set -euo pipefail

# shellcheck source=scripts/common.sh
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
