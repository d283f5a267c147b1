#!/usr/bin/env bash
# Runs Grid Engine on simulated hosts of one machine (scripts/dev/cluster.sh), for tests of `--launcher gridengine`.
# sge_qmaster runs on the first host, sge_execd on every host. Each host has two slots in the queue all.q, for Debian's
# parallel environment `mpi`.
#
#   scripts/dev/gridengine_cluster.sh up [COUNT=2]    creates ringmark-1, ringmark-2, ... and prints them for --hosts
#   scripts/dev/gridengine_cluster.sh run COMMAND...  runs COMMAND on ringmark-1, where qsub and qdel use this Grid Engine
#   scripts/dev/gridengine_cluster.sh down            kills all processes on the hosts and removes the cluster
#
# Needs root; installs Grid Engine and the packages of scripts/dev/cluster.sh if they are missing. All files are in
# /run/ringmark-cluster/gridengine. CLUSTER_NAME is that of scripts/dev/cluster.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here SCHEDULER=GridEngine SERVICES=(gridengine-master gridengine-exec)
# shellcheck source=scripts/dev/scheduler_cluster.sh
source "$here/scheduler_cluster.sh"
# Debian's initial files of a cell, and the programs that initialize it.
readonly SHARE=/usr/share/gridengine PROGRAMS=/usr/lib/gridengine

missing_packages() {
    command -v sge_qmaster >/dev/null || echo gridengine-master
    command -v sge_execd >/dev/null || echo gridengine-exec
    # Grid Engine requires a mail server. This one runs no service; without it, Debian would install exim4.
    command -v sendmail >/dev/null || echo esmtp-run
}

start_scheduler() {
    local host
    step="writing Grid Engine's configuration"
    write_configuration

    step="starting sge_qmaster on $NAME-1"
    with_scheduler sge_qmaster
    wait_until with_scheduler qconf -sh

    step="adding the hosts to sge_qmaster"
    # The redirection applies only to a subshell, so that this shell reports a failure on its own streams.
    (configure "$@") >>"$STATE/configure.log" 2>&1

    for host in "$@"; do
        step="starting sge_execd on $host"
        "$here/cluster.sh" run ssh "$host" env "SGE_ROOT=$STATE" sge_execd
    done
}

# Creates the initial files of sge_qmaster from Debian's, with this cluster's folders and root as administrator and user.
write_configuration() {
    local common=$STATE/default/common
    mkdir -p "$common" "$STATE/qmaster" "$STATE/execd"
    # qrsh looks for its helper programs in this folder.
    ln -s /var/lib/gridengine/utilbin "$STATE/utilbin"
    sed -e "s|^admin_user .*|admin_user none|" -e "s|^spooling_method .*|spooling_method classic|" \
        -e "s|^spooling_lib .*|spooling_lib libspoolc|" -e "s|^spooling_params .*|spooling_params $common;$STATE/qmaster|" \
        -e "s|^qmaster_spool_dir .*|qmaster_spool_dir $STATE/qmaster|" "$SHARE/default-bootstrap" >"$common/bootstrap"
    sed -e "s|^execd_spool_dir .*|execd_spool_dir $STATE/execd|" -e "s|^min_\([ug]id\) .*|min_\1 0|" \
        "$SHARE/default-configuration" >"$STATE/configuration"
    (
        export SGE_ROOT=$STATE SGE_CELL=default
        "$PROGRAMS/spoolinit" classic libspoolc "$common;$STATE/qmaster" init
        "$PROGRAMS/spooldefaults" configuration "$STATE/configuration"
        "$PROGRAMS/spooldefaults" complexes "$SHARE/util/resources/centry"
        "$PROGRAMS/spooldefaults" usersets "$SHARE/util/resources/usersets"
        "$PROGRAMS/spooldefaults" managers root
    ) >"$STATE/configure.log"
}

# Adds the hosts $@, the parallel environments and the queue, and configures the scheduler to start jobs within a second
# and fill hosts in order.
configure() {
    local host environment number=0
    with_scheduler qconf -ssconf | sed -e "s|^schedule_interval .*|schedule_interval 0:0:1|" \
        -e "s|^queue_sort_method .*|queue_sort_method seqno|" >"$STATE/scheduling"
    with_scheduler qconf -Msconf "$STATE/scheduling"
    for host in "$@"; do
        with_scheduler qconf -as "$host"
        # sge_execd can start only on an administrative host; the first host already is one.
        [[ $host == "$NAME-1" ]] || with_scheduler qconf -ah "$host"
    done
    # The queue's template refers to all three of Debian's parallel environments.
    for environment in make mpi smp; do with_scheduler qconf -Ap "$SHARE/util/resources/pe/$environment"; done
    with_scheduler EDITOR=true qconf -aq all.q
    {
        echo "hostlist $*"
        echo "slots 2"
        # Start jobs regardless of the machine's load.
        echo "load_thresholds NONE"
        echo "seq_no 0$(for host in "$@"; do echo -n ",[$host=$((++number))]"; done)"
        # Open MPI's daemons crash if they share a session folder.
        echo "tmpdir /tmp$(for host in "$@"; do echo -n ",[$host=$CLUSTER/$host/tmp]"; done)"
    } >"$STATE/queue"
    with_scheduler qconf -Rattr queue "$STATE/queue" all.q
}

with_scheduler() { "$here/cluster.sh" run env SGE_ROOT="$STATE" "$@"; }
has_all_hosts() {
    [[ $(with_scheduler qselect | wc -l) == "$1" && -z $(with_scheduler qselect -qs au 2>/dev/null) ]]
}
print_hosts() { with_scheduler qstat -f; }

main "$@"
