#!/usr/bin/env bash
# Puts what building and running ringmark needs on this machine: Debian packages, and libtorch in the ignored folder
# .libtorch, where .cargo/config.toml looks for it. Says nothing and takes no time where all of it is there.
#
#   scripts/setup.sh                      all of it
#   scripts/setup.sh --packages           Debian packages alone, which compiling anything needs
#   scripts/setup.sh --libtorch FOLDER    libtorch alone, as FOLDER/torch: for a ringmark-worker in FOLDER that is built
#
#   LIBTORCH=FOLDER           use this libtorch 2.11.0 (a `torch` folder of site-packages, or an unpacked libtorch zip)
#   RINGMARK_TORCH=cpu|cuda   wheels to install; by default cuda where there is an NVIDIA driver and cpu elsewhere
#   RINGMARK_TORCH_INDEX=URL  another index of wheels, as for the CUDA 12.6 build that cards before Turing (V100) need:
#                             the Dockerfile has its address
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Before the change of folder, which a relative path would not survive.
if [[ -n ${LIBTORCH:-} ]]; then LIBTORCH=$(realpath -m "$LIBTORCH"); fi
store=.libtorch
case ${1:-} in
    '' | --packages) ;;
    --libtorch) store=$(realpath -m "${2:?--libtorch needs a folder}") ;;
    -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
    *) echo "setup: what is $1? Options: --packages, --libtorch FOLDER" >&2; exit 2 ;;
esac
cd "$root"

readonly TORCH=2.11.0
# What libtorch_cpu of the CUDA build needs even where there is no GPU; the whole set is eight times as large.
readonly CPU_WHEELS=("torch==$TORCH" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
readonly STORE=$store LINK=$store/torch VENV=$store/venv
# Written when the wheels are complete: which set, from which index.
readonly STAMP=$VENV/ringmark-wheels

say() { echo "setup: $*" >&2; }
fail() {
    say "$*"
    exit 1
}

# --- Rust and packages ---------------------------------------------------------------------------------------------

check_rust() {
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    have=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
    [[ -n $have ]] || fail "there is no cargo. Install Rust, then open a new shell:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    [[ $(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1) == "$wanted" ]] ||
        fail "ringmark needs Rust $wanted, cargo is $have: rustup update stable (https://rustup.rs, where there is no rustup)"
}

has_libclang() {
    # The name without a number comes with clang's own headers, which bindgen needs too.
    [[ -n ${LIBCLANG_PATH:-} ]] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so' >/dev/null
}

# A python3 that torch has wheels for.
find_python() {
    local python
    for python in python3 python3.{14,13,12,11,10}; do
        if "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# Debian's names of the packages whose content is missing here, of those for $1: to build ringmark, or to run pip.
missing_packages() { "missing_for_$1"; }
missing_for_build() {
    command -v c++ >/dev/null || echo g++
    command -v make >/dev/null || echo make
    has_libclang || echo libclang-dev
    command -v mpicc >/dev/null || echo libopenmpi-dev
    [[ $(mpirun --version 2>/dev/null) == *'Open MPI'* ]] || echo openmpi-bin
    command -v ssh >/dev/null || echo openssh-client
}
missing_for_pip() {
    local python
    if ! python=$(find_python); then
        command -v python3 >/dev/null || echo python3 python3-venv
    elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        # Debian's own python3 lacks these two until the package is there.
        [[ $(realpath "$(command -v "$python")") != /usr/bin/python3* ]] || echo python3-venv
    fi
}

install_packages() {
    local missing command
    missing=$(missing_packages "$1" | xargs)
    [[ -n $missing ]] || return 0
    command="apt-get install -y --no-install-recommends $missing"
    command -v apt-get >/dev/null ||
        fail "these are missing, here by Debian's names; install what your system calls them: $missing"
    local as_root=()
    if ((EUID != 0)); then
        # Without a terminal sudo could not ask for the password.
        if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
            as_root=(sudo)
        else
            fail "packages are missing. As root: apt-get update && $command"
        fi
    fi
    say "installing $missing"
    local log
    log=$(mktemp)
    # shellcheck disable=SC2086 # split into arguments
    if ! { "${as_root[@]}" apt-get update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $command; } </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm "$log"
        fail "that did not work. As root: apt-get update && $command"
    fi
    rm "$log"
    hash -r
    missing=$(missing_packages "$1" | xargs)
    [[ -z $missing ]] || fail "still missing after their installation: $missing. Is another one of that name first on PATH?"
}

# --- libtorch ------------------------------------------------------------------------------------------------------

# Version of the libtorch in folder $1: a wheel says it in version.py, the zip in build-version.
version_of() {
    if [[ -f $1/version.py ]]; then
        sed -n "s/^__version__ = '\([^'+]*\).*/\1/p" "$1/version.py"
    elif [[ -f $1/build-version ]]; then
        sed 's/+.*//' "$1/build-version"
    fi
}

is_good() {
    [[ $(version_of "$1") == "$TORCH" && -e $1/lib/libtorch_cpu.so && -d $1/include/torch ]]
}

link_to() {
    mkdir -p "$STORE"
    [[ $(readlink "$LINK" || true) == "$1" ]] || ln -sfn "$1" "$LINK"
}

link_given() {
    [[ -d $LIBTORCH ]] || fail "LIBTORCH=$LIBTORCH is no folder: correct it, or unset it to have libtorch installed here"
    local version
    version=$(version_of "$LIBTORCH")
    [[ $version == "$TORCH" ]] ||
        fail "ringmark needs libtorch $TORCH, LIBTORCH=$LIBTORCH has ${version:-no version}: unset LIBTORCH to have it installed here"
    is_good "$LIBTORCH" || fail "LIBTORCH=$LIBTORCH lacks lib/libtorch_cpu.so or the headers in include/torch"
    link_to "$LIBTORCH"
}

# As the worker asks: can the driver be loaded, and does it count a GPU?
has_gpu() {
    local python
    python=$(find_python) || return 1
    "$python" - 2>/dev/null <<'PYTHON'
import ctypes, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0)
sys.exit(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0)
PYTHON
}

# Folder of a torch that python3 can import and that serves the devices of this machine.
importable_torch() {
    local folder
    # Its folder first: importing takes seconds, and is only to prove that its libraries load.
    folder=$(python3 -c 'import importlib.util as i; print(i.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
        return 1
    is_good "$folder" && { [[ $1 == cpu ]] || [[ -e $folder/lib/libtorch_cuda.so ]]; } &&
        python3 -c 'import torch' 2>/dev/null && echo "$folder"
}

# Installs set $1 (cpu or cuda) from index $2 ("default" is pip's own).
install_wheels() {
    local set=$1 index=$2 python
    [[ $(uname -sm) == "Linux x86_64" ]] ||
        fail "there are wheels for Linux on x86-64 only, this is $(uname -sm): set LIBTORCH to a libtorch $TORCH"
    python=$(find_python) || fail "torch $TORCH has wheels for Python 3.10 to 3.14, python3 is $(python3 --version 2>&1): \
put one of those on PATH, or set LIBTORCH to a libtorch $TORCH"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$(command -v "$python") has no venv module: install it"

    # An interrupted installation can leave a package that pip takes for a whole one; so can one from another index.
    if [[ ! -f $STAMP ]] || [[ $(<"$STAMP") != *" $index" ]]; then
        rm -rf "$VENV"
        mkdir -p "$STORE"
        "$python" -m venv "$VENV" || fail "$python -m venv failed, see above"
    fi
    rm -f "$STAMP"

    local options=(install --disable-pip-version-check --no-input)
    [[ -t 2 ]] || options+=(--quiet)
    [[ $index == default ]] || options+=(--index-url "$index")
    if [[ $set == cpu ]]; then
        options+=(--no-deps)
        if [[ $index == default ]]; then options+=("${CPU_WHEELS[@]}"); else options+=("torch==$TORCH"); fi
        say "installing libtorch $TORCH for CPUs in $STORE (0.5 GB to load)"
    else
        options+=("torch==$TORCH")
        say "installing libtorch $TORCH with CUDA in $STORE (about 3 GB to load)"
    fi
    # -I: a torch on PYTHONPATH is none in this folder.
    "$VENV/bin/python" -I -m pip "${options[@]}" >&2 ||
        fail "pip could not install it, see above; call scripts/setup.sh again when that is mended"
    echo "$set $index" >"$STAMP"
}

provide_wheels() {
    local have=none from=none index wanted folder
    if [[ -f $STAMP ]]; then read -r have from <"$STAMP"; fi
    # The index is chosen once: the next call need not repeat it.
    index=${RINGMARK_TORCH_INDEX:-$from}
    [[ $index != none ]] || index=default

    wanted=${RINGMARK_TORCH:-}
    if [[ -z $wanted ]]; then
        # The whole set serves a machine without a GPU as well.
        if [[ $have == cuda || $index != default ]] || has_gpu; then wanted=cuda; else wanted=cpu; fi
    fi
    [[ $wanted == cpu || $wanted == cuda ]] || fail "RINGMARK_TORCH=$wanted: it can be cpu or cuda"

    if [[ $have == none && $index == default ]] && folder=$(importable_torch "$wanted"); then
        link_to "$folder"
        return
    fi
    if [[ $from != "$index" || $have == none || ($have == cpu && $wanted == cuda) ]]; then
        install_packages pip
        install_wheels "$wanted" "$index"
    fi
    folder=$(compgen -G "$VENV/lib/python3*/site-packages/torch") || fail "$VENV has no torch: remove it and call scripts/setup.sh again"
    link_to "${folder#"$STORE"/}"
    is_good "$LINK" || fail "$LINK is not a whole libtorch $TORCH: remove $VENV and call scripts/setup.sh again"
}

if [[ ${1:-} != --libtorch ]]; then
    check_rust
    install_packages build
fi
[[ ${1:-} != --packages ]] || exit 0
if [[ -n ${LIBTORCH:-} ]]; then
    link_given
elif [[ -z ${RINGMARK_TORCH:-}${RINGMARK_TORCH_INDEX:-} && $(readlink "$LINK") == /* ]] && is_good "$LINK"; then
    : # one from elsewhere, chosen by an earlier call
else
    # Two set-ups at a time would take each other's half-made folder for a broken one.
    mkdir -p "$STORE"
    exec 9>"$STORE/lock"
    flock 9
    provide_wheels
fi
