# Prints facts about a host, one `key=value` a line, and changes nothing. Requires only a POSIX shell. Commands that may
# hang come last and have a timeout, so that the other facts are available. $1: the worker, $2: the results folder, $3:
# not empty if there are several hosts, followed by each file or folder of the data.
# shellcheck shell=sh
echo ringmark-probe=1
# Folder with proc and sys, for tests.
root=$RINGMARK_PROBE_ROOT
echo "connection=$SSH_CONNECTION"
echo "clock=$(date +%s.%N)"
echo "name=$(hostname 2>/dev/null || uname -n)"
echo "kernel=$(uname -sr)"
echo "load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null)"
# Read by the shell itself: another process would be counted too.
if read -r _ _ _ threads _ 2>/dev/null </proc/loadavg; then echo "runnable=${threads%%/*}"; fi
# Not every shell supports this limit; it is then unknown. It does not apply to a process with CAP_IPC_LOCK (bit 14) in
# the initial user namespace; in any other user namespace it does.
capabilities=$(sed -n 's/^CapEff:[[:space:]]*/0x/p' /proc/self/status 2>/dev/null)
users=$(tr -s ' ' </proc/self/uid_map 2>/dev/null)
# shellcheck disable=SC3045 # `ulimit -l` is not in POSIX, but in dash, bash and busybox.
if [ "${users# }" = "0 0 4294967295" ] && [ $((${capabilities:-0} >> 14 & 1)) = 1 ]; then echo "memlock_kib=unlimited"
else echo "memlock_kib=$(ulimit -l 2>/dev/null)"
fi

limited() {
    if command -v timeout >/dev/null; then timeout -k 1 "$@"; else shift && "$@"; fi
}
# Size and free space in KiB of the file system of $2, or of its nearest existing parent folder.
space() {
    folder=$2
    while [ ! -d "$folder" ] && [ "$folder" != "${folder%/*}" ]; do folder=${folder%/*}; done
    limited 3 df -Pk "${folder:-/}" 2>/dev/null | awk -v key="$1" 'NR == 2 { print key "_kib=" $2 " " $4 }'
}

if [ ! -e "$1" ]; then echo "worker_missing=1"
elif [ ! -f "$1" ] || [ ! -x "$1" ]; then echo "worker_refused=1"
elif command -v sha256sum >/dev/null; then echo "worker_sha256=$(sha256sum <"$1" | cut -d ' ' -f 1)"
fi
for daemon in prted orted; do
    if command -v $daemon >/dev/null; then echo "orted=$(command -v $daemon)"; break; fi
done
echo "mpirun=$(mpirun --version 2>/dev/null | head -n 1)"
# Interfaces that a file on this host makes Open MPI include or exclude, if there are several hosts.
if [ -n "$3" ] && command -v ompi_info >/dev/null; then
    limited 8 ompi_info --param btl tcp --level 9 --parsable 2>/dev/null | awk -F : '
        $5 ~ /^btl_tcp_if_/ && $6 == "value" { value = $7 }
        $5 ~ /^btl_tcp_if_/ && $6 == "source" && sub(/^file \(/, "", $7) {
            print "mpi_setting=" $5 "=" value " in " $7
        }'
fi
space shm /dev/shm
space temporary "${TMPDIR:-/tmp}"
if [ -n "$2" ]; then
    if [ -d "$2" ]; then echo "results_present=1"; if [ -w "$2" ]; then echo "results_writable=1"; fi; fi
    space results "$2"
fi
shift 3
for path; do
    echo "data=$(limited 3 sh -c '
        if [ ! -e "$1" ]; then echo missing
        elif [ ! -r "$1" ] || { [ -d "$1" ] && [ ! -x "$1" ]; }; then echo refused
        elif [ -d "$1" ]; then names=$(ls -A "$1") && echo "folder $(echo "$names" | grep -c .)"
        else ls -Lnd "$1" | { read -r mode links user group bytes rest && echo "file $bytes"; }
        fi' sh "$path" 2>/dev/null)"
done
for port in "$root"/sys/class/infiniband/*/ports/*; do
    [ -d "$port" ] || continue
    device=${port%/ports/*}
    line="${device##*/}:${port##*/}"
    for file in state phys_state link_layer rate; do line="$line|$(cat "$port/$file")"; done
    # The kernel shows a container the port, but the device file that programs open only exists if it was passed
    # through.
    opened=closed
    for verbs in "$root"/sys/class/infiniband_verbs/uverbs*; do
        [ "$(cat "$verbs/ibdev" 2>/dev/null)" = "${device##*/}" ] || continue
        node=/dev/infiniband/${verbs##*/}
        # Opening a missing file would create it.
        if [ -c "$node" ] && (exec 3<>"$node") 2>/dev/null; then opened=open; fi
    done
    echo "port=$line|$opened"
    for counter in symbol_error link_downed link_error_recovery port_rcv_errors local_link_integrity_errors; do
        if read -r errors 2>/dev/null <"$port/counters/$counter" && [ "$errors" != 0 ]; then
            echo "port_error=${device##*/}:${port##*/} $counter $errors"
        fi
    done
done
processors=$root/sys/devices/system/cpu
sort -u "$processors"/cpu[0-9]*/cpufreq/scaling_governor 2>/dev/null | sed 's/^/governor=/'
echo "frequency_driver=$(cat "$processors/cpu0/cpufreq/scaling_driver" 2>/dev/null)"
# The second one is its predecessor, from Mellanox.
for module in nvidia_peermem nv_peer_mem; do
    if [ -d "$root/sys/module/$module" ]; then echo "peer_memory=$module"; fi
done
case $(cat "$root/proc/driver/nvidia/version" 2>/dev/null) in
    *"Open Kernel Module"*) echo "nvidia_module=open" ;;
    *"Kernel Module"*) echo "nvidia_module=closed" ;;
esac

command -v nvidia-smi >/dev/null || { echo "gpus=none" && echo "end=1" && exit 0; }
# dmesg fails if only root may read the kernel log.
{ limited 2 dmesg || limited 2 journalctl --dmesg --quiet --no-pager --output cat; } 2>/dev/null |
    sed -n 's/.*NVRM: Xid (PCI:\([^)]*\)): *\([0-9][0-9]*\).*/\1 \2/p' | sort | uniq -c | sed 's/^ */xid=/'
query() { limited 8 nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; }
basic=index,uuid,name,driver_version,memory.total,memory.used
full=$basic,clocks.current.sm,clocks.max.sm,ecc.errors.uncorrected.volatile.total
clocks=clocks.applications.graphics,clocks.default_applications.graphics
links=pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max
# Drivers before 535 use another name for the reasons, and a later one may drop some of these fields.
all=$full,$clocks
for fields in "$all,clocks_event_reasons.active,$links" "$all,clocks_throttle_reasons.active,$links" \
    "$all,clocks_event_reasons.active" "$all,clocks_throttle_reasons.active" "$full" "$basic"; do
    gpus=$(query "--query-gpu=$fields")
    status=$?
    case $gpus in *"not a valid field"*) ;; *) break ;; esac
done
case $status in
    0) echo "gpus=$fields" && echo "$gpus" | sed 's/^/gpu=/' ;;
    124 | 137) echo "gpus=hang" && echo "end=1" && exit 0 ;;
    *) echo "gpus=fail" && echo "$gpus" | sed 's/^/gpus_error=/' && echo "end=1" && exit 0 ;;
esac
query --query-compute-apps=gpu_uuid,pid,used_memory,process_name | grep '^GPU-' | sed 's/^/process=/'
query --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure | grep '^GPU-' | sed 's/^/remapped=/'
limited 5 nvidia-smi nvlink -s 2>/dev/null | awk '
    /^GPU [0-9]/ { gpu = $NF; sub(/\).*/, "", gpu) }
    /Link [0-9]+:/ { all[gpu]++; active[gpu] += (tolower($0) !~ /inactive/) }
    END { for (gpu in all) print "nvlink=" gpu " " active[gpu] " " all[gpu] }'
limited 5 nvidia-smi topo -m 2>/dev/null | sed 's/^/topology=/'
echo "end=1"
