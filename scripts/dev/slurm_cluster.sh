#!/usr/bin/env bash
# Runs Slurm on simulated hosts of one machine (scripts/dev/cluster.sh), for tests of `--launcher slurm`. munge and
# slurmctld run on the first host, slurmd on every host. Each host reports two GPUs that do not exist: Slurm manages them
# as if they were real, but there is no driver. Two hosts share a leaf switch, and all leaves a spine.
#
#   scripts/dev/slurm_cluster.sh up [COUNT=2]    creates ringmark-1, ringmark-2, ... and prints them for --hosts
#   scripts/dev/slurm_cluster.sh run COMMAND...  runs COMMAND on ringmark-1, where salloc, sbatch and srun use this Slurm
#   scripts/dev/slurm_cluster.sh down            kills all processes on the hosts and removes the cluster
#
# Needs root; installs Slurm, munge and the packages of scripts/dev/cluster.sh if they are missing. All files are in
# /run/ringmark-cluster/slurm. CLUSTER_NAME is that of scripts/dev/cluster.sh.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here SCHEDULER=Slurm SERVICES=(slurmctld slurmd munge)
# shellcheck source=scripts/dev/scheduler_cluster.sh
source "$here/scheduler_cluster.sh"

missing_packages() {
    command -v slurmctld >/dev/null || echo slurmctld
    command -v slurmd >/dev/null || echo slurmd
    command -v srun >/dev/null || echo slurm-client
    command -v munged >/dev/null || echo munge
    # Used by a test to delay a slurmstepd.
    command -v strace >/dev/null || echo strace
    # Debian's Slurm includes PMIx; that of some other distributions does not.
    compgen -G '/usr/lib*/slurm*/mpi_pmix.so' >/dev/null || compgen -G '/usr/lib/*/slurm*/mpi_pmix.so' >/dev/null ||
        echo slurm-wlm-basic-plugins
}

start_scheduler() {
    local host
    step="writing Slurm's configuration"
    mkdir -p "$STATE/state"
    # munged rejects a folder that others can write to.
    chmod 755 "$STATE"
    write_configuration "$@"

    step="starting munged and slurmctld on $NAME-1"
    (umask 077 && head -c 128 /dev/urandom >"$STATE/munge.key")
    "$here/cluster.sh" run munged --key-file="$STATE/munge.key" --socket="$STATE/munge.socket" \
        --pid-file="$STATE/munge.pid" --log-file="$STATE/munge.log" --seed-file="$STATE/munge.seed"
    "$here/cluster.sh" run slurmctld -f "$STATE/slurm.conf"

    for host in "$@"; do
        step="starting slurmd on $host"
        mkdir -p "$STATE/$host.spool"
        "$here/cluster.sh" run ssh "$host" "$(command -v slurmd)" -N "$host" -f "$STATE/slurm.conf"
    done
}

# Writes the configuration for the hosts $@.
write_configuration() {
    local host memory
    memory=$(awk '$1 == "MemTotal:" { print int($2 / 1024 / 2) }' /proc/meminfo)
    # All hosts use one munged through its socket on the shared disk. The hosts have no control groups, so plugins that
    # need them are disabled. Every host has all processors of the machine.
    cat >"$STATE/slurm.conf" <<CONFIG
ClusterName=$NAME
SlurmctldHost=$NAME-1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$STATE/munge.socket
CredType=cred/munge
StateSaveLocation=$STATE/state
SlurmctldPidFile=$STATE/slurmctld.pid
SlurmctldLogFile=$STATE/slurmctld.log
SlurmdPidFile=$STATE/%n.pid
SlurmdLogFile=$STATE/%n.log
SlurmdSpoolDir=$STATE/%n.spool
SlurmdParameters=config_overrides
TmpFS=$CLUSTER/%n/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
MpiDefault=none
TopologyPlugin=topology/tree
ReturnToService=2
GresTypes=gpu
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONFIG
    for host in "$@"; do
        echo "NodeName=$host CPUs=$(nproc) RealMemory=$memory Gres=gpu:2" >>"$STATE/slurm.conf"
    done
    write_topology "$@"
    echo "Name=gpu File=$STATE/gpu[0-1]" >"$STATE/gres.conf"
    # Slurm only assigns devices to ranks. These are copies of /dev/null and are never opened.
    mknod "$STATE/gpu0" c 1 3 && mknod "$STATE/gpu1" c 1 3
    # Set explicitly, because detection fails without control groups.
    echo "CgroupPlugin=cgroup/v1" >"$STATE/cgroup.conf"
}

# Writes switches for the hosts $@: two hosts on each leaf, and all leaves on one spine.
write_topology() {
    local leaves=0
    while (($# > 0)); do
        echo "SwitchName=leaf$((++leaves)) Nodes=$1${2:+,$2}"
        shift "$(($# < 2 ? $# : 2))"
    done >"$STATE/topology.conf"
    echo "SwitchName=spine Switches=leaf[1-$leaves]" >>"$STATE/topology.conf"
}

with_scheduler() { "$here/cluster.sh" run env SLURM_CONF="$STATE/slurm.conf" "$@"; }
has_all_hosts() { [[ $(with_scheduler sinfo --noheader --Node --states=idle 2>/dev/null | wc -l) == "$1" ]]; }
print_hosts() { with_scheduler sinfo --Node --long; }

main "$@"
