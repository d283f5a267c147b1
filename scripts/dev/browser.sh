#!/usr/bin/env bash
# Installs Debian's Chromium for the report tests (tests/read/report_page.rs), which run it without a display. Needs root. Does
# nothing if Chromium or Chrome is already installed.
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
    # Without a font, Chromium renders no text.
    echo chromium fonts-dejavu-core
}

case ${1:-} in
    -h | --help) usage 0 ;;
    '') ;;
    *) usage 2 >&2 ;;
esac
[[ -z $(missing_packages) ]] || ((EUID == 0)) ||
    fail "Chromium not found. Run as root: apt-get install --no-install-recommends $(missing_packages)"
install_packages missing_packages
