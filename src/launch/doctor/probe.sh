# What a host says of itself, one `key=value` a line, and nothing that changes it. Needs no more than a POSIX shell.
# What may hang comes last and under a limit, so that the rest is known. $1: the worker, $2: the folder of the results,
# $3: not empty where there are several hosts, then each file or folder of the data.
echo ringmark-probe=1
echo "connection=$SSH_CONNECTION"
echo "clock=$(date +%s.%N)"
echo "name=$(hostname 2>/dev/null || uname -n)"
echo "kernel=$(uname -sr)"
echo "load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null)"
# By the shell itself: another process would be one more.
if read -r _ _ _ threads _ 2>/dev/null </proc/loadavg; then echo "runnable=${threads%%/*}"; fi
# The limit is not in every shell; then nothing is known of it. It does not bind who has CAP_IPC_LOCK (bit 14) on the
# machine itself; in a user namespace it binds all the same.
capabilities=$(sed -n 's/^CapEff:[[:space:]]*/0x/p' /proc/self/status 2>/dev/null)
users=$(tr -s ' ' </proc/self/uid_map 2>/dev/null)
if [ "${users# }" = "0 0 4294967295" ] && [ $((${capabilities:-0} >> 14 & 1)) = 1 ]; then echo "memlock_kib=unlimited"
else echo "memlock_kib=$(ulimit -l 2>/dev/null)"
fi

limited() {
    if command -v timeout >/dev/null; then timeout -k 1 "$@"; else shift && "$@"; fi
}
# Size and free space in KiB of the file system that holds the nearest folder above $2 that there is.
space() {
    folder=$2
    while [ ! -d "$folder" ] && [ "$folder" != "${folder%/*}" ]; do folder=${folder%/*}; done
    limited 3 df -Pk "${folder:-/}" 2>/dev/null | awk -v key="$1" 'NR == 2 { print key "_kib=" $2 " " $4 }'
}

if [ ! -e "$1" ]; then echo "worker_missing=1"
elif [ ! -f "$1" ] || [ ! -x "$1" ]; then echo "worker_refused=1"
elif command -v sha256sum >/dev/null; then echo "worker_sha256=$(sha256sum <"$1" | cut -d ' ' -f 1)"
fi
if command -v orted >/dev/null; then echo "orted=$(command -v orted)"; fi
echo "mpirun=$(mpirun --version 2>/dev/null | head -n 1)"
# Which interfaces a file on this host tells Open MPI to use or to leave, where that matters.
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
for port in /sys/class/infiniband/*/ports/*; do
    [ -d "$port" ] || continue
    device=${port%/ports/*}
    line="${device##*/}:${port##*/}"
    for file in state phys_state link_layer rate; do line="$line|$(cat "$port/$file")"; done
    # The kernel shows a container the port, and not the device that programs open, unless it was given.
    opened=closed
    for verbs in /sys/class/infiniband_verbs/uverbs*; do
        [ "$(cat "$verbs/ibdev" 2>/dev/null)" = "${device##*/}" ] || continue
        node=/dev/infiniband/${verbs##*/}
        # What is not there, opening would make.
        if [ -c "$node" ] && (exec 3<>"$node") 2>/dev/null; then opened=open; fi
    done
    echo "port=$line|$opened"
done

command -v nvidia-smi >/dev/null || { echo "gpus=none" && echo "end=1" && exit 0; }
query() { limited 8 nvidia-smi "$@" --format=csv,noheader,nounits 2>&1; }
basic=index,uuid,name,driver_version,memory.total,memory.used
full=$basic,clocks.current.sm,clocks.max.sm,ecc.errors.uncorrected.volatile.total
clocks=clocks.applications.graphics,clocks.default_applications.graphics
# Drivers before 535 call the reasons by another name, and one to come may not know what this one does.
all=$full,$clocks
for fields in "$all,clocks_event_reasons.active" "$all,clocks_throttle_reasons.active" "$full" "$basic"; do
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
limited 5 nvidia-smi topo -m 2>/dev/null | sed 's/^/topology=/'
echo "end=1"
