# Sourced by slurm_cluster.sh and gridengine_cluster.sh, which end with `main "$@"`: a scheduler on the hosts of
# scripts/dev/cluster.sh. The script defines the functions that differ between schedulers
#
#   missing_packages         prints Debian's names of the packages that are missing
#   start_scheduler HOST...  starts it, with the current step in $step
#   with_scheduler COMMAND   runs COMMAND on the first host, where the scheduler's commands work
#   has_all_hosts COUNT      succeeds if COUNT hosts wait for jobs
#   say_hosts                prints the scheduler's state of its hosts
#
# and the variables SCHEDULER, its name, and SERVICES, those of its packages.
# shellcheck shell=bash

readonly NAME=${CLUSTER_NAME:-ringmark}
readonly CLUSTER=/run/$NAME-cluster
# shellcheck disable=SC2154 # SCHEDULER, here and a script's folder
readonly STATE=$CLUSTER/${SCHEDULER,,}
# shellcheck source=scripts/dev/common.sh disable=SC2154
source "$here/common.sh"

# Current step of `up`, printed if it fails.
step=

undo_up() {
    say "failed: $step; see above. Hosts that were created are removed"
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
    wait_until has_all_hosts "$1" || { say_hosts >&2 || true; exit 1; }
    trap - EXIT
    echo "$hosts"
}

# Waits at most 300 seconds until the command $@ succeeds: the machine may be busy.
wait_until() {
    local deadline=$((SECONDS + 300))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

main() {
    local script
    script=scripts/$(basename "$0")
    if [[ ${1:-} == --help || ${1:-} == -h ]]; then usage 0; fi
    if ((EUID != 0)); then fail "namespaces need root: sudo $script $*" 2; fi
    case ${1:-}:$# in
        up:[12])
            local count=${2:-2}
            [[ $count =~ ^[1-9][0-9]?$ ]] || fail "up $count: choose 1 to 99 hosts" 2
            up "$count"
            ;;
        run:1) usage 2 >&2 ;;
        run:*)
            [[ -e $STATE ]] || fail "no $SCHEDULER is up: $script up"
            with_scheduler "${@:2}"
            ;;
        down:1) "$here/cluster.sh" down ;;
        *) usage 2 >&2 ;;
    esac
}
