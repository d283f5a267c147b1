#!/usr/bin/env bash
# Installs Debian's Chromium, which needs no display, for the tests of the report (tests/read/report.rs). Needs root. Does
# nothing if Chromium or Chrome is installed.
#
#   scripts/dev/browser.sh
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

missing_packages() {
    local browser
    for browser in chromium chromium-browser google-chrome; do
        if command -v "$browser" >/dev/null; then return; fi
    done
    # Text needs a font.
    echo chromium fonts-dejavu-core
}

case ${1:-} in
    -h | --help) usage 0 ;;
    '') ;;
    *) usage 2 >&2 ;;
esac
[[ -z $(missing_packages) ]] || ((EUID == 0)) ||
    fail "there is no Chromium. As root: apt-get install --no-install-recommends $(missing_packages)"
install_packages missing_packages
