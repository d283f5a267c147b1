#!/usr/bin/env bash
# Renders README's picture, docs/images/report.png: the headline and two charts of the report of results/cpu-2-cores.
# Needs Chromium (scripts/dev/browser.sh) and ringmark in PATH.
#
#   scripts/dev/picture.sh
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

case ${1:-} in
    -h | --help) usage 0 ;;
    '') ;;
    *) usage 2 >&2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
page=$(mktemp --suffix=.html)
trap 'rm -f "$page"' EXIT
hidden='header, nav, details, #section-1 > h2, #section-1 > p, #section-1 > article:nth-of-type(n+4), #section-1-1 { display: none }'
hidden+=' #section-1 { border: 0; margin: 0; padding: 0 } [id^=section-1-] .charts > :nth-child(n+2) { display: none }'
ringmark report results/cpu-2-cores --format html | sed "s|</head>|<style>$hidden</style></head>|" >"$page"
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1150,720 \
    --screenshot="$PWD/docs/images/report.png" "file://$page"
