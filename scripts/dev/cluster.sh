#!/usr/bin/env bash
# Simulates several hosts on one machine, for tests that need a network. Each host is a network namespace with its own host
# name, shared memory and sshd. A bridge connects the hosts to each other and to nothing else. They share the machine's
# disk, processors and users.
#
#   scripts/dev/cluster.sh up [COUNT=2]     creates ringmark-1, ringmark-2, ... and prints them for --hosts
#   scripts/dev/cluster.sh hosts [SLOTS=1]  prints the hosts: ringmark-1:SLOTS,ringmark-2:SLOTS
#   scripts/dev/cluster.sh run COMMAND...   runs COMMAND on ringmark-1, which reaches the others by ssh and mpirun over eth0
#   scripts/dev/cluster.sh on N COMMAND...  runs COMMAND on host N as root, without the other hosts' mounts
#   scripts/dev/cluster.sh limit RATE       limits each host's outgoing traffic, in tc's units (1gbit, 100mbit) or none
#   scripts/dev/cluster.sh quota N PERCENT  limits the CPU time of everything that ssh starts on host N, or none
#   scripts/dev/cluster.sh down             kills all processes on the hosts and removes the cluster
#
# Needs root; installs iproute2, iptables, OpenSSH, rsync and util-linux if they are missing. All files are in /run/ringmark-cluster.
# CLUSTER_NAME=other creates another cluster: other-1, other-2, ... with files in /run/other-cluster.
set -euo pipefail

readonly NAME=${CLUSTER_NAME:-ringmark}
readonly STATE=/run/$NAME-cluster SWITCH=$NAME-switch
# The machine has no interface or route to the hosts, so these addresses cannot conflict with others.
readonly NETWORK=10.77.0

here=$(dirname "${BASH_SOURCE[0]}")
# shellcheck source=scripts/dev/common.sh
source "$here/common.sh"

missing_packages() {
    command -v ip >/dev/null && command -v tc >/dev/null || echo iproute2
    command -v ssh >/dev/null && command -v ssh-keygen >/dev/null || echo openssh-client
    command -v sshd >/dev/null || echo openssh-server
    command -v rsync >/dev/null || echo rsync
    command -v nsenter >/dev/null && command -v unshare >/dev/null || echo util-linux
    # For tests that drop packets.
    command -v iptables >/dev/null || echo iptables
}

# --- up and down ---------------------------------------------------------------------------------------------------

# Current step of `up`, printed if it fails.
step=

undo_up() {
    say "failed: $step; see above. Removing the hosts"
    tail -qn 5 "$STATE"/*/sshd.log >&2 2>/dev/null || true
    down
}

up() {
    local count=$1 host
    install_packages missing_packages ssh.service ssh.socket
    # mkdir fails if the folder exists, so the folder is also the lock.
    { [[ -z $(namespaces) ]] && mkdir "$STATE" 2>/dev/null; } ||
        fail "a cluster already exists: remove it with scripts/dev/cluster.sh down"
    trap undo_up EXIT

    step="creating a network namespace, which needs CAP_SYS_ADMIN and CAP_NET_ADMIN (in a container: docker run --privileged)"
    ip netns add "$SWITCH"

    step="creating the bridge (kernel module bridge)"
    ip -n "$SWITCH" link add bridge type bridge
    ip -n "$SWITCH" link set bridge up

    step="writing the files that the hosts share"
    ssh-keygen -q -t ed25519 -N '' -C "$NAME-cluster" -f "$STATE/key"
    cat >"$STATE/ssh_config" <<CONFIG
Host *
    User root
    IdentityFile $STATE/key
    IdentitiesOnly yes
    BatchMode yes
    GlobalKnownHostsFile $STATE/known_hosts
    UserKnownHostsFile /dev/null
CONFIG
    echo "127.0.0.1 localhost" >"$STATE/hosts"
    # Without PAM, sshd refuses users with a locked password ("!"), such as root on many systems.
    (umask 077 && echo 'root:*:1:0:99999:7:::' >"$STATE/shadow")
    # sshd requires this empty folder, which Debian's service would create.
    mkdir -p /run/sshd

    for ((host = 1; host <= count; host++)); do make_host "$host"; done
    for ((host = 1; host <= count; host++)); do reach_host "$host"; done
    echo "$count" >"$STATE/count"
    trap - EXIT
}

make_host() {
    local name=$NAME-$1 address=$NETWORK.$1
    local folder=$STATE/$name
    step="creating the network of $name (kernel module veth)"
    ip netns add "$name"
    ip -n "$name" link set lo up
    ip -n "$name" link add eth0 type veth peer name "port$1" netns "$SWITCH"
    ip -n "$SWITCH" link set "port$1" master bridge up
    ip -n "$name" address add "$address/24" dev eth0
    ip -n "$name" link set eth0 up

    step="starting sshd on $name"
    # When a job ends, Open MPI removes the host's session folder if it is empty. A job that starts at that moment would
    # fail, so keep the folder nonempty.
    mkdir -p "$folder/tmp/ompi.$name.$EUID/kept"
    cp "$STATE/key.pub" "$folder/authorized_keys"
    ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$folder/host_key"
    echo "$address $name" >>"$STATE/hosts"
    echo "$name,$address $(cut -d ' ' -f 1,2 "$folder/host_key.pub")" >>"$STATE/known_hosts"
    # TMPDIR: Open MPI's daemons crash if they share a session folder; the default is in /tmp.
    cat >"$folder/sshd_config" <<CONFIG
ListenAddress $address
HostKey $folder/host_key
PidFile $folder/sshd.pid
AuthorizedKeysFile $folder/authorized_keys
AuthenticationMethods publickey
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
SetEnv TMPDIR=$folder/tmp
CONFIG
    # `ip netns exec` mounts a separate /sys. All mounts are visible only on this host and end with its last process.
    # shellcheck disable=SC2016 # for the inner shell
    ip netns exec "$name" unshare --uts --ipc --mount bash -euc '
        hostname "$2"
        mount -t tmpfs tmpfs /dev/shm
        mount --bind "$1/hosts" /etc/hosts
        mount --bind "$1/shadow" /etc/shadow
        mount --bind "$1/ssh_config" /etc/ssh/ssh_config
        exec "$3" -f "$1/$2/sshd_config" -E "$1/$2/sshd.log"
    ' - "$STATE" "$name" "$(command -v sshd)"
}

# Waits until ssh works from the first host to host $1. The limit is 300 seconds because the machine may be busy.
reach_host() {
    local name=$NAME-$1 output="" deadline=$((SECONDS + 300))
    step="connecting to $name from $NAME-1 with ssh"
    until output=$( (on_host 1 ssh -o ConnectTimeout=10 "$name" hostname) 2>&1) && [[ $output == "$name" ]]; do
        ((SECONDS < deadline)) || { say "last output: $output"; exit 1; }
        sleep 0.2
    done
}

# Prints the existing network namespaces of this cluster.
namespaces() { ip netns list 2>/dev/null | grep -oE "^($SWITCH|$NAME-[0-9]+)\b" || true; }

down() {
    local name pids
    for name in $(namespaces); do
        # Repeat, because a process may have forked in the meantime.
        while pids=$(ip netns pids "$name" | xargs) && [[ -n $pids ]]; do
            # shellcheck disable=SC2086 # split into arguments
            kill -KILL $pids 2>/dev/null || true
            sleep 0.1
        done
        ip netns delete "$name"
    done
    for name in /sys/fs/cgroup{,/cpu}/"$NAME"-[0-9]*; do
        if [[ -d $name ]]; then rmdir "$name"; fi
    done
    rm -rf --one-file-system "$STATE"
}

# --- use -----------------------------------------------------------------------------------------------------------

count_hosts() { cat "$STATE/count" 2>/dev/null || fail "no cluster is running: start one with scripts/dev/cluster.sh up"; }

list_hosts() {
    local count
    count=$(count_hosts)
    seq --format "$NAME-%.0f:$1" --separator , "$count"
}

# Prints the process ID of host $1's sshd, which keeps the host's namespaces alive.
process_of() {
    local name=$NAME-$1 sshd
    sshd=$(cat "$STATE/$name/sshd.pid" 2>/dev/null) || true
    # The ID may have been reused; the command would then run outside of the host.
    [[ -n $sshd && $(ip netns identify "$sshd" 2>/dev/null) == "$name" ]] ||
        fail "sshd is not running on $name: run scripts/dev/cluster.sh down, then up"
    echo "$sshd"
}

# Replaces this process with command $2... on host $1, in the same folder and environment. All hosts share the processors,
# so waiting ranks must yield to the ranks that they wait for.
on_host() {
    local folder=$STATE/$NAME-$1 process
    process=$(process_of "$1") || exit
    exec nsenter --target "$process" --net --uts --ipc --mount -- env --chdir "$PWD" \
        TMPDIR="$folder/tmp" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_mpi_yield_when_idle=1 "${@:2}"
}

# Limits host $1's sshd and the processes that it starts from now on to $2 percent of a processor, with a control group of
# the machine's version (1 or 2).
quota() {
    local name=$NAME-$1 percent=$2 process group period=100000 quota
    process=$(process_of "$1") || exit
    if [[ -d /sys/fs/cgroup/cpu ]]; then
        group=/sys/fs/cgroup/cpu/$name
    else
        group=/sys/fs/cgroup/$name
        echo +cpu >/sys/fs/cgroup/cgroup.subtree_control || fail "control groups cannot limit CPU time on this machine"
    fi
    mkdir -p "$group" || fail "cannot create control group $group"
    echo "$process" >"$group/cgroup.procs"
    if [[ -e $group/cpu.max ]]; then
        quota=max
        if [[ $percent != none ]]; then quota=$((period * percent / 100)); fi
        echo "$quota $period" >"$group/cpu.max"
    else
        quota=-1
        if [[ $percent != none ]]; then quota=$((period * percent / 100)); fi
        echo "$quota" >"$group/cpu.cfs_quota_us"
    fi
}

limit() {
    local host count qdisc=(noqueue)
    if [[ $1 != none ]]; then qdisc=(tbf rate "$1" burst 256k latency 50ms); fi
    count=$(count_hosts)
    for ((host = 1; host <= count; host++)); do
        tc -n "$NAME-$host" qdisc replace dev eth0 root "${qdisc[@]}" || fail "tc rejected the limit $1 for $NAME-$host"
    done
}

verb=${1:-}
if [[ $verb == --help || $verb == -h ]]; then usage 0; fi
if ((EUID != 0)); then fail "network namespaces need root. Run: sudo scripts/dev/cluster.sh $*" 2; fi
case $verb:$# in
    up:[12])
        count=${2:-2}
        [[ $count =~ ^[1-9][0-9]?$ ]] || fail "up $count: COUNT must be between 1 and 99" 2
        up "$count"
        list_hosts 1
        ;;
    hosts:[12])
        [[ ${2:-1} =~ ^[1-9][0-9]*$ ]] || fail "hosts $2: SLOTS must be at least 1" 2
        list_hosts "${2:-1}"
        ;;
    run:1) usage 2 >&2 ;;
    run:*)
        count_hosts >/dev/null
        on_host 1 "${@:2}"
        ;;
    on:[12]) usage 2 >&2 ;;
    on:*)
        count_hosts >/dev/null
        on_host "${@:2}"
        ;;
    limit:2) limit "$2" ;;
    quota:3)
        [[ $3 =~ ^([1-9][0-9]*|none)$ ]] || fail "quota $3: PERCENT must be at least 1, or none" 2
        quota "$2" "$3"
        ;;
    down:1) down ;;
    *) usage 2 >&2 ;;
esac
