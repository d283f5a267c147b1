# For the scripts that make hosts, images and packages or install what tests need, which source it: how they speak and fail, and Debian packages
# installed by root, without the services that come with them.
# shellcheck shell=bash

# Root's PATH lacks it after a plain `su`.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "$(basename "$0" .sh): $*" >&2; }
fail() {
    say "$1"
    exit "${2:-1}"
}
# The head of the script itself, from whatever folder.
this_script=$(realpath "$0")
usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$this_script"
    exit "$1"
}

# How this machine reaches package servers (certificates, proxies, mirrors), to be lent to a build or a check in another
# root: lines FILE:PLACE. What must be put together first goes into folder $1.
lent_settings() {
    local cargo=${CARGO_HOME:-$HOME/.cargo}/config.toml
    find /etc/apt/apt.conf.d -type f -exec grep -hs '^Acquire::' {} + >"$1/apt.conf" || true
    [[ ! -s $1/apt.conf ]] || echo "$1/apt.conf:/etc/apt/apt.conf"
    [[ ! -f /etc/pip.conf ]] || echo /etc/pip.conf:/etc/pip.conf
    [[ ! -f $cargo ]] || echo "$cargo:/usr/local/cargo/config.toml"
    [[ ! -f /etc/ssl/certs/ca-certificates.crt ]] ||
        echo /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt
}

# Installs what the function $1 prints, Debian's names of what is missing. Services $2... that come with it are started
# neither now nor at boot; one that is there already stays as it is.
install_packages() {
    local list=$1 missing command log service policy=/usr/sbin/policy-rc.d worked=yes new_services=()
    shift
    missing=$("$list" | xargs)
    [[ -n $missing ]] || return 0
    command="apt-get install -y --no-install-recommends $missing"
    command -v apt-get >/dev/null ||
        fail "these are missing, here by Debian's names; install what your system calls them: $missing"
    say "installing $missing"
    for service in "$@"; do
        systemctl is-enabled --quiet "$service" 2>/dev/null || new_services+=("$service")
    done
    log=$(mktemp)
    (
        # Debian starts a service that it installs, now and at every boot. This machine gets none from us.
        if [[ ! -e $policy ]]; then
            trap 'rm -f "$policy"' EXIT
            install -m 755 <(printf '#!/bin/sh\nexit 101\n') "$policy"
        fi
        # A system that updates itself holds dpkg's lock for minutes.
        # shellcheck disable=SC2086 # split into arguments
        apt-get update && DEBIAN_FRONTEND=noninteractive $command -o DPkg::Lock::Timeout=600 || exit 1
        for service in "${new_services[@]}"; do systemctl disable "$service" || true; done
    ) </dev/null >"$log" 2>&1 || worked=no
    if [[ $worked == no ]]; then tail -n 20 "$log" >&2; fi
    rm "$log"
    [[ $worked == yes ]] || fail "that did not work. As root: apt-get update && $command"
    hash -r
    missing=$("$list" | xargs)
    [[ -z $missing ]] || fail "still missing after their installation: $missing"
}
