# Common part of slurm_cluster.sh and gridengine_cluster.sh, which run a scheduler on the hosts of scripts/dev/cluster.sh.
# The sourcing script sets SCHEDULER (name) and SERVICES (services of its packages), defines the functions below, and ends
# with `main "$@"`.
#
#   missing_packages         prints the Debian packages that are missing
#   start_scheduler HOST...  starts the scheduler and sets $step to the current step
#   with_scheduler COMMAND   runs COMMAND on the first host, with the scheduler's commands available
#   has_all_hosts COUNT      succeeds if COUNT hosts are idle
#   print_hosts              prints the scheduler's state of each host
# shellcheck shell=bash

readonly NAME=${CLUSTER_NAME:-ringmark}
readonly CLUSTER=/run/$NAME-cluster
# shellcheck disable=SC2154 # SCHEDULER and here are set by the sourcing script
readonly STATE=$CLUSTER/${SCHEDULER,,}
# shellcheck source=scripts/dev/common.sh disable=SC2154
source "$here/common.sh"

# Current step of `up`, printed if it fails.
step=

undo_up() {
    say "failed: $step; see above. Removing the hosts"
    tail -qn 5 "$STATE"/*.log >&2 2>/dev/null || true
    "$here/cluster.sh" down
}

up() {
    local hosts names
    install_packages missing_packages "${SERVICES[@]}"
    hosts=$("$here/cluster.sh" up "$1")
    trap undo_up EXIT
    names=${hosts//:1/}
    mkdir -p "$STATE"
    # shellcheck disable=SC2086 # a word for each host
    start_scheduler ${names//,/ }
    step="waiting for every host to be idle"
    wait_until has_all_hosts "$1" || { print_hosts >&2 || true; exit 1; }
    trap - EXIT
    echo "$hosts"
}

# Waits until the command $@ succeeds. The limit is 300 seconds because the machine may be busy.
wait_until() {
    local deadline=$((SECONDS + 300))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

main() {
    local script
    script=scripts/dev/$(basename "$0")
    if [[ ${1:-} == --help || ${1:-} == -h ]]; then usage 0; fi
    if ((EUID != 0)); then fail "network namespaces need root. Run: sudo $script $*" 2; fi
    case ${1:-}:$# in
        up:[12])
            local count=${2:-2}
            [[ $count =~ ^[1-9][0-9]?$ ]] || fail "up $count: COUNT must be between 1 and 99" 2
            up "$count"
            ;;
        run:1) usage 2 >&2 ;;
        run:*)
            [[ -e $STATE ]] || fail "$SCHEDULER is not running: start it with $script up"
            with_scheduler "${@:2}"
            ;;
        down:1) "$here/cluster.sh" down ;;
        *) usage 2 >&2 ;;
    esac
}
