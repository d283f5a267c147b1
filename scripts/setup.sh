#!/usr/bin/env bash
# Installs the requirements for building and running ringmark: Debian packages, and libtorch in .libtorch, which git
# ignores and .cargo/config.toml uses. Returns at once, without output, if everything is installed.
#
#   scripts/setup.sh                      installs everything
#   scripts/setup.sh --packages           installs only the Debian packages, which every build needs
#   scripts/setup.sh --libtorch FOLDER    installs only libtorch, as FOLDER/torch, for a built ringmark-worker in FOLDER
#   scripts/setup.sh --which              prints the build of libtorch that it would use, and why; installs nothing
#
#   LIBTORCH=FOLDER           uses this libtorch 2.11.0: a `torch` folder of site-packages, or an unpacked libtorch zip
#   RINGMARK_TORCH=BUILD      selects a build:
#                             cu130: CUDA 13.0, for compute capability 7.5 (Turing) or newer, driver 580 or newer
#                                    (on aarch64: 8.0 or newer)
#                             cu126: CUDA 12.6, for 5.0 to 9.0 (V100, but not Blackwell), driver 525 or newer; x86-64 only
#                             cuda: the CUDA build that the driver and every GPU of this machine support
#                             cpu: no GPU
#                             default: cuda if the driver reports a GPU, otherwise cpu
#   RINGMARK_TORCH_INDEX=URL  installs wheels from another index
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Resolve a relative path before changing the folder.
if [[ -n ${LIBTORCH:-} ]]; then LIBTORCH=$(realpath -m "$LIBTORCH"); fi
store=.libtorch only=
while (($#)); do
    case $1 in
        --packages) only=packages; shift ;;
        --libtorch) only=libtorch store=$(realpath -m "${2:?--libtorch needs a folder}"); shift 2 ;;
        --which) only=which; shift ;;
        -h | --help) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit ;;
        *) echo "error: unknown option $1. Options: --packages, --libtorch FOLDER, --which" >&2; exit 2 ;;
    esac
done
cd "$root"

readonly TORCH=2.11.0
# Minimum that libtorch_cpu of the CUDA build needs without a GPU; the complete build is eight times as large.
readonly CPU_WHEELS=("torch==$TORCH" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85)
# CUDA builds in order of preference: name, index, CUDA version and number of the oldest driver, lowest and highest compute
# capability times ten. A runtime works with any driver of the same CUDA major version; no build has PTX for newer GPUs.
case $(uname -m) in
    # The wheels for aarch64 support SBSA servers (GH200, GB200).
    aarch64) readonly CUDA_BUILDS='cu130 default 13000 580 80 129' ;;
    *) readonly CUDA_BUILDS='cu130 default 13000 580 75 129
cu126 https://download.pytorch.org/whl/cu126 12000 525 50 90' ;;
esac
readonly STORE=$store LINK=$store/torch VENV=$store/venv
# Contains the build and its index; written when the wheels are complete.
readonly STAMP=$VENV/ringmark-wheels

say() { echo "setup: $*" >&2; }
fail() {
    echo "error: $*" >&2
    exit 1
}

# --- Rust and packages ---------------------------------------------------------------------------------------------

check_rust() {
    local wanted have
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    have=$(cargo --version 2>/dev/null | cut -d ' ' -f 2) || true
    [[ -n $have ]] || fail "cargo not found. Install Rust, then open a new shell:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
    [[ $(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1) == "$wanted" ]] ||
        fail "ringmark needs Rust $wanted or newer, but cargo is $have: run rustup update stable (without rustup: https://rustup.rs)"
}

has_libclang() {
    # libclang-dev, unlike a package for one version, also provides clang's headers, which bindgen needs.
    [[ -n ${LIBCLANG_PATH:-} ]] || compgen -G '/usr/lib/llvm-*/lib/libclang*.so' >/dev/null ||
        compgen -G '/usr/lib*/libclang.so' >/dev/null
}

# Prints a python3 for which torch has wheels.
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

# Prints the missing Debian packages for $1: build (of ringmark) or pip.
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
        # Debian's python3 has these modules in a separate package.
        [[ $(realpath "$(command -v "$python")") != /usr/bin/python3* ]] || echo python3-venv
    fi
}

install_packages() {
    local missing command
    missing=$(missing_packages "$1" | xargs)
    [[ -n $missing ]] || return 0
    command="apt-get install -y --no-install-recommends $missing"
    command -v apt-get >/dev/null ||
        fail "packages are missing. Install your system's equivalents of these Debian packages: $missing"
    local as_root=()
    if ((EUID != 0)); then
        # Without a terminal, sudo cannot prompt for a password.
        if command -v sudo >/dev/null && { [[ -t 0 ]] || sudo -n true 2>/dev/null; }; then
            as_root=(sudo)
        else
            fail "packages are missing. Run as root: apt-get update && $command"
        fi
    fi
    say "installing $missing"
    local log
    log=$(mktemp)
    # Unattended upgrades can hold dpkg's lock for minutes.
    # shellcheck disable=SC2086 # split into arguments
    if ! { "${as_root[@]}" apt-get update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $command -o DPkg::Lock::Timeout=600; } </dev/null >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm "$log"
        fail "installation failed. Run as root: apt-get update && $command"
    fi
    rm "$log"
    hash -r
    missing=$(missing_packages "$1" | xargs)
    [[ -z $missing ]] || fail "still missing after installation: $missing. Does another program of that name come first on PATH?"
}

# --- libtorch ------------------------------------------------------------------------------------------------------

# Prints the version of the libtorch in folder $1, from version.py of a wheel or build-version of the zip.
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
    [[ -d $LIBTORCH ]] || fail "LIBTORCH=$LIBTORCH is not a folder: correct the path, or unset LIBTORCH to install libtorch in .libtorch"
    local version
    version=$(version_of "$LIBTORCH")
    [[ $version == "$TORCH" ]] ||
        fail "ringmark needs libtorch $TORCH, but LIBTORCH=$LIBTORCH has ${version:-no version}: unset LIBTORCH to install it in .libtorch"
    is_good "$LIBTORCH" || fail "LIBTORCH=$LIBTORCH lacks lib/libtorch_cpu.so or the headers in include/torch"
    link_to "$LIBTORCH"
}

# Prints the state of the driver: `gpus 12040 70 90` (CUDA 12.4, GPUs of compute capability 7.0 and 9.0), `none REASON` or
# `broken REASON`.
query_driver() {
    local python
    python=$(find_python) || { echo none python3 not found, so the NVIDIA driver was not queried; return; }
    "$python" - <<'PYTHON'
import sys


def end(*words):
    print(*words)
    sys.exit()


try:
    import ctypes
except ImportError:
    end("none python3 has no ctypes, so the NVIDIA driver was not queried")


def call(name, *arguments):
    if code := getattr(driver, name)(*arguments):
        text = ctypes.c_char_p()
        driver.cuGetErrorName(code, ctypes.byref(text))
        # 34: stub library of the toolkit. 100: no GPU, or none visible.
        state = "none" if code in (34, 100) else "broken"
        end(state, f"{name} of the NVIDIA driver failed: CUDA error {code}", f"({(text.value or b'unknown').decode()})")


def number(name, *arguments):
    value = ctypes.c_int()
    call(name, ctypes.byref(value), *arguments)
    return value.value


try:
    driver = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    missing = str(error).startswith("libcuda.so.1: cannot open shared object file: No such file")
    end(*["none NVIDIA driver not found"] if missing else ["broken", "the NVIDIA driver cannot be loaded:", error])
version = number("cuDriverGetVersion")
call("cuInit", 0)
devices = [number("cuDeviceGet", index) for index in range(number("cuDeviceGetCount"))]
if not devices:
    end("none the NVIDIA driver lists no GPU")
# 75 and 76: major and minor compute capability.
end("gpus", version, *[number("cuDeviceGetAttribute", 75, gpu) * 10 + number("cuDeviceGetAttribute", 76, gpu) for gpu in devices])
PYTHON
}

format_version() { echo "CUDA $(($1 / 1000)).$(($1 % 1000 / 10))"; }
format_capabilities() { printf '%s\n' "$@" | sort -nu | sed 's/.$/.&/' | paste -sd ' '; }

# Succeeds if CUDA build $1 supports driver version $2 and GPUs with compute capabilities $3...
supports() {
    local build=$1 driver=$2 name oldest lowest highest capability _
    shift 2
    while read -r name _ oldest _ lowest highest; do
        [[ $name == "$build" ]] || continue
        ((driver >= oldest)) || return 1
        for capability; do ((lowest <= capability && capability <= highest)) || return 1; done
        return 0
    done <<<"$CUDA_BUILDS"
    return 1
}

# Prints the build for this machine (cpu, cu130, cu126, or `given` for RINGMARK_TORCH_INDEX) and, in a second line, the
# reason. $1 is the installed build, or none.
choose_build() {
    local have=$1 requested=${RINGMARK_TORCH:-} state driver capabilities machine build
    case $requested in
        '' | cuda) ;;
        cpu) printf '%s\n' cpu "requested by RINGMARK_TORCH=cpu"; return ;;
        *)
            # shellcheck disable=SC2046 # split into arguments
            [[ -n $(index_of "$requested") ]] ||
                fail "RINGMARK_TORCH=$requested: use $(join_words cpu cuda $(list_builds))"
            printf '%s\n' "$requested" "requested by RINGMARK_TORCH=$requested"
            return
            ;;
    esac
    if [[ -n ${RINGMARK_TORCH_INDEX:-} || $have == given ]]; then
        printf '%s\n' given "chosen by RINGMARK_TORCH_INDEX"
        return
    fi
    read -r state driver capabilities < <(query_driver)
    machine="$driver $capabilities"
    case $state in
        gpus)
            # shellcheck disable=SC2086 # split into arguments
            machine="driver $(format_version "$driver"), compute capability $(format_capabilities $capabilities)"
            # shellcheck disable=SC2086 # split into arguments
            for build in "$have" $(list_builds); do
                if supports "$build" "$driver" $capabilities; then printf '%s\n' "$build" "$machine"; return; fi
            done
            fail "no CUDA build of libtorch $TORCH supports this machine ($machine):
$(list_requirements)
    Update the driver, hide the unsupported GPUs (CUDA_VISIBLE_DEVICES), or use CPUs (RINGMARK_TORCH=cpu)"
            ;;
        none)
            if [[ $requested == cuda && $have != cu* ]]; then
                printf '%s\n' cu130 "RINGMARK_TORCH=cuda requests CUDA, and $machine"
            elif [[ $have != none ]]; then
                printf '%s\n' "$have" "already installed; $machine"
            else
                printf '%s\n' cpu "$machine; if other hosts have GPUs, run RINGMARK_TORCH=cuda scripts/setup.sh"
            fi
            ;;
        *)
            if [[ $have != none && ($requested != cuda || $have != cpu) ]]; then
                printf '%s\n' "$have" "already installed, but $machine"
                return
            fi
            # shellcheck disable=SC2046 # split into arguments
            fail "$machine. Fix the driver (check nvidia-smi), or select a build: RINGMARK_TORCH=$(join_words cpu $(list_builds))"
            ;;
    esac
}

list_requirements() {
    local name version number lowest highest _
    while read -r name _ version number lowest highest; do
        echo "    $name needs a driver of $(format_version "$version") ($number) or newer and compute capability" \
            "$(format_capabilities "$lowest") to $(format_capabilities "$highest")"
    done <<<"$CUDA_BUILDS"
}

# Prints the folder of a torch of build $1 that python3 can import; for cpu, any build is sufficient.
importable_torch() {
    local folder
    # Import torch last, because that takes seconds; it checks that the libraries load.
    folder=$(python3 -c 'import importlib.util as i; print(i.find_spec("torch").submodule_search_locations[0])' 2>/dev/null) ||
        return 1
    is_good "$folder" && { [[ $1 == cpu ]] || [[ $(build_of "$folder") == "$1" ]]; } &&
        python3 -c 'import torch' 2>/dev/null && echo "$folder"
}

# Prints the build of the wheel in folder $1: cu130 if it was built with CUDA 13.0.
build_of() { sed -n "s/^cuda: .* = '\([0-9]*\)\.\([0-9]*\)'/cu\1\2/p" "$1/version.py" 2>/dev/null; }

# Installs build $1 (cpu or cuda) from index $2 ("default" is pip's own).
install_wheels() {
    local set=$1 index=$2 python
    [[ $(uname -sm) =~ ^Linux\ (x86_64|aarch64)$ ]] ||
        fail "wheels exist only for Linux on x86-64 and aarch64, but this is $(uname -sm): set LIBTORCH to a libtorch $TORCH"
    python=$(find_python) || fail "torch $TORCH has wheels for Python 3.10 to 3.14, but python3 is $(python3 --version 2>&1): \
put a supported version on PATH, or set LIBTORCH to a libtorch $TORCH"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$(command -v "$python") has no venv module: install it"

    # Start over if an installation was interrupted or used another index: pip could consider its packages complete.
    if [[ ! -f $STAMP ]] || [[ $(<"$STAMP") != *" $index" ]]; then
        rm -rf "$VENV"
        mkdir -p "$STORE"
        "$python" -m venv "$VENV" || fail "$python -m venv failed; see above"
    fi
    rm -f "$STAMP"

    local options=(install --disable-pip-version-check --no-input)
    [[ -t 2 ]] || options+=(--quiet)
    [[ $index == default ]] || options+=(--index-url "$index")
    if [[ $set == cpu ]]; then
        options+=(--no-deps)
        if [[ $index == default ]]; then options+=("${CPU_WHEELS[@]}"); else options+=("torch==$TORCH"); fi
        say "installing libtorch $TORCH for CPUs in $STORE (0.5 GB download)"
    else
        options+=("torch==$TORCH")
        say "installing libtorch $TORCH with CUDA in $STORE (about 3 GB download)"
    fi
    # -I ignores a torch on PYTHONPATH.
    "$VENV/bin/python" -I -m pip "${options[@]}" >&2 ||
        fail "pip failed; see above. Fix the cause, then run scripts/setup.sh again"
    echo "$set $index" >"$STAMP"
}

list_builds() { cut -d ' ' -f 1 <<<"$CUDA_BUILDS"; }
join_words() { echo "$*" | sed 's/ /, /g; s/, \([^,]*\)$/ or \1/'; }
index_of() { sed -n "s/^$1 \([^ ]*\).*/\1/p" <<<"$CUDA_BUILDS"; }

# Prints the build installed in $VENV, given the stamp's build $1 and index $2.
installed_build() {
    local build
    build=$(sed -n "s|^\([^ ]*\) $2 .*|\1|p" <<<"$CUDA_BUILDS")
    case $1 in
        cuda) echo "${build:-given}" ;;
        *) echo "$1" ;;
    esac
}

provide_wheels() {
    local have=none from=none installed build reason set index folder chosen
    if [[ -f $STAMP ]]; then read -r have from <"$STAMP"; fi
    installed=$(installed_build "$have" "$from")
    [[ $installed != none || $only == which ]] || find_python >/dev/null || install_packages pip
    chosen=$(choose_build "$installed") || exit
    { read -r build; read -r reason; } <<<"$chosen"
    if [[ $only == which ]]; then
        echo "$build: $reason"
        return
    fi

    case $build in
        # Without RINGMARK_TORCH_INDEX, keep the index of the earlier installation.
        cpu) set=cpu index=${RINGMARK_TORCH_INDEX:-$from} ;;
        given) set=cuda index=${RINGMARK_TORCH_INDEX:-$from} ;;
        *) set=cuda index=${RINGMARK_TORCH_INDEX:-$(index_of "$build")} ;;
    esac
    [[ $index != none ]] || index=default
    if [[ $installed == none && -z ${RINGMARK_TORCH_INDEX:-} ]] && folder=$(importable_torch "$build"); then
        link_to "$folder"
        return
    fi
    if [[ $from != "$index" || $have == none || ($have == cpu && $set == cuda) ]]; then
        say "libtorch build $build: $reason"
        install_packages pip
        install_wheels "$set" "$index"
    elif [[ $reason == *', but '* ]]; then
        say "libtorch build $build: $reason"
    fi
    folder=$(compgen -G "$VENV/lib/python3*/site-packages/torch") || fail "$VENV has no torch: remove it and run scripts/setup.sh again"
    link_to "${folder#"$STORE"/}"
    is_good "$LINK" || fail "$LINK is not a complete libtorch $TORCH: remove $VENV and run scripts/setup.sh again"
}

# Succeeds if an earlier call linked a libtorch outside of .libtorch.
is_linked() { [[ -z ${RINGMARK_TORCH:-}${RINGMARK_TORCH_INDEX:-} && $(readlink "$LINK") == /* ]] && is_good "$LINK"; }

if [[ $only == which ]]; then
    if [[ -n ${LIBTORCH:-} ]]; then
        echo "given: LIBTORCH=$LIBTORCH"
    elif is_linked; then
        echo "given: $LINK is a link to $(readlink "$LINK")"
    else
        provide_wheels
    fi
    exit
fi
if [[ $only != libtorch ]]; then
    check_rust
    install_packages build
fi
[[ $only != packages ]] || exit 0
if [[ -n ${LIBTORCH:-} ]]; then
    link_given
elif ! is_linked; then
    # Without the lock, simultaneous calls would consider each other's incomplete installation broken.
    mkdir -p "$STORE"
    exec 9>"$STORE/lock"
    flock 9
    provide_wheels
fi
