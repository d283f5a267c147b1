# Shared functions of the scripts that create hosts, images or packages, install test requirements, or run on GPUs:
# messages, installation of Debian packages without starting services, and set-up of a worker on a machine with a GPU.
# shellcheck shell=bash

# A plain `su` leaves these out of root's PATH.
PATH=$PATH:/usr/sbin:/sbin

say() { echo "$(basename "$0" .sh): $*" >&2; }
fail() {
    echo "error: $1" >&2
    exit "${2:-1}"
}
# Prints the header of the running script; the path is absolute because the script may change folders.
this_script=$(realpath "$0")
usage() {
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$this_script"
    exit "$1"
}

# Prints the files that this machine needs to reach package servers (certificates, proxies, mirrors), as lines FILE:TARGET
# for a build or a check in another root. Generated files are written to folder $1.
package_server_files() {
    local cargo=${CARGO_HOME:-$HOME/.cargo}/config.toml
    find /etc/apt/apt.conf.d -type f -exec grep -hs '^Acquire::' {} + >"$1/apt.conf" || true
    [[ ! -s $1/apt.conf ]] || echo "$1/apt.conf:/etc/apt/apt.conf"
    [[ ! -f /etc/pip.conf ]] || echo /etc/pip.conf:/etc/pip.conf
    [[ ! -f $cargo ]] || echo "$cargo:/usr/local/cargo/config.toml"
    [[ ! -f /etc/ssl/certs/ca-certificates.crt ]] ||
        echo /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt
}

# Installs the Debian packages that function $1 prints. Their services $2... are not started, neither now nor at boot;
# services that are already enabled are not changed.
install_packages() {
    local list=$1 missing command log service policy=/usr/sbin/policy-rc.d worked=yes new_services=()
    shift
    missing=$("$list" | xargs)
    [[ -n $missing ]] || return 0
    command="apt-get install -y --no-install-recommends $missing"
    command -v apt-get >/dev/null ||
        fail "packages are missing. Install your system's equivalents of these Debian packages: $missing"
    say "installing $missing"
    for service in "$@"; do
        systemctl is-enabled --quiet "$service" 2>/dev/null || new_services+=("$service")
    done
    log=$(mktemp)
    (
        # Debian starts a newly installed service, and again at every boot. Prevent both.
        if [[ ! -e $policy ]]; then
            trap 'rm -f "$policy"' EXIT
            install -m 755 <(printf '#!/bin/sh\nexit 101\n') "$policy"
        fi
        # Unattended upgrades can hold dpkg's lock for minutes.
        # shellcheck disable=SC2086 # split into arguments
        apt-get update && DEBIAN_FRONTEND=noninteractive $command -o DPkg::Lock::Timeout=600 || exit 1
        for service in "${new_services[@]}"; do systemctl disable "$service" || true; done
    ) </dev/null >"$log" 2>&1 || worked=no
    if [[ $worked == no ]]; then tail -n 20 "$log" >&2; fi
    rm "$log"
    [[ $worked == yes ]] || fail "installation failed. Run as root: apt-get update && $command"
    hash -r
    missing=$("$list" | xargs)
    [[ -z $missing ]] || fail "still missing after installation: $missing"
}

# --- worker on a machine with a GPU, which may lack Rust, Open MPI and environment variables ---

# Sets $worker to $1, $RINGMARK_WORKER or the worker that cargo built in folder $2, in this order of precedence. Sets it to
# an empty string if it is not executable.
find_worker() {
    local built
    worker=${1:-${RINGMARK_WORKER:-}}
    for built in "$2/target/release/ringmark-worker" "$2/target/debug/ringmark-worker"; do
        if [[ -z $worker && -x $built ]]; then worker=$built; fi
    done
    if [[ -x $worker ]]; then worker=$(realpath "$worker"); else worker=; fi
}

has_nvidia_driver() { [[ -e /dev/nvidiactl || -e /dev/dxg ]] || command -v nvidia-smi >/dev/null; }

# Prints the number of visible GPUs.
count_gpus() {
    local gpus
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
    # A container may lack nvidia-smi, and a variable may hide GPUs.
    if [[ $gpus == 0 ]]; then gpus=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' | wc -l); fi
    if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .); fi
    echo "$gpus"
}

# Adds Open MPI to the search paths if $1 is a folder with its unpacked packages.
use_mpi() {
    if [[ -n $1 ]]; then
        # Open MPI expects its files at the prefix of its build. Only installation creates the link mpirun.
        export OPAL_PREFIX=$1/usr OPAL_SYSCONFDIR=$1/etc/openmpi PATH=$1/usr/bin:$PATH
        LD_LIBRARY_PATH=$1/usr/lib/$(uname -m)-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export LD_LIBRARY_PATH
        [[ -e $1/usr/bin/mpirun ]] || ln -s orterun "$1/usr/bin/mpirun"
    fi
    # A rank started without mpirun needs Open MPI's daemon, unless it is isolated.
    [[ -x ${OPAL_PREFIX:-/usr}/bin/orted ]] || export OMPI_MCA_ess_singleton_isolated=1
}

# True if $worker lacks a library whose name matches $1.
worker_lacks() { ldd "$worker" 2>/dev/null | grep "$1.* not found" >/dev/null; }

# Lets $worker use the libtorch of python3's torch package if it finds no other.
use_libtorch() {
    local torch
    worker_lacks libtorch_cpu.so || return 0
    torch=$(python3 -c 'import importlib.util as i; print(i.find_spec("torch").submodule_search_locations[0])' 2>/dev/null || true)
    export LD_LIBRARY_PATH=$torch/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}
